//! A run's metrics: a file of JSON lines that only grows, except that a resumed run removes lines after its checkpoint.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, bad_file};
use crate::home::refuse_link;

/// One line of a metrics file.
pub type Record = serde_json::Map<String, serde_json::Value>;

/// The open metrics file.
#[derive(Debug)]
pub(super) struct Metrics {
    path: PathBuf,
    file: File,
}

impl Metrics {
    pub(super) fn open(path: &Path) -> Result<Self> {
        refuse_link(path)?;
        let mut file = File::options()
            .create(true)
            .read(true)
            .write(true)
            .truncate(false)
            .open(path)
            .map_err(|e| Error::io(path, "open", e))?;
        file.seek(SeekFrom::End(0)).map_err(|e| Error::io(path, "open", e))?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    pub(super) fn append(&mut self, values: &serde_json::Value) -> Result<()> {
        debug_assert!(values.get("step").is_some_and(serde_json::Value::is_u64), "every line has its step");
        // One write call a line: a process killed between two calls leaves whole lines.
        self.file
            .write_all(format!("{values}\n").as_bytes())
            .map_err(|e| Error::io(&self.path, "write a line of metrics", e))
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync_all().map_err(|e| Error::io(&self.path, "write", e))
    }

    /// Removes what was recorded after `step` (everything without one), and any half line at the end.
    pub(super) fn keep_until(&mut self, step: Option<u64>) -> Result<()> {
        let text = fs::read(&self.path).map_err(|e| Error::io(&self.path, "read", e))?;
        let mut kept = 0;
        for line in text.split_inclusive(|&b| b == b'\n') {
            let stays = line.ends_with(b"\n")
                && serde_json::from_slice::<Record>(line).is_ok_and(|record| {
                    let at = record.get("step").and_then(serde_json::Value::as_u64);
                    at.zip(step).is_some_and(|(at, step)| at <= step)
                });
            if !stays {
                break;
            }
            kept += line.len();
        }
        self.file
            .set_len(kept as u64)
            .and_then(|()| self.file.seek(SeekFrom::End(0)))
            .map_err(|e| Error::io(&self.path, "remove lines", e))?;
        Ok(())
    }
}

/// Reads a metrics file. A half line at its end, as a running or killed process leaves it, is passed over.
pub fn read_metrics(path: &Path) -> Result<Vec<Record>> {
    let text = fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    (whole.lines().enumerate())
        .map(|(i, line)| {
            serde_json::from_str(line).map_err(|e| {
                bad_file!(
                    path,
                    "line {}: wanted a JSON object, found otherwise ({e}); fix or remove it",
                    i + 1
                )
            })
        })
        .collect()
}
