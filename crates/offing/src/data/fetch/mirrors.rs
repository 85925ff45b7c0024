//! Other places of published files: which prefixes of addresses are replaced by which, from a settings file and from arguments.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result, bad_file, invalid};

/// The settings file in offing's home.
pub const MIRRORS_FILE: &str = "mirrors.toml";

/// Replacements of prefixes of addresses, in the order in which they are tried.
///
/// ```
/// use offing::data::fetch::Mirrors;
/// let mirrors = Mirrors::default().with("https://a.org/=https://b.org/copy/").unwrap();
/// assert_eq!(mirrors.sources("https://a.org/x.hdf5"), ["https://b.org/copy/x.hdf5", "https://a.org/x.hdf5"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrors {
    rules: Vec<(String, String)>,
}

impl Mirrors {
    /// Reads the settings file, a table of prefixes with a list of replacements each; none where there is no such file.
    ///
    /// # Errors
    /// A file that cannot be read or is not such a table.
    pub fn read(path: &Path) -> Result<Self> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(e) => return Err(Error::io(path, "read", e)),
        };
        let table: BTreeMap<String, Vec<String>> = toml::from_str(&text).map_err(|e| {
            let line = e.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            let why = e.message().replace('\n', " ");
            bad_file!(
                path,
                "line {line}: {why}; wanted lines such as \"https://a.org/\" = [\"https://b.org/copy/\"]"
            )
        })?;
        let mut rules = Vec::new();
        for (prefix, places) in table {
            for place in places {
                for address in [&prefix, &place] {
                    check_address(address).map_err(|e| bad_file!(path, "{e}"))?;
                }
                rules.push((prefix.clone(), place));
            }
        }
        // What is said of a longer prefix is meant more exactly. The sort keeps the order of each list.
        rules.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Ok(Self { rules })
    }

    /// Adds `PREFIX=ADDRESS`, tried after those added so and before those of the file.
    ///
    /// # Errors
    /// Anything else.
    pub fn with(self, rule: &str) -> Result<Self> {
        let parts = rule.find("=http").map(|at| (&rule[..at], &rule[at + 1..]));
        let Some((prefix, place)) = parts.filter(|(a, b)| check_address(a).and(check_address(b)).is_ok())
        else {
            return Err(invalid!(
                "wanted a mirror as PREFIX=ADDRESS, both beginning with http:// or https://, found `{}`",
                rule.escape_debug()
            ));
        };
        let mut rules = self.rules;
        rules.push((prefix.into(), place.into()));
        Ok(Self { rules })
    }

    /// These first, then `others`.
    #[must_use]
    pub fn before(mut self, others: Self) -> Self {
        self.rules.extend(others.rules);
        self
    }

    /// The addresses to try for one address, which comes last.
    pub fn sources(&self, address: &str) -> Vec<String> {
        let replaced =
            |(prefix, place): &(String, String)| Some(format!("{place}{}", address.strip_prefix(prefix)?));
        let mut sources: Vec<String> = self.rules.iter().filter_map(replaced).collect();
        sources.push(address.into());
        sources
    }
}

/// Refuses what cannot be an address to fetch from.
pub(super) fn check_address(address: &str) -> Result<()> {
    let web = ["http://", "https://"]
        .iter()
        .any(|scheme| address.len() > scheme.len() && address.starts_with(scheme));
    if web && !address.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Ok(());
    }
    Err(invalid!(
        "wanted an address that begins with http:// or https://, found `{}`",
        address.escape_debug()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_prefixes_come_first_and_lists_keep_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(MIRRORS_FILE);
        assert_eq!(Mirrors::read(&path).unwrap(), Mirrors::default());
        let text = "\"http://a/\" = [\"http://b/\", \"http://c/\"]\n\"http://a/x/\" = [\"https://d/\"]\n";
        std::fs::write(&path, text).unwrap();
        let mirrors =
            Mirrors::default().with("http://a/=http://e/").unwrap().before(Mirrors::read(&path).unwrap());
        let wanted = ["http://e/x/y", "https://d/y", "http://b/x/y", "http://c/x/y", "http://a/x/y"];
        assert_eq!(mirrors.sources("http://a/x/y"), wanted);
        assert_eq!(mirrors.sources("http://z/y"), ["http://z/y"]);
    }

    #[test]
    fn a_wrong_mirror_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(MIRRORS_FILE);
        for (text, wanted) in [
            ("\"http://a/\" = 3", "line 1: "),
            ("\"http://a/\" = [\"file:///etc\"]", "found `file:///etc`"),
            ("\"http://a/\" = [\"http://b c/\"]", "found `http://b c/`"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Mirrors::read(&path).unwrap_err().to_string();
            assert!(
                error.contains(wanted) && error.contains("mirrors.toml") && !error.contains('\n'),
                "{error}"
            );
        }
        for rule in ["", "http://a/", "a=http://b/", "http://a/=ftp://b/"] {
            assert!(
                Mirrors::default().with(rule).unwrap_err().to_string().contains("PREFIX=ADDRESS"),
                "{rule}"
            );
        }
    }
}
