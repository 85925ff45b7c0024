//! The engine for unit tests: loaded once, from the cache that users have.

use std::path::PathBuf;
use std::sync::OnceLock;

use offing::home::Home;

use crate::Engine;

pub(crate) fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        let home = Home::locate(path("OFFING_HOME")).unwrap();
        Engine::load(&home, path("MUJOCO_LIB").as_deref(), &mut |line| eprintln!("{line}")).unwrap()
    })
}
