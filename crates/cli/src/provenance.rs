//! What made a number, and where: kept beside it, because whoever puts numbers together may sit elsewhere, with another build.

use std::path::Path;

use offing::run::TIMING;
use serde::{Deserialize, Serialize};

use crate::commands::bench::commit;
use crate::commands::doctor::cpu_name;

/// Program and machine of a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct By {
    /// Version and commit.
    pub(crate) offing: String,
    pub(crate) cpu: String,
    /// Cores of the machine.
    pub(crate) cores: usize,
    pub(crate) threads: usize,
}

impl By {
    /// This process.
    pub(crate) fn here() -> Self {
        Self {
            offing: format!("{} ({})", env!("CARGO_PKG_VERSION"), commit()),
            cpu: cpu_name(),
            cores: cores(),
            threads: rayon::current_num_threads(),
        }
    }

    /// Whoever finished the run at `dir`, where that was written down.
    pub(crate) fn of_run(dir: &Path) -> Option<Self> {
        let text = std::fs::read(dir.join(TIMING)).ok()?;
        let mut found: serde_json::Value = serde_json::from_slice(&text).ok()?;
        serde_json::from_value(found.get_mut("by")?.take()).ok()
    }
}

/// Cores of this machine.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
