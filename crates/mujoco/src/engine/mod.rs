//! The engine: finding, fetching and loading MuJoCo, the models compiled with it, and simulations of them.

mod api;
pub(crate) mod fetch;
pub(crate) mod layout;
mod locate;
mod model;
mod sim;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use offing::Result;
use offing::env::Physics;
use offing::home::Home;

use self::api::Api;
pub(crate) use self::api::one_line;
pub(crate) use self::model::Model;
pub(crate) use self::sim::Sim;
use crate::tasks::{self, mjcf};

/// MuJoCo, loaded once; clones share it. Models are compiled once per task and physics and shared by all envs.
#[derive(Clone, Debug)]
pub struct Engine {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    api: Arc<Api>,
    home: Home,
    library: PathBuf,
    models: Mutex<HashMap<(&'static str, Physics), Arc<Model>>>,
}

impl Engine {
    /// Finds MuJoCo (`explicit_lib`, which is the value of `$MUJOCO_LIB`; the cache; an installed Python `mujoco`),
    /// else fetches it once with the user's own pip, and loads it. `progress` gets one line before each slow step.
    pub fn load(home: &Home, explicit_lib: Option<&Path>, progress: &mut dyn FnMut(&str)) -> Result<Self> {
        Self::open(home, locate::library(home, explicit_lib, progress)?)
    }

    /// Like [`Engine::load`], but never fetches: `None` when MuJoCo is not on this machine.
    pub fn find(home: &Home, explicit_lib: Option<&Path>) -> Result<Option<Self>> {
        locate::present(home, explicit_lib)?.map(|library| Self::open(home, library)).transpose()
    }

    fn open(home: &Home, library: PathBuf) -> Result<Self> {
        let api = Arc::new(Api::open(&library)?);
        model::check_layout(&api, &library)?;
        Ok(Self { shared: Arc::new(Shared { api, home: home.clone(), library, models: Mutex::default() }) })
    }

    /// The shared library in use.
    pub fn library(&self) -> &Path {
        &self.shared.library
    }

    /// The version of the engine, such as `3.17.0`.
    pub fn version(&self) -> &'static str {
        layout::VERSION_NAME
    }

    /// Fetches what `task` needs besides the engine (its body's description) unless it is cached already.
    /// [`crate::make`] does the same silently; call this first to show progress.
    pub fn prepare(&self, task: &str, progress: &mut dyn FnMut(&str)) -> Result<()> {
        tasks::find(task)?.0.fetch_bodies(&self.shared.home, progress).map(drop)
    }

    /// The compiled model of a task, made on first use.
    pub(crate) fn model(&self, task: &str, physics: Physics) -> Result<Arc<Model>> {
        let (task, _) = tasks::find(task)?;
        let mut models = self.shared.models.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (task.name, physics);
        if let Some(model) = models.get(&key) {
            return Ok(model.clone());
        }
        let body = mjcf::body(&self.shared.home, task, physics)?;
        let mut model = Model::compile(&self.shared.api, &body.xml, task.name)?;
        model.old_impedance = body.old_impedance;
        let model = Arc::new(model);
        models.insert(key, model.clone());
        Ok(model)
    }
}
