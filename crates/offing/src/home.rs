//! The directory of what offing fetched or generated: `$OFFING_HOME`, else the platform's cache directory.
//!
//! Every artefact is written to a temporary neighbour and renamed, so a reader sees all of it or none, and made under
//! a lock, so two processes that need the same artefact make it once.

use std::fs::{self, File, TryLockError};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, invalid};

/// Root of offing's caches: `mujoco/`, `datasets/`, `models/<hash>`, `index/<hash>`.
#[derive(Clone, Debug)]
pub struct Home {
    root: PathBuf,
}

/// An exclusive lock between processes, released when dropped or when the process dies.
#[derive(Debug)]
pub struct Lock {
    /// None where this user may not write, so that there is nothing to hold against others.
    _file: Option<File>,
}

impl Home {
    /// The cache at `root`, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// `explicit` (the value of `$OFFING_HOME`, read by the caller) or the platform's cache directory.
    pub fn locate(explicit: Option<PathBuf>) -> Result<Self> {
        match explicit.filter(|p| !p.as_os_str().is_empty()) {
            Some(root) => Ok(Self::new(root)),
            None => dirs::cache_dir().map(|d| Self::new(d.join("offing"))).ok_or_else(|| {
                invalid!("no cache directory on this platform; set OFFING_HOME to a directory to use")
            }),
        }
    }

    /// The root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of one kind of artefact (`"mujoco"`, `"datasets"`…), created when missing.
    pub fn dir(&self, kind: &str) -> Result<PathBuf> {
        let dir = self.root.join(kind);
        fs::create_dir_all(&dir)
            .map_err(|e| Error::io(&dir, "create the directory (OFFING_HOME says where it is)", e))?;
        Ok(dir)
    }

    /// Waits for the lock of one artefact and holds it.
    pub fn lock(&self, kind: &str, name: &str) -> Result<Lock> {
        self.lock_or_notify(kind, name, || Ok(()))
    }

    /// Like [`Home::lock`], but calls `waiting` first when another process holds the lock: making an artefact
    /// may take an hour, and a silent wait looks like a hang. An error it returns ends the wait.
    ///
    /// A home that this user may only read, as on a cluster, needs no lock: its files are complete.
    pub fn lock_or_notify(
        &self,
        kind: &str,
        name: &str,
        waiting: impl FnOnce() -> Result<()>,
    ) -> Result<Lock> {
        let Some((path, file)) = self.lock_file(kind, name)? else { return Ok(Lock { _file: None }) };
        match file.try_lock() {
            Ok(()) => return Ok(Lock { _file: Some(file) }),
            Err(TryLockError::WouldBlock) => waiting()?,
            Err(TryLockError::Error(e)) => return Err(Error::io(&path, "take the lock", e)),
        }
        file.lock().map_err(|e| Error::io(&path, "take the lock", e))?;
        Ok(Lock { _file: Some(file) })
    }

    /// The lock of one artefact, or `None` while another process holds it: for those who can do something else meanwhile.
    pub fn try_lock(&self, kind: &str, name: &str) -> Result<Option<Lock>> {
        let Some((path, file)) = self.lock_file(kind, name)? else { return Ok(Some(Lock { _file: None })) };
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { _file: Some(file) })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(Error::io(&path, "take the lock", e)),
        }
    }

    /// The file to lock; `None` where this user may not write.
    fn lock_file(&self, kind: &str, name: &str) -> Result<Option<(PathBuf, File)>> {
        let path = self.dir(kind)?.join(format!(".{name}.lock"));
        match File::options().create(true).write(true).truncate(false).open(&path) {
            Ok(file) => Ok(Some((path, file))),
            Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
                Ok(None)
            }
            Err(e) => Err(Error::io(&path, "create the lock file", e)),
        }
    }
}

/// Writes a file so that `path` holds either its old content or all of the new: temporary neighbour, fsync, rename.
pub fn write_atomic(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    replace_atomic(path, |temporary| {
        let file = File::create(temporary).map_err(|e| Error::io(path, "write", e))?;
        let mut out = BufWriter::new(file);
        fill(&mut out).and_then(|()| out.flush()).map_err(|e| Error::io(path, "write", e))
    })
}

/// Writes JSON, whole or not at all.
pub fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<()> {
    write_atomic(path, |file| {
        serde_json::to_writer_pretty(&mut *file, value)?;
        file.write_all(b"\n")
    })
}

/// Like [`write_atomic`] for writers that open the file themselves: `fill` gets the temporary path to create.
pub fn replace_atomic(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|e| Error::io(parent, "create the directory", e))?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = parent.join(format!(".{name}.{}.partial", std::process::id()));
    let result = fill(&temporary).and_then(|()| {
        File::options()
            .write(true)
            .open(&temporary)
            .and_then(|f| f.sync_all())
            .and_then(|()| fs::rename(&temporary, path))
            .map_err(|e| Error::io(path, "put the finished file in place", e))
    });
    if result.is_err() {
        // Best effort: the error that matters is the one already in hand.
        let _ = fs::remove_file(&temporary);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_content() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write_atomic(&path, |f| f.write_all(b"old")).unwrap();
        let failed = write_atomic(&path, |f| {
            f.write_all(b"half of the new")?;
            Err(std::io::Error::other("disk full"))
        });
        assert!(failed.unwrap_err().to_string().contains("disk full"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left behind");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_home_that_is_only_read_needs_no_lock() {
        // Not even root creates files there.
        let home = Home::new("/sys");
        assert!(home.lock("kernel", "x").is_ok());
        assert!(home.dir("offing").unwrap_err().to_string().contains("OFFING_HOME"));
    }

    #[test]
    fn a_lock_is_free_again_after_its_holder_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        drop(home.lock("datasets", "x").unwrap());
        let _again = home.lock("datasets", "x").unwrap();
        let other = File::options().write(true).open(dir.path().join("datasets/.x.lock")).unwrap();
        assert!(other.try_lock().is_err(), "a second holder must wait");
        assert!(home.try_lock("datasets", "x").unwrap().is_none());
        let told = home.lock_or_notify("datasets", "x", || Err(invalid!("told")));
        assert_eq!(told.unwrap_err().to_string(), "told", "who has to wait is told so");
    }
}
