//! The directory of what offing fetched or generated: `$OFFING_HOME`, else the platform's cache directory.
//!
//! Every artefact is written to a temporary neighbour and renamed, so a reader sees all of it or none, and made under
//! a lock, so two processes that need the same artefact make it once.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
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
        self.check_owner(&dir)?;
        make_own_dir(&dir)
            .map_err(|e| Error::io(&dir, "create the directory (OFFING_HOME says where it is)", e))?;
        Ok(dir)
    }

    /// Refuses a file or directory of the home that another user could have planted or changed: by itself, or by way of a
    /// directory between it and the root. What does not exist is fine.
    ///
    /// # Errors
    /// One line that names the first such place.
    pub fn check_owner(&self, path: &Path) -> Result<()> {
        let below: Vec<&Path> = path.ancestors().take_while(|place| place.starts_with(&self.root)).collect();
        below.into_iter().rev().filter(|place| place.exists()).try_for_each(only_ours)
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

/// Creates a directory and those above it. Whatever the umask, others may read it, not write to it.
pub(crate) fn make_own_dir(path: &Path) -> std::io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o755);
    builder.recursive(true).create(path)
}

/// Options to write a file that, whatever the umask, others may read and not write to.
pub(crate) fn own_file() -> OpenOptions {
    let mut options = File::options();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o644);
    options.write(true);
    options
}

/// Writes a file so that `path` holds either its old content or all of the new: temporary neighbour, fsync, rename.
pub fn write_atomic(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
) -> Result<()> {
    replace_atomic(path, |temporary| {
        let file = File::options().write(true).open(temporary).map_err(|e| Error::io(path, "write", e))?;
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

/// Like [`write_atomic`] for writers that open the file themselves: `fill` gets the path of an empty file to fill.
///
/// The temporary file has a name that nobody can foresee and is new, so no link planted in its place is followed. It is
/// locked while it is written: one without a lock was left by a process that was killed, and the next write to the same
/// directory removes it.
pub fn replace_atomic(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|e| Error::io(parent, "create the directory", e))?;
    sweep(parent);
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let (temporary, _locked) = new_partial(parent, &name).map_err(|e| Error::io(path, "write", e))?;
    let result = fill(&temporary).and_then(|()| {
        File::options()
            .write(true)
            .open(&temporary)
            .and_then(|f| f.sync_all())
            .and_then(|()| fs::rename(&temporary, path))
            .map_err(|e| Error::io(path, "put the finished file in place", e))
    });
    match result {
        // Best effort: the error that matters is the one already in hand.
        Err(_) => _ = fs::remove_file(&temporary),
        Ok(()) => sync_dir(parent),
    }
    result
}

/// Makes renamings in a directory outlast a loss of power. Best effort: not every file system can.
pub fn sync_dir(dir: &Path) {
    #[cfg(unix)]
    let _ = File::open(dir).and_then(|dir| dir.sync_all());
    #[cfg(not(unix))]
    let _ = dir;
}

/// A name for a temporary neighbour of `name`. Two processes never choose the same one, not even with the same number in two
/// containers, and nobody can foresee it.
pub fn partial_name(name: &str) -> String {
    // The keys of the standard library's hash maps come from the system's generator.
    format!(".{name}.{:016x}.partial", RandomState::new().build_hasher().finish())
}

/// Whether [`partial_name`] made this name.
fn is_partial(name: &str) -> bool {
    let digits =
        name.strip_prefix('.').and_then(|n| n.strip_suffix(".partial")).and_then(|n| n.rsplit_once('.'));
    digits.is_some_and(|(_, d)| d.len() == 16 && d.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Creates a new temporary file and locks it.
fn new_partial(parent: &Path, name: &str) -> std::io::Result<(PathBuf, File)> {
    loop {
        let path = parent.join(partial_name(name));
        let file = own_file().create_new(true).open(&path)?;
        // Elsewhere a lock would keep out the writer, which opens the file once more.
        #[cfg(unix)]
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) || !path.exists() {
            continue; // someone who sweeps was faster
        }
        return Ok((path, file));
    }
}

/// Removes the temporary files of processes that were killed: nobody holds their locks.
#[cfg(unix)]
fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let ours =
            is_partial(&entry.file_name().to_string_lossy()) && entry.file_type().is_ok_and(|t| t.is_file());
        if let Some(file) = ours.then(|| File::open(entry.path()).ok()).flatten()
            && file.try_lock().is_ok()
        {
            // The lock is held until the file is gone: see `new_partial`.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(not(unix))]
fn sweep(_: &Path) {}

/// Refuses a symbolic link where a file or directory is about to be changed in place: the change would go elsewhere.
pub fn refuse_link(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_symlink() => Err(Error::file(
            path,
            "wanted a file or directory of its own, found a symbolic link, through which another would be changed; remove it",
        )),
        _ => Ok(()),
    }
}

/// Refuses a file or directory that another user owns or can write to: what it holds could change after any check.
#[cfg(unix)]
pub fn only_ours(path: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::metadata(path).map_err(|e| Error::io(path, "look at", e))?;
    let (me, mode) = (rustix::process::geteuid().as_raw(), meta.mode());
    // A group of the user's own number is the user alone, as most distributions set it up.
    let others = mode & 0o002 != 0 || (mode & 0o020 != 0 && meta.gid() != me);
    let (found, remedy) = match meta.uid() {
        uid if uid != me && uid != 0 => {
            let remedy = if meta.is_dir() { "" } else { "remove it, or " };
            (format!("one of user {uid}"), remedy.to_string())
        }
        _ if others => {
            let mode = format!("one that others can write to (mode {:o})", mode & 0o7777);
            (mode, format!("if you trust what it holds, `chmod go-w '{}'`, or else ", path.display()))
        }
        _ => return Ok(()),
    };
    Err(Error::file(
        path,
        format!(
            "wanted a place that only this user or root can change, found {found}; {remedy}set OFFING_HOME to a directory of your own"
        ),
    ))
}

/// Refuses a file or directory that another user can change; on this platform, nothing.
#[cfg(not(unix))]
pub fn only_ours(_: &Path) -> Result<()> {
    Ok(())
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

    #[cfg(unix)]
    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_being_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (left, foreign) = (dir.path().join(partial_name("a")), dir.path().join(".download.partial"));
        fs::write(&left, b"half").unwrap();
        fs::write(&foreign, b"of another program").unwrap();
        let path = dir.path().join("b");
        write_atomic(&path, |f| {
            f.write_all(b"whole")?;
            // Another writer, such as one in another container, comes meanwhile.
            write_atomic(&dir.path().join("c"), |f| f.write_all(b"c")).map_err(std::io::Error::other)
        })
        .unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert!(!left.exists() && foreign.exists());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn temporary_names_cannot_be_foreseen() {
        let names: std::collections::BTreeSet<String> = (0..1000).map(|_| partial_name("a")).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|name| is_partial(name)));
        assert!(!is_partial(".a.1234.partial") && !is_partial("a.0123456789abcdef.partial"));
    }

    #[test]
    fn many_writers_of_one_file_do_not_disturb_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::thread::scope(|scope| {
            for i in 0..8u8 {
                let path = &path;
                scope.spawn(move || {
                    (0..50).for_each(|_| write_atomic(path, |f| f.write_all(&[i; 999])).unwrap())
                });
            }
        });
        let content = fs::read(&path).unwrap();
        assert!(content.len() == 999 && content.iter().all(|b| *b == content[0]));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_place_of_a_file_is_replaced_and_its_target_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        fs::write(&target, b"precious").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(refuse_link(&link).unwrap_err().to_string().contains("symbolic link"));
        assert!(refuse_link(&target).is_ok() && refuse_link(&dir.path().join("absent")).is_ok());
        write_atomic(&link, |f| f.write_all(b"new")).unwrap();
        assert_eq!(
            (fs::read(&target).unwrap(), fs::read(&link).unwrap()),
            (b"precious".to_vec(), b"new".to_vec())
        );
    }

    #[cfg(unix)]
    #[test]
    fn what_others_can_change_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, b"").unwrap();
        let with = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            only_ours(&path).map_err(|e| e.to_string())
        };
        assert_eq!(with(0o644), Ok(()));
        let error = with(0o646).unwrap_err();
        assert!(error.contains("others can write to (mode 646)") && error.lines().count() == 1, "{error}");
        // Only root can give a file away.
        if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
            assert!(with(0o644).unwrap_err().contains("one of user 12345"));
        }
    }

    #[cfg(unix)]
    #[test]
    fn every_place_between_a_home_and_a_file_is_examined_and_what_it_made_is_fine() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        let made = home.dir("models/abc").unwrap();
        let file = made.join("report.json");
        assert!(home.check_owner(&file).is_ok(), "what does not exist is fine");
        write_json(&file, &1).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o022, 0, "whatever the umask");
        // Above the home lies what is not its own.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(home.check_owner(&file).is_ok());
        for place in [home.root(), &home.root().join("models"), &made, &file] {
            let mode = fs::metadata(place).unwrap().permissions();
            fs::set_permissions(place, fs::Permissions::from_mode(0o777)).unwrap();
            let error = home.check_owner(&file).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{}: ", place.display())) && error.contains("chmod go-w"),
                "{error}"
            );
            fs::set_permissions(place, mode).unwrap();
        }
        fs::set_permissions(home.root(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(home.dir("index").is_err() && home.lock("index", "x").is_err());
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
