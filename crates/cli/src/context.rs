//! What every command needs from its surroundings. The only place that reads environment variables.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use anyhow::Result;
use offing::data::catalogue::Catalogue;
use offing::home::Home;
use offing_mujoco::Engine;

use crate::term;

/// Directories, the simulator once it is needed, and how talkative to be.
pub(crate) struct Context {
    pub(crate) catalogue: Catalogue,
    pub(crate) mujoco_lib: Option<PathBuf>,
    pub(crate) quiet: bool,
    /// Threads that were asked for, where they were.
    pub(crate) threads: Option<usize>,
    engine: OnceCell<Engine>,
}

impl Context {
    pub(crate) fn from_environment(quiet: bool) -> Result<Self> {
        let path = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let user = dirs::home_dir().unwrap_or_else(|| ".".into());
        let catalogue = Catalogue {
            home: Home::locate(path("OFFING_HOME"))?,
            d4rl: path("D4RL_DATASET_DIR").unwrap_or_else(|| user.join(".d4rl/datasets")),
            minari: path("MINARI_DATASETS_PATH").unwrap_or_else(|| user.join(".minari/datasets")),
        };
        Ok(Self { catalogue, mujoco_lib: path("MUJOCO_LIB"), quiet, threads: None, engine: OnceCell::new() })
    }

    pub(crate) fn home(&self) -> &Home {
        &self.catalogue.home
    }

    /// Where things are, as variables that tell another process the same.
    pub(crate) fn places(&self) -> Vec<(&'static str, PathBuf)> {
        let here = std::env::current_dir().unwrap_or_default();
        let mut places = vec![
            ("OFFING_HOME", here.join(self.home().root())),
            ("D4RL_DATASET_DIR", here.join(&self.catalogue.d4rl)),
            ("MINARI_DATASETS_PATH", here.join(&self.catalogue.minari)),
        ];
        places.extend(self.mujoco_lib.iter().map(|path| ("MUJOCO_LIB", here.join(path))));
        places
    }

    /// The simulator: found, or fetched on first use.
    pub(crate) fn engine(&self) -> Result<&Engine> {
        if self.engine.get().is_none() {
            let quiet = self.quiet;
            let mut say = |line: &str| {
                if !quiet {
                    term::step(line);
                }
            };
            let engine = Engine::load(self.home(), self.mujoco_lib.as_deref().map(Path::new), &mut say)?;
            let _ = self.engine.set(engine);
        }
        Ok(self.engine.get().expect("set just above"))
    }

    /// Says what is going on, unless --quiet.
    pub(crate) fn say(&self, line: &str) {
        if !self.quiet {
            term::step(line);
        }
    }
}
