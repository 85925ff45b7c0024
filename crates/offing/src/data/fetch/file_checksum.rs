//! What a published file's bytes must add up to, in the form in which its publisher says so.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::by_hand::quoted;
use crate::checksum::hex;
use crate::error::{Error, Result};

/// A checksum of a whole file, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileChecksum {
    /// SHA-256: D4RL's files, and large files of hubs.
    Sha256(String),
    /// MD5, which NeoRL-2's authors published: it finds accidents, not forgeries.
    Md5(String),
    /// Git's name of a file: SHA-1 of its length and content, which hubs give for small files.
    GitBlob(String),
}

impl FileChecksum {
    /// The digits.
    pub fn digits(&self) -> &str {
        match self {
            Self::Sha256(digits) | Self::Md5(digits) | Self::GitBlob(digits) => digits,
        }
    }

    /// What it is called.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sha256(_) => "SHA-256",
            Self::Md5(_) => "MD5",
            Self::GitBlob(_) => "Git's SHA-1",
        }
    }

    /// The digits of the same kind for a file on this machine.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn of_file(&self, path: &Path) -> Result<String> {
        match self {
            Self::Sha256(_) => digest(Sha256::new(), path),
            Self::Md5(_) => digest(Md5::new(), path),
            Self::GitBlob(_) => {
                let bytes = std::fs::metadata(path).map_err(|e| Error::io(path, "read", e))?.len();
                digest(Sha1::new().chain_update(format!("blob {bytes}\0")), path)
            }
        }
    }

    /// The command by which a user compares a file with it.
    pub(super) fn command(&self, path: &Path) -> String {
        let (file, digits) = (path.display(), self.digits());
        let line = quoted(format!("{digits}  {file}"));
        match self {
            Self::Sha256(_) => format!("echo {line} | sha256sum -c"),
            Self::Md5(_) => format!("echo {line} | md5sum -c"),
            Self::GitBlob(_) => format!("test $(git hash-object {}) = {digits}", quoted(file)),
        }
    }
}

fn digest(mut hash: impl Digest, path: &Path) -> Result<String> {
    let cannot = |e| Error::io(path, "read", e);
    let mut file = File::open(path).map_err(cannot)?;
    let mut part = vec![0; 1 << 20];
    loop {
        match file.read(&mut part).map_err(cannot)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&part[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_the_one_of_the_command_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a b");
        std::fs::write(&path, "hello\n").unwrap();
        // sha256sum, md5sum and git hash-object of `hello` and a line feed.
        for checksum in [
            FileChecksum::Sha256("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03".into()),
            FileChecksum::Md5("b1946ac92492d2347c6235b4d2611184".into()),
            FileChecksum::GitBlob("ce013625030ba8dba906f756967f9e9ca394464a".into()),
        ] {
            assert_eq!(checksum.of_file(&path).unwrap(), checksum.digits());
            let command = checksum.command(Path::new("a b"));
            assert!(command.contains(checksum.digits()) && command.contains("a b'"), "{command}");
        }
    }
}
