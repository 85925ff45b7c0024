//! The simulators of this crate behind the library's trait.

use std::path::PathBuf;
use std::sync::OnceLock;

use offing::Result;
use offing::data::catalogue::GeneratedName;
use offing::env::{Env, GenerateOptions, Generated, Physics, Simulators};
use offing::home::Home;

use crate::generate::generate;
use crate::{Engine, make};

/// MuJoCo and the tasks simulated with it. It finds, fetches and loads the engine on first use.
///
/// ```no_run
/// use offing::env::{Physics, Simulators};
/// use offing::home::Home;
/// use offing_mujoco::Mujoco;
///
/// let mujoco = Mujoco::new(Home::locate(None)?, None);
/// mujoco.prepare("hopper", &mut |line| eprintln!("{line}"))?;
/// let mut env = mujoco.make("hopper", Physics::default())?;
/// env.reset(0);
/// # Ok::<(), offing::Error>(())
/// ```
#[derive(Debug)]
pub struct Mujoco {
    home: Home,
    library: Option<PathBuf>,
    engine: OnceLock<Engine>,
}

impl Mujoco {
    /// Simulators that keep what they fetch and generate in `home`. `library` is the engine's shared library or its
    /// directory (the value of `$MUJOCO_LIB`), where the caller names one.
    pub fn new(home: Home, library: Option<PathBuf>) -> Self {
        Self { home, library, engine: OnceLock::new() }
    }

    /// The library that the caller named.
    pub fn library(&self) -> Option<&std::path::Path> {
        self.library.as_deref()
    }

    /// The engine, loaded on first use. `notify` gets a line before each slow step.
    pub fn engine(&self, notify: &mut dyn FnMut(&str)) -> Result<&Engine> {
        if let Some(engine) = self.engine.get() {
            return Ok(engine);
        }
        // Two threads may both load it; they then share the first one.
        let engine = Engine::load(&self.home, self.library.as_deref(), notify)?;
        Ok(self.engine.get_or_init(|| engine))
    }
}

impl Simulators for Mujoco {
    fn task_of(&self, name: &str) -> Option<String> {
        Some(offing::tasks::task_of(name)?.name.to_string())
    }

    fn prepare(&self, task: &str, notify: &mut dyn FnMut(&str)) -> Result<()> {
        self.engine(notify)?.prepare(task, notify)
    }

    fn make(&self, task: &str, physics: Physics) -> Result<Box<dyn Env>> {
        make(self.engine(&mut |_| ())?, task, physics)
    }

    fn generate(
        &self,
        name: &str,
        options: &GenerateOptions,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Generated> {
        let recipe = GeneratedName::parse(name)?;
        generate(self.engine(&mut |_| ())?, &self.home, &recipe, options, progress)
    }
}
