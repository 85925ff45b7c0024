//! What made a run, and where: written beside it, because reports may be made on another machine with another build.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::home::write_json;

/// Who worked on a run.
const MADE_BY: &str = "made-by.json";

/// Program and machine of a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// Version and commit.
    pub offing: String,
    /// The processor.
    pub cpu: String,
    /// Cores of the machine.
    pub cores: usize,
    /// Threads at work.
    pub threads: usize,
}

impl Provenance {
    /// This process, of a program of that version.
    pub fn here(program: &str) -> Self {
        let threads = rayon::current_num_threads();
        Self { offing: program.into(), cpu: cpu_name(), cores: cores(), threads }
    }

    /// Everyone who has worked on the run at `dir`, in order, where that was written down.
    pub fn of_run(dir: &Path) -> Vec<Self> {
        let text = std::fs::read(dir.join(MADE_BY)).ok();
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Writes down that this process works on the run at `dir`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn sign(self, dir: &Path) -> Result<()> {
        let mut all = Self::of_run(dir);
        if !all.contains(&self) {
            all.push(self);
            write_json(&dir.join(MADE_BY), &all)?;
        }
        Ok(())
    }
}

/// Cores of this machine.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The processor, as the operating system calls it.
pub fn cpu_name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|l| l.strip_prefix("model name")).and_then(|l| l.split_once(':'));
    name.map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_string())
}
