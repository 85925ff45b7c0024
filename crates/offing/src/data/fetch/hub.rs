//! Minari's hub: which files a dataset has, how long they are, and their checksums.
//!
//! Minari keeps its datasets in repositories of Hugging Face, one for each first word of an id (`minari/storage/remotes/huggingface.py`):
//! `mujoco/hopper/medium-v0` is the directory `hopper/medium-v0` of `farama-minari/mujoco`. The hub's list of a directory has SHA-256
//! of large files and Git's SHA-1 of small ones.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::Deserialize;

use super::by_hand::shown;
use super::download::{Downloader, retry};
use super::http::{Attempt, Failure, Part};
use super::mirrors::check_address;
use super::{FileChecksum, RemoteFile};
use crate::error::{Result, invalid};

const HUB: &str = "https://huggingface.co";
/// The account under which Minari publishes.
const OWNER: &str = "farama-minari";
/// The longest page of a list that is read, in bytes, and the most pages and files.
const LONGEST_LIST: usize = 16 << 20;
const MOST_PAGES: usize = 100;
const MOST_FILES: usize = 20_000;

/// A dataset on the hub: the repository and the directory in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HubDirectory {
    repository: String,
    directory: String,
}

/// A file or directory in the hub's list.
#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<LargeFile>,
}

#[derive(Debug, Deserialize)]
struct LargeFile {
    oid: String,
    size: u64,
}

impl HubDirectory {
    /// The place of a Minari id.
    ///
    /// # Errors
    /// An id that could be no directory, such as one with `..` in it.
    pub(super) fn of_minari(id: &str) -> Result<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let wrong = || {
            let id = id.escape_debug();
            invalid!("wanted an id of Minari such as mujoco/hopper/medium-v0, found `{id}`")
        };
        if !id.chars().all(plain) || relative_path(id).is_none() {
            return Err(wrong());
        }
        let (repository, directory) = id.split_once('/').ok_or_else(wrong)?;
        Ok(Self { repository: format!("{OWNER}/{repository}"), directory: directory.into() })
    }

    /// The address of the list of files.
    pub(super) fn list_address(&self) -> String {
        format!("{HUB}/api/datasets/{}/tree/main/{}?recursive=true", self.repository, self.directory)
    }

    /// Its files with their places below the directory; `Err` says what was found instead of the list.
    pub(super) fn list(&self, downloader: &mut Downloader<'_, '_>) -> Attempt<Vec<(PathBuf, RemoteFile)>> {
        let mut files = Vec::new();
        let mut next = Some(self.list_address());
        for _ in 0..MOST_PAGES {
            let Some(address) = next else { break };
            let page;
            (page, next) = page_of(downloader, &address)?;
            let entries: Vec<Entry> = serde_json::from_str(&page).map_err(|_| {
                Failure::Source(format!("something that is not a list of files: {}", start_of(&page)))
            })?;
            for entry in entries.into_iter().filter(|entry| entry.kind == "file") {
                files.push(self.file(entry)?);
            }
            if files.len() > MOST_FILES {
                return Err(Failure::Source(format!("a list of more than {MOST_FILES} files")));
            }
        }
        let places: BTreeSet<&PathBuf> = files.iter().map(|(place, _)| place).collect();
        if places.len() < files.len() {
            return Err(Failure::Source("a list that names a file twice".into()));
        }
        if next.is_some() || files.is_empty() {
            return Err(Failure::Source("a list without files, or without end".into()));
        }
        Ok(files)
    }

    fn file(&self, entry: Entry) -> Attempt<(PathBuf, RemoteFile)> {
        let below = entry.path.strip_prefix(&self.directory).and_then(|rest| rest.strip_prefix('/'));
        let Some(place) = below.and_then(relative_path) else {
            let name = entry.path.escape_debug();
            return Err(Failure::Source(format!(
                "a file `{name}` in the list, which belongs nowhere below the dataset"
            )));
        };
        let (bytes, checksum) = match entry.lfs {
            Some(large) => {
                let digits = large.oid.strip_prefix("sha256:").unwrap_or(&large.oid).to_ascii_lowercase();
                (large.size, FileChecksum::Sha256(digits))
            }
            None => (entry.size, FileChecksum::GitBlob(entry.oid.to_ascii_lowercase())),
        };
        let digits = checksum.digits();
        let length = if matches!(checksum, FileChecksum::Sha256(_)) { 64 } else { 40 };
        if digits.len() != length || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Failure::Source(format!("no checksum of {} in the list", entry.path.escape_debug())));
        }
        let address =
            format!("{HUB}/datasets/{}/resolve/main/{}", self.repository, percent_encoded(&entry.path));
        Ok((place, RemoteFile { name: entry.path, address, bytes: Some(bytes), checksum }))
    }
}

/// One page of a list and the address of the next, from the first source that has it.
fn page_of(downloader: &mut Downloader<'_, '_>, address: &str) -> Attempt<(String, Option<String>)> {
    let sources = downloader.mirrors.sources(address);
    let mut found = Vec::new();
    for source in &sources {
        let result = retry(downloader.patience, "the list of files", downloader.events, |_| {
            let answer = downloader.client.get(source, Part::default())?;
            let mut answer = answer.ok_or_else(|| Failure::Source("nothing".into()))?;
            if answer.is_page {
                return Err(Failure::Source("a web page (a login, or a network that wants one?)".into()));
            }
            Ok((answer.read_text(LONGEST_LIST)?, answer.next))
        });
        match result {
            Ok((page, next)) => {
                if let Some(next) = &next {
                    check_address(next).map_err(|e| Failure::Source(e.to_string()))?;
                }
                return Ok((page, next));
            }
            Err(Failure::Fatal(error)) => return Err(Failure::Fatal(error)),
            Err(Failure::Source(why) | Failure::Again { why, .. }) => {
                found.push(if sources.len() == 1 { why } else { format!("{why} at {}", shown(source)) });
            }
        }
    }
    Err(Failure::Source(found.join(", ")))
}

fn start_of(text: &str) -> String {
    text.chars().take(60).collect::<String>().escape_debug().to_string()
}

/// A name from the network as a path below some directory; `None` for one that would lead elsewhere or that a terminal would obey.
pub(super) fn relative_path(name: &str) -> Option<PathBuf> {
    const LONGEST: usize = 1000;
    let fine = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with(['.', ' '])
            && !part.contains(|c: char| c.is_control() || "\\:*?\"<>|".contains(c))
    };
    (name.len() <= LONGEST && name.split('/').all(fine)).then(|| name.split('/').collect())
}

fn percent_encoded(path: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._-~".contains(&b);
    path.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_minari_has_a_place_on_the_hub() {
        let set = HubDirectory::of_minari("mujoco/hopper/medium-v0").unwrap();
        let wanted = "https://huggingface.co/api/datasets/farama-minari/mujoco/tree/main/hopper/medium-v0?recursive=true";
        assert_eq!(set.list_address(), wanted);
        for wrong in [
            "",
            "hopper",
            "/etc/x-v0",
            "a/../b-v0",
            "a//b-v0",
            "a/b\n-v0",
            "a/b c-v0",
            "a/%2e%2e/b-v0",
            "../b-v0",
        ] {
            let error = HubDirectory::of_minari(wrong).unwrap_err().to_string();
            assert!(error.contains("an id of Minari") && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn names_from_the_network_stay_below_their_directory() {
        for fine in ["data/main_data.hdf5", "a", "data/part 1/Ω.arrow"] {
            assert_eq!(relative_path(fine), Some(PathBuf::from(fine)));
        }
        let long = "a/".repeat(600) + "b";
        for wrong in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a/./x",
            "a//b",
            "C:/x",
            r"..\x",
            "a\u{1b}[2J",
            "a/",
            ".git/x",
            &long,
        ] {
            assert_eq!(relative_path(wrong), None, "{wrong}");
        }
        assert_eq!(percent_encoded("data/part 1/Ω%.arrow"), "data/part%201/%CE%A9%25.arrow");
    }

    #[test]
    fn a_file_is_taken_with_the_checksum_that_the_hub_gives() {
        let set = HubDirectory::of_minari("a/b-v0").unwrap();
        let entry = |json: &str| set.file(serde_json::from_str(json).unwrap());
        let digits = "ab".repeat(32);
        let large = format!(
            r#"{{"type":"file","path":"b-v0/data/x.hdf5","size":9,"oid":"00","lfs":{{"oid":"{digits}","size":9,"pointerSize":1}}}}"#
        );
        let (place, file) = entry(&large).unwrap();
        assert_eq!((place, file.bytes), (PathBuf::from("data/x.hdf5"), Some(9)));
        assert_eq!(file.checksum, FileChecksum::Sha256(digits));
        assert_eq!(
            file.address,
            "https://huggingface.co/datasets/farama-minari/a/resolve/main/b-v0/data/x.hdf5"
        );
        for wrong in [
            r#"{"type":"file","path":"b-v0/data/x","size":9,"oid":"zz"}"#,
            r#"{"type":"file","path":"b-v0/../../x","size":9,"oid":"0000000000000000000000000000000000000000"}"#,
            r#"{"type":"file","path":"other/x","size":9,"oid":"0000000000000000000000000000000000000000"}"#,
            r#"{"type":"file","path":"b-v01/x","size":9,"oid":"0000000000000000000000000000000000000000"}"#,
        ] {
            assert!(matches!(entry(wrong), Err(Failure::Source(_))), "{wrong}");
        }
    }
}
