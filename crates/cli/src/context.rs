//! What every command needs from its surroundings. The only place that reads environment variables.

use std::path::PathBuf;

use anyhow::Result;
use offing::data::catalogue::Catalogue;
use offing::home::Home;
use offing_mujoco::{Engine, Mujoco};

use crate::term;

/// Directories, the simulator once it is needed, and how talkative to be.
pub(crate) struct Context {
    pub(crate) catalogue: Catalogue,
    pub(crate) mujoco: Mujoco,
    pub(crate) quiet: bool,
    /// Threads that were asked for, where they were.
    pub(crate) threads: Option<usize>,
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
        let mujoco = Mujoco::new(catalogue.home.clone(), path("MUJOCO_LIB"));
        Ok(Self { catalogue, mujoco, quiet, threads: None })
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
        places.extend(self.mujoco.library().map(|path| ("MUJOCO_LIB", here.join(path))));
        places
    }

    /// The simulator: found, or fetched on first use.
    pub(crate) fn engine(&self) -> Result<&Engine> {
        Ok(self.mujoco.engine(&mut |line| self.say(line))?)
    }

    /// Says what is going on, unless --quiet.
    pub(crate) fn say(&self, line: &str) {
        if !self.quiet {
            term::step(line);
        }
    }
}
