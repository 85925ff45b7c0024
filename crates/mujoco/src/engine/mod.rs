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
pub(crate) use self::model::{Description, Model};
pub(crate) use self::sim::Sim;

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

    /// The cache of everything fetched.
    pub(crate) fn home(&self) -> &Home {
        &self.shared.home
    }

    /// The compiled model of a task, made on first use from what `describe` returns.
    pub(crate) fn model(
        &self,
        task: &'static str,
        physics: Physics,
        describe: impl FnOnce() -> Result<Description>,
    ) -> Result<Arc<Model>> {
        let mut models = self.shared.models.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (task, physics);
        if let Some(model) = models.get(&key) {
            return Ok(model.clone());
        }
        let model = Arc::new(Model::compile(&self.shared.api, &describe()?, task)?);
        models.insert(key, model.clone());
        Ok(model)
    }
}
