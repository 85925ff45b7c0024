//! Fetches published datasets: D4RL's and NeoRL-2's files by their addresses, Minari's from its hub.
//!
//! A file is taken only with the length and checksum that its publisher gives, whichever mirror it comes from. It appears whole or not
//! at all; what has arrived of it stays beside it, and the next call goes on from there.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use offing::data::fetch::{FetchOptions, fetch};
//! # fn main() -> offing::Result<()> {
//! let hooks = offing::Hooks::new(".cache");
//! let fetched = fetch(&hooks.catalogue, "hopper-medium-v2", &FetchOptions::default(), &mut |_| ControlFlow::Continue(()))?;
//! println!("{}", fetched.path.display());
//! # Ok(())
//! # }
//! ```

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

mod by_hand;
mod download;
mod file_checksum;
mod http;
mod hub;
mod mirrors;
#[cfg(test)]
mod dataset_tests;
#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;

pub use file_checksum::FileChecksum;
pub use mirrors::{MIRRORS_FILE, Mirrors};

use super::catalogue::{Catalogue, is_versioned};
use super::neorl2::{self, NeoRl2File};
use super::published::PublishedFile;
use crate::checksum::short_hash;
use crate::error::{Error, Result, bad_file, invalid, nearest};
use crate::home::{Home, Lock};
use download::Downloader;
use http::{Client, Failure};
use hub::HubDirectory;

/// How to fetch.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Where to put the dataset instead of where offing finds it by its name. A file goes into a directory that exists.
    pub out: Option<PathBuf>,
    /// The one address to fetch from, for datasets of one file.
    pub url: Option<String>,
    /// Places to try before the published ones.
    pub mirrors: Mirrors,
    /// Replace what is there.
    pub force: bool,
    /// How long to wait, and how often to try.
    pub patience: Patience,
    /// Whether to go through the proxy that `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` name.
    pub environment_proxy: bool,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            out: None,
            url: None,
            mirrors: Mirrors::default(),
            force: false,
            patience: Patience::default(),
            environment_proxy: true,
        }
    }
}

/// How long to wait for a server, and how often to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The longest wait for a connection.
    pub connect: Duration,
    /// The longest wait for the next byte.
    pub stall: Duration,
    /// Failures in a row, without a new byte, after which a source is given up.
    pub tries: u32,
    /// The pause after the first failure; it doubles with each.
    pub pause: Duration,
    /// The longest pause, whatever a server asks for.
    pub longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            stall: Duration::from_secs(30),
            tries: 4,
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
        }
    }
}

/// What happens while a dataset is fetched.
#[derive(Debug)]
pub enum FetchEvent<'a> {
    /// Something a user should know, one line.
    Note(String),
    /// More of a file has arrived.
    Progress {
        /// The file's name.
        name: &'a str,
        /// Bytes so far, with those of earlier calls.
        bytes: u64,
        /// Bytes in the end, where they are known.
        total: Option<u64>,
    },
    /// Nothing has; whoever is told can still ask to stop.
    Waiting,
}

/// A dataset that is where it belongs.
#[derive(Clone, Debug, Serialize)]
pub struct Fetched {
    /// Its id.
    pub id: String,
    /// Where it is: a file, or a directory of Minari's.
    pub path: PathBuf,
    /// Length of all its files.
    pub bytes: u64,
    /// The address of the file, or of the list of files.
    pub address: String,
    /// Whether this call brought it; otherwise it was there.
    pub fresh: bool,
}

/// A file to fetch.
#[derive(Clone, Debug)]
struct RemoteFile {
    /// Its name, for messages.
    name: String,
    address: String,
    bytes: Option<u64>,
    checksum: FileChecksum,
}

/// Who is told what happens, and may stop it.
struct Events<'a>(&'a mut dyn FnMut(FetchEvent<'_>) -> ControlFlow<()>);

impl Events<'_> {
    fn tell(&mut self, event: FetchEvent<'_>) -> Result<()> {
        match (self.0)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Error::Stopped),
        }
    }

    fn note(&mut self, line: String) -> Result<()> {
        self.tell(FetchEvent::Note(line))
    }
}

/// A dataset that [`fetch`] knows without asking a hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Available {
    /// Its id.
    pub id: String,
    /// Its length in bytes, where it is known.
    pub bytes: Option<u64>,
    /// Its address.
    pub address: String,
}

/// D4RL's and NeoRL-2's datasets. Minari's are on its hub.
pub fn available() -> Vec<Available> {
    let d4rl = PublishedFile::all().map(|file| Available {
        id: file.id(),
        bytes: Some(file.bytes),
        address: file.address(),
    });
    let neorl2 = NeoRl2File::all().map(|file| {
        let bytes = file.known.map(|(bytes, _)| bytes);
        Available { id: file.id(), bytes, address: file.address() }
    });
    d4rl.chain(neorl2).collect()
}

/// Fetches a dataset by its id to where offing finds it by that id: a D4RL id (`hopper-medium-v2`), a Minari id
/// (`mujoco/hopper/medium-v0`) or a NeoRL-2 file (`neorl2:DMSD`). [`Error::Stopped`] if `on_event` breaks.
///
/// # Errors
/// An unknown id, or no source that has the dataset; the message then holds the command that fetches it by hand.
pub fn fetch(
    catalogue: &Catalogue,
    id: &str,
    options: &FetchOptions,
    on_event: &mut dyn FnMut(FetchEvent<'_>) -> ControlFlow<()>,
) -> Result<Fetched> {
    if let Some(url) = &options.url {
        mirrors::check_address(url)?;
    }
    let downloader = Downloader {
        client: Client::new(options.patience, options.environment_proxy),
        patience: options.patience,
        mirrors: &options.mirrors,
        events: &mut Events(on_event),
    };
    if let Some(file) = PublishedFile::of_id(id) {
        let checksum = FileChecksum::Sha256(file.sha256.into());
        let (name, bytes) = (file.name.to_string(), Some(file.bytes));
        let remote = RemoteFile { name, address: file.address(), bytes, checksum };
        return fetch_file(catalogue, id, &remote, &catalogue.d4rl_path(file), options, downloader);
    }
    if id.starts_with(neorl2::PREFIX) {
        let file = NeoRl2File::of_id(id)?;
        let (bytes, checksum) = match file.known {
            Some((bytes, sha256)) => (Some(bytes), FileChecksum::Sha256(sha256.into())),
            None => (None, FileChecksum::Md5(file.md5.into())),
        };
        let remote = RemoteFile { name: file.name(), address: file.address(), bytes, checksum };
        return fetch_file(catalogue, id, &remote, &catalogue.neorl2_path(file), options, downloader);
    }
    if id.contains('/') && is_versioned(id) {
        return fetch_minari(catalogue, id, options, downloader);
    }
    let known: Vec<String> = available().into_iter().map(|set| set.id).collect();
    let guess = nearest(id, &known).map_or(String::new(), |near| format!("did you mean `{near}`? "));
    let hint = format!(
        "{guess}`offing data fetch --list` shows every id; Minari's are like mujoco/hopper/medium-v0"
    );
    Err(Error::Unknown { kind: "published dataset", name: id.escape_debug().to_string(), hint })
}

fn fetch_file(
    catalogue: &Catalogue,
    id: &str,
    file: &RemoteFile,
    usual: &Path,
    options: &FetchOptions,
    mut downloader: Downloader<'_, '_>,
) -> Result<Fetched> {
    let target = match &options.out {
        Some(out) if out.is_dir() => out.join(&file.name),
        Some(out) => out.clone(),
        None => usual.to_path_buf(),
    };
    let _lock = lock(&catalogue.home, &target, downloader.events)?;
    let bytes = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    if target.exists() && !options.force {
        let right = target.is_file()
            && file.bytes.is_none_or(|wanted| wanted == bytes(&target))
            && file.checksum.of_file(&target)? == file.checksum.digits();
        if !right {
            return Err(bad_file!(
                &target,
                "wanted to put {} here, found another file of this name; move it away, replace it with --force, or choose \
                 another place with --out",
                file.name
            ));
        }
        let (id, bytes, address) = (id.into(), bytes(&target), file.address.clone());
        return Ok(Fetched { id, path: target, bytes, address, fresh: false });
    }
    let address = downloader.bring(file, &target, options.url.as_deref())?;
    Ok(Fetched { id: id.into(), bytes: bytes(&target), path: target, address, fresh: true })
}

fn fetch_minari(
    catalogue: &Catalogue,
    id: &str,
    options: &FetchOptions,
    mut downloader: Downloader<'_, '_>,
) -> Result<Fetched> {
    let set = HubDirectory::of_minari(id)?;
    if options.url.is_some() {
        return Err(invalid!(
            "{id} has several files, so --url cannot name them; use --mirror PREFIX=ADDRESS"
        ));
    }
    let name = id.rsplit('/').next().unwrap_or(id);
    let target = match &options.out {
        Some(out) if out.is_dir() && !is_minari(out) => out.join(name),
        Some(out) => out.clone(),
        None => catalogue.minari.join(id),
    };
    let beside = |ending: &str| target.with_file_name(format!(".{name}.{ending}"));
    let (staged, replaced) = (beside("partial"), beside("replaced"));
    let _lock = lock(&catalogue.home, &target, downloader.events)?;
    let address = set.list_address();
    if target.exists() && !is_minari(&target) {
        let what =
            "wanted a Minari dataset or nothing here, found something else; choose another place with --out";
        return Err(Error::file(&target, what));
    }
    if target.exists() && !options.force {
        downloader.events.note(format!("{} is there already; --force fetches it again", target.display()))?;
        let bytes =
            walk(&target).iter().filter_map(|path| fs::metadata(path).ok()).map(|meta| meta.len()).sum();
        return Ok(Fetched { id: id.into(), path: target, bytes, address, fresh: false });
    }
    let files = set.list(&mut downloader).map_err(|failure| match failure {
        Failure::Fatal(error) => error,
        Failure::Source(why) | Failure::Again { why, .. } => {
            by_hand::cannot_list(id, &target, &address, &why)
        }
    })?;
    for (place, file) in &files {
        let staged = staged.join(place);
        let there = fs::metadata(&staged).is_ok_and(|meta| Some(meta.len()) == file.bytes);
        if !there || file.checksum.of_file(&staged)? != file.checksum.digits() {
            downloader.bring(file, &staged, None)?;
        }
    }
    // An earlier call may have fetched files that the hub has no longer.
    for path in walk(&staged) {
        if !files.iter().any(|(place, _)| staged.join(place) == path) {
            fs::remove_file(&path).map_err(|e| Error::io(&path, "remove", e))?;
        }
    }
    let old = target.exists();
    let cannot = |e| Error::io(&target, "put the finished dataset in place", e);
    if old {
        fs::rename(&target, &replaced).map_err(cannot)?;
    }
    fs::rename(&staged, &target).map_err(cannot)?;
    if old {
        fs::remove_dir_all(&replaced).map_err(|e| Error::io(&replaced, "remove", e))?;
    }
    let bytes = files.iter().filter_map(|(_, file)| file.bytes).sum();
    Ok(Fetched { id: id.into(), path: target, bytes, address, fresh: true })
}

/// Whether a directory is a dataset of Minari's.
fn is_minari(dir: &Path) -> bool {
    ["data/main_data.hdf5", "data/metadata.json"].iter().any(|file| dir.join(file).is_file())
}

/// Every file below a directory.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let inside = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    inside.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Holds a target against other processes that fetch it. Waits for them, as they may well bring what is wanted.
fn lock(home: &Home, target: &Path, events: &mut Events<'_>) -> Result<Lock> {
    let whole = std::path::absolute(target).map_err(|e| Error::io(target, "find the directory", e))?;
    let name = format!("fetch-{}", short_hash(whole.as_os_str().as_encoded_bytes()));
    let mut told = false;
    loop {
        if let Some(lock) = home.try_lock("datasets", &name)? {
            return Ok(lock);
        }
        if !std::mem::replace(&mut told, true) {
            events.note(format!("another process fetches {}; waiting for it", target.display()))?;
        }
        events.tell(FetchEvent::Waiting)?;
        std::thread::sleep(Duration::from_millis(100));
    }
}
