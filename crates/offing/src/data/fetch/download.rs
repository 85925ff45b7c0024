//! One file: from the first source that has it, resumed where it broke off, checked, and put in place whole.
//!
//! What has arrived is in `NAME.partial` beside the target, and the version of the file that it is of, where the server gives one,
//! in `NAME.partial.etag`. Both are gone once the file is in place, or once its bytes prove to be wrong.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::by_hand::{cannot_fetch, shown};
use super::http::{Answer, Attempt, Client, Failure, Part};
use super::{Events, FetchEvent, Mirrors, Patience, RemoteFile};
use crate::error::{Error, Result, bad_file, require};
use crate::home::{make_own_dir, own_file, refuse_link, sync_dir};

/// The most that is taken of a file whose length nobody knows beforehand.
const LONGEST_UNKNOWN: u64 = 4 << 30;

/// What every download of one command shares.
pub(super) struct Downloader<'a, 'e> {
    pub(super) client: Client,
    pub(super) patience: Patience,
    pub(super) mirrors: &'a Mirrors,
    pub(super) events: &'a mut Events<'e>,
}

impl Downloader<'_, '_> {
    /// Brings a file to `target`; the address that it came from. `only` is the one address to try instead of the published one.
    pub(super) fn bring(&mut self, file: &RemoteFile, target: &Path, only: Option<&str>) -> Result<String> {
        let partial = Partial::of(target)?;
        let sources = only.map_or_else(|| self.mirrors.sources(&file.address), |only| vec![only.into()]);
        let mut found = Vec::new();
        for source in &sources {
            match self.bring_from(file, source, &partial) {
                Ok(()) => return partial.put_in_place(target).map(|()| source.clone()),
                Err(Failure::Fatal(error)) => return Err(error),
                Err(Failure::Source(why) | Failure::Again { why, .. }) => {
                    found.push(match sources.len() {
                        1 if *source == file.address => why,
                        _ => format!("{why} at {}", shown(source)),
                    });
                }
            }
        }
        Err(cannot_fetch(file, target, partial.len(), &found.join(", ")))
    }

    fn bring_from(&mut self, file: &RemoteFile, source: &str, partial: &Partial) -> Attempt<()> {
        // Answers that do not fit together may have gone into the partial file; of an older one nobody knows how many.
        let mut pieces = if partial.len() > 0 { 2 } else { 0 };
        let mut reached = partial.len();
        retry(self.patience, &file.name, self.events, |events| {
            attempt(&self.client, file, source, partial, events, &mut pieces, &mut reached)?;
            events.note(format!("{}: checking its {}", file.name, file.checksum.kind()))?;
            let digits = file.checksum.of_file(&partial.path)?;
            if digits == file.checksum.digits() {
                return Ok(());
            }
            let why =
                format!("{} {digits} instead of {} (removed)", file.checksum.kind(), file.checksum.digits());
            partial.remove()?;
            let mixed = std::mem::take(&mut pieces) > 1;
            reached = 0;
            Err(if mixed { Failure::again(why) } else { Failure::Source(why) })
        })
    }
}

/// Calls until it succeeds or fails for good, with growing pauses between. Failures with progress do not count.
pub(super) fn retry<T>(
    patience: Patience,
    name: &str,
    events: &mut Events<'_>,
    mut attempt: impl FnMut(&mut Events<'_>) -> Attempt<T>,
) -> Attempt<T> {
    let mut failures = 0;
    loop {
        let (why, wait, progressed) = match attempt(events) {
            Err(Failure::Again { why, wait, progressed }) => (why, wait, progressed),
            other => return other,
        };
        failures = if progressed { 1 } else { failures + 1 };
        if failures >= patience.tries {
            let times = if failures == 1 { String::new() } else { format!(" ({failures} times)") };
            return Err(Failure::Source(format!("{why}{times}")));
        }
        let pause =
            wait.unwrap_or(patience.pause * 2_u32.saturating_pow(failures - 1)).min(patience.longest_pause);
        events.note(format!("{name}: {why}; trying again in {:.0} s", pause.as_secs_f64().ceil()))?;
        events.sleep(pause)?;
    }
}

/// One request and all that it brings.
fn attempt(
    client: &Client,
    file: &RemoteFile,
    source: &str,
    partial: &Partial,
    events: &mut Events<'_>,
    pieces: &mut u32,
    reached: &mut u64,
) -> Attempt<()> {
    let mut have = partial.len();
    if file.bytes.is_some_and(|bytes| have > bytes) {
        partial.remove()?;
        have = 0;
    }
    if have > 0 && file.bytes == Some(have) {
        return Ok(());
    }
    let etag = partial.etag(source);
    let Some(mut answer) = client.get(source, Part { start: have, etag: etag.as_deref() })? else {
        partial.remove()?;
        return Err(Failure::again("nothing beyond what was fetched before, which is therefore dropped"));
    };
    if let (Some(wanted), Some(total)) = (file.bytes, answer.total)
        && wanted != total
    {
        return Err(Failure::Source(format!("a file of {total} bytes")));
    }
    if answer.start != have {
        // The server has another version by now, or knows no ranges.
        if answer.start != 0 {
            return Err(Failure::Source(format!("bytes from {} on instead of {have}", answer.start)));
        }
        have = 0;
    }
    if have == 0 {
        *pieces = 0;
    }
    receive(&mut answer, file, source, partial, have, events).map(|()| *pieces += 1).map_err(|failure| {
        let len = partial.len();
        *pieces += 1;
        match failure {
            Failure::Again { why, wait, .. } => {
                let progressed = len > *reached;
                *reached = len.max(*reached);
                let of = file.bytes.or(answer.total).map_or(String::new(), |bytes| format!(" of {bytes}"));
                Failure::Again { why: format!("{why} after {len}{of} bytes"), wait, progressed }
            }
            other => other,
        }
    })
}

/// Writes what comes, from byte `have` on.
fn receive(
    answer: &mut Answer,
    file: &RemoteFile,
    source: &str,
    partial: &Partial,
    mut have: u64,
    events: &mut Events<'_>,
) -> Attempt<()> {
    let total = file.bytes.or(answer.total);
    let most = total.unwrap_or(LONGEST_UNKNOWN);
    let mut buffer = vec![0; 1 << 16];
    let mut out = None;
    loop {
        // Whatever the connection does now, there is nothing more to wait for.
        if total == Some(have) {
            if out.is_none() {
                partial.open(have, source, answer.etag.as_deref())?;
            }
            return Ok(());
        }
        let read = match answer.read(&mut buffer)? {
            0 if total.is_none() && out.is_some() => return Ok(()),
            0 => return Err(Failure::again("the connection was cut")),
            read => read,
        };
        if have == 0 && (answer.is_page || is_page(&buffer[..read])) {
            return Err(Failure::Source("a web page (a login, or a network that wants one?)".into()));
        }
        if read as u64 > most - have {
            partial.remove()?;
            return Err(Failure::Source(format!("more than {most} bytes")));
        }
        let out = match &mut out {
            Some(out) => out,
            None => out.insert(partial.open(have, source, answer.etag.as_deref())?),
        };
        out.write_all(&buffer[..read])
            .map_err(|e| partial.cannot_write(e, total.map(|total| total - have)))?;
        have += read as u64;
        events.tell(FetchEvent::Progress { name: &file.name, bytes: have, total })?;
    }
}

/// Whether a file begins as web pages do. Captive portals answer everything with one.
fn is_page(start: &[u8]) -> bool {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    let begins = |with: &[u8]| start.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
    begins(b"<!doctype html") || begins(b"<html") || begins(b"<head")
}

/// What has arrived of a file.
struct Partial {
    path: PathBuf,
    etag: PathBuf,
}

impl Partial {
    fn of(target: &Path) -> Result<Self> {
        let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        require!(!name.is_empty(), "wanted the path of a file to write, found `{}`", target.display());
        let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        make_own_dir(parent).map_err(|e| Error::io(parent, "create the directory", e))?;
        let beside = |ending: &str| parent.join(format!("{name}{ending}"));
        let partial = Self { path: beside(".partial"), etag: beside(".partial.etag") };
        // Its name is known beforehand, so that a download can go on: nobody shall have put a link there.
        refuse_link(&partial.path).and_then(|()| refuse_link(&partial.etag))?;
        Ok(partial)
    }

    fn len(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |meta| meta.len())
    }

    /// The version that it is of, if it came from `source`: no two servers mean the same by one.
    fn etag(&self, source: &str) -> Option<String> {
        let text = fs::read_to_string(&self.etag).ok()?;
        let (from, etag) = text.trim_end().split_once('\n')?;
        (from == source).then(|| etag.to_string())
    }

    /// Opens it to go on at byte `have`; from 0 on it is another file, from `source`.
    fn open(&self, have: u64, source: &str, etag: Option<&str>) -> Result<File> {
        let cannot = |e| Error::io(&self.path, "write", e);
        if have > 0 {
            return File::options().append(true).open(&self.path).map_err(cannot);
        }
        match etag {
            Some(etag) => fs::write(&self.etag, format!("{source}\n{etag}\n")).map_err(cannot)?,
            None => remove(&self.etag)?,
        }
        own_file().create(true).truncate(true).open(&self.path).map_err(cannot)
    }

    fn cannot_write(&self, error: std::io::Error, missing: Option<u64>) -> Failure {
        let full = matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge
        );
        Failure::Fatal(match missing {
            Some(missing) if full => bad_file!(
                &self.path,
                "cannot write the {missing} bytes that are missing: {error}; make room, and the same command goes on"
            ),
            _ => Error::io(&self.path, "write", error),
        })
    }

    fn remove(&self) -> Result<()> {
        remove(&self.path).and_then(|()| remove(&self.etag))
    }

    fn put_in_place(&self, target: &Path) -> Result<()> {
        File::options()
            .write(true)
            .open(&self.path)
            .and_then(|file| file.sync_all())
            .and_then(|()| fs::rename(&self.path, target))
            .map_err(|e| Error::io(target, "put the finished file in place", e))?;
        sync_dir(target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")));
        self.remove()
    }
}

/// Removes a file if there is one.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(path, "remove", e)),
        _ => Ok(()),
    }
}

impl Events<'_> {
    /// Waits, unless it is asked to stop.
    fn sleep(&mut self, pause: Duration) -> Result<()> {
        let end = Instant::now() + pause;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.tell(FetchEvent::Waiting)?;
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        Ok(())
    }
}
