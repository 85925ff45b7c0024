//! What made a number, and where: kept beside it, because whoever puts numbers together may sit elsewhere, with another build.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::commands::bench::commit;
use crate::commands::data::write_json;
use crate::commands::doctor::cpu_name;

/// Who worked on a run.
const MADE_BY: &str = "made-by.json";

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

    /// Everyone who has worked on the run at `dir`, in order, where that was written down.
    pub(crate) fn of_run(dir: &Path) -> Vec<Self> {
        let text = std::fs::read(dir.join(MADE_BY)).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Writes down that this process works on the run at `dir`.
    pub(crate) fn sign(dir: &Path) -> Result<()> {
        let (mut all, here) = (Self::of_run(dir), Self::here());
        if !all.contains(&here) {
            all.push(here);
            write_json(&dir.join(MADE_BY), &serde_json::to_value(&all)?)?;
        }
        Ok(())
    }
}

/// Cores of this machine.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
