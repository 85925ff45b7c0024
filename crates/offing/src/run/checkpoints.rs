//! Checkpoints: the last two states on disk; damaged ones are skipped.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::home::{refuse_link, write_atomic};
use crate::nn::Tensors;

/// A checkpoint and its step.
type Numbered = (u64, Tensors);

/// How many are kept: the newest, and one more should the newest turn out damaged.
const KEPT: usize = 2;

/// The checkpoints of one run, as `<step>.safetensors`.
#[derive(Debug)]
pub(super) struct Checkpoints {
    dir: PathBuf,
}

/// A process that was killed while writing leaves half a file under a temporary name. The caller holds the run's lock, so
/// nobody is writing it now.
pub(super) fn sweep(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).map_err(|e| Error::io(dir, "list the files", e))?.flatten() {
        if entry.file_name().to_string_lossy().ends_with(".partial") {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

impl Checkpoints {
    pub(super) fn open(dir: &Path) -> Result<Self> {
        refuse_link(dir)?;
        fs::create_dir_all(dir).map_err(|e| Error::io(dir, "create the directory", e))?;
        sweep(dir)?;
        Ok(Self { dir: dir.to_path_buf() })
    }

    pub(super) fn save(&self, step: u64, state: &Tensors) -> Result<()> {
        let bytes = state.to_bytes()?;
        write_atomic(&self.path(step), |f| f.write_all(&bytes))?;
        let steps = steps_in(&self.dir);
        for old in &steps[..steps.len().saturating_sub(KEPT)] {
            // An old checkpoint too many does no harm.
            let _ = fs::remove_file(self.path(*old));
        }
        Ok(())
    }

    /// The newest checkpoint that is whole, and a line for each newer one that is not. One that cannot be read at this
    /// moment may be whole: it is an error, and stays where it is.
    pub(super) fn newest(&self) -> Result<(Option<Numbered>, Vec<String>)> {
        let mut refused = Vec::new();
        for step in steps_in(&self.dir).into_iter().rev() {
            let path = self.path(step);
            let bytes = fs::read(&path).map_err(|e| Error::io(&path, "read", e))?;
            match Tensors::from_bytes(&bytes) {
                Ok(state) => return Ok((Some((step, state)), refused)),
                Err(why) => {
                    // Out of the way, so that it is not taken for the newest again.
                    let _ = fs::rename(&path, path.with_extension("damaged"));
                    refused.push(format!("{}: refused: {why}", path.display()));
                }
            }
        }
        if !refused.is_empty() {
            refused.push(format!("{}: no checkpoint is whole; starting over", self.dir.display()));
        }
        Ok((None, refused))
    }

    pub(super) fn path(&self, step: u64) -> PathBuf {
        self.dir.join(format!("{step:012}.safetensors"))
    }
}

/// Steps of the checkpoints in a directory, oldest first; none when there is no such directory.
pub(super) fn steps_in(dir: &Path) -> Vec<u64> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut steps: Vec<u64> = entries
        .filter_map(|e| e.file_name().to_string_lossy().strip_suffix(".safetensors")?.parse().ok())
        .collect();
    steps.sort_unstable();
    steps
}
