//! The message when a file could not be fetched: what was wanted, what was found, and the exact command that does it by hand.

use std::path::Path;

use super::RemoteFile;
use crate::error::{Error, invalid};

/// What is said when every source of a file has failed. `found` is what each of them answered.
pub(super) fn cannot_fetch(file: &RemoteFile, target: &Path, kept: u64, found: &str) -> Error {
    let (name, address) = (&file.name, &file.address);
    let bytes = file.bytes.map_or(String::new(), |bytes| format!(" ({bytes} bytes)"));
    let kept = match kept {
        0 => String::new(),
        kept => format!("; {kept} bytes are kept and the same command goes on from there"),
    };
    let place = quoted(target.display());
    let check = file.checksum.command(target);
    invalid!(
        "cannot fetch {name}: wanted it{bytes} from {address}, found {found}{kept}; by hand: `curl -L --create-dirs -o {place} \
         {address} && {check}`, or name another place with --mirror or --url"
    )
}

/// What is said when a hub's list of files could not be had. `id` holds only letters, digits and `/._-`.
pub(super) fn cannot_list(id: &str, target: &Path, address: &str, found: &str) -> Error {
    let root = target.ancestors().nth(id.split('/').count()).unwrap_or(target);
    let root = if target.ends_with(id) { root } else { Path::new("SOME_DIRECTORY") };
    let place = match target.ends_with(id) {
        true => String::new(),
        false => format!(" and move SOME_DIRECTORY/{id} to {}", quoted(target.display())),
    };
    invalid!(
        "cannot fetch {id}: wanted its list of files from {address}, found {found}; by hand, with Minari: \
         `MINARI_DATASETS_PATH={} minari download {id}`{place}, or name another place with --mirror",
        quoted(root.display())
    )
}

/// A path or another text as a word for a shell.
pub(super) fn quoted(text: impl std::fmt::Display) -> String {
    let text = text.to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,@%=:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// An address for messages: a user's name and password in it are nobody else's business.
pub(super) fn shown(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.into() };
    let host_end = rest.find('/').unwrap_or(rest.len());
    match rest[..host_end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => address.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell_and_addresses_for_messages() {
        assert_eq!(quoted("/a/b-c.hdf5"), "/a/b-c.hdf5");
        assert_eq!(quoted("/my data/it's"), r"'/my data/it'\''s'");
        assert_eq!(shown("https://me:secret@a.org/x@y"), "https://a.org/x@y");
        assert_eq!(shown("https://a.org/x@y"), "https://a.org/x@y");
    }

    #[test]
    fn minaris_own_command_puts_the_set_where_offing_looks() {
        let text = cannot_list(
            "mujoco/hopper/medium-v0",
            Path::new("/m/mujoco/hopper/medium-v0"),
            "https://h/",
            "x",
        );
        let text = text.to_string();
        assert!(text.contains("`MINARI_DATASETS_PATH=/m minari download mujoco/hopper/medium-v0`"), "{text}");
        let text = cannot_list("mujoco/hopper/medium-v0", Path::new("/else"), "https://h/", "x").to_string();
        assert!(text.contains("move SOME_DIRECTORY/mujoco/hopper/medium-v0 to /else"), "{text}");
    }
}
