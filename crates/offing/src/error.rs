//! The library's one error type. Every message says what was wanted, what was found and what to do.

use std::fmt;
use std::path::{Path, PathBuf};

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// [`Error::Invalid`] with a formatted message: wanted, found, what to do, in one line.
macro_rules! invalid {
    ($($message:tt)*) => { $crate::error::Error::Invalid(format!($($message)*)) };
}
pub(crate) use invalid;

/// [`Error::File`] with a formatted message.
macro_rules! bad_file {
    ($path:expr, $($message:tt)*) => { $crate::error::Error::file($path, format!($($message)*)) };
}
pub(crate) use bad_file;

/// Refuses a setting unless `ok`.
pub(crate) fn ensure(ok: bool, key: &str, wanted: &str, found: impl std::fmt::Display) -> Result<()> {
    if ok { Ok(()) } else { Err(invalid!("{key}: wanted {wanted}, found {found}")) }
}

/// Returns [`Error::Invalid`] with a formatted message unless the condition holds.
macro_rules! require {
    ($holds:expr, $($message:tt)*) => {
        let holds: bool = $holds;
        if !holds {
            return Err($crate::error::invalid!($($message)*));
        }
    };
}
pub(crate) use require;

/// What can go wrong, worded for the person who typed the command.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read, written, locked or renamed.
    Io {
        /// The file or directory concerned.
        path: PathBuf,
        /// What was attempted, as a verb phrase ("read", "create the lock file").
        action: &'static str,
        /// The operating system's answer. (Not called `source`: it is part of this message already.)
        cause: std::io::Error,
    },
    /// A file is not what its name or the caller promised: damaged, foreign, or of another layout.
    File {
        /// The file concerned.
        path: PathBuf,
        /// Wanted, found, and what to do, in one line.
        what: String,
    },
    /// A key or column of a file is missing or has the wrong type, shape or content.
    Key {
        /// The file concerned.
        path: PathBuf,
        /// Key, column or attribute inside the file.
        key: String,
        /// What would have been right.
        wanted: String,
        /// What is there instead.
        found: String,
        /// What to do about it.
        hint: String,
    },
    /// A name (dataset, task, flavour, policy…) is not known.
    Unknown {
        /// Kind of thing asked for.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// The known names, or how to get the missing thing.
        hint: String,
    },
    /// Whoever watches asked to stop; what was done so far is kept.
    Stopped,
    /// Anything else that is wrong with a request, already one clear line.
    Invalid(String),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = match self {
            Self::Io { path, action, cause } => format!("{}: cannot {action}: {cause}", path.display()),
            Self::File { path, what } => format!("{}: {what}", path.display()),
            Self::Key { path, key, wanted, found, hint } => {
                format!("{}: `{key}`: wanted {wanted}, found {found}; {hint}", path.display())
            }
            Self::Unknown { kind, name, hint } => format!("unknown {kind} `{name}`; {hint}"),
            Self::Stopped => "stopped on request; the same command goes on from here".into(),
            Self::Invalid(line) => line.clone(),
        };
        // Paths, keys and cells may come from a stranger's file.
        f.write_str(&escaped(&line))
    }
}

/// Text as a terminal may show it: control characters, and those that turn the direction of reading, are written as escapes.
/// Whatever comes from a file, a name or standard input goes through here before it is printed.
///
/// ```
/// assert_eq!(offing::error::escaped("a\u{1b}[2Jb\n"), "a\\u{1b}[2Jb\\n");
/// ```
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

/// The name among `known` that `name` was probably meant to be, if any is like it.
///
/// ```
/// assert_eq!(offing::error::nearest("summo", &["sumo", "count"]), Some("sumo"));
/// assert_eq!(offing::error::nearest("xyz", &["sumo", "count"]), None);
/// ```
pub fn nearest<'a, S: AsRef<str>>(name: &str, known: &'a [S]) -> Option<&'a str> {
    // Below this, names share a few letters by chance and a guess would mislead.
    const ALIKE: f64 = 0.7;
    let likeness = |k: &&str| strsim::jaro_winkler(k, name);
    known
        .iter()
        .map(AsRef::as_ref)
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|k| likeness(k) > ALIKE)
}

/// `did you mean …? known: …`, the end of every message about a wrong name.
pub fn hint<S: AsRef<str>>(name: &str, known: &[S]) -> String {
    let guess = nearest(name, known).map(|n| format!("did you mean `{n}`? ")).unwrap_or_default();
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    format!("{guess}known: {}", known.join(", "))
}

impl Error {
    /// A name that is not among `known`; the message says which one is nearest.
    pub fn unknown<S: AsRef<str>>(kind: &'static str, name: &str, known: &[S]) -> Self {
        Self::Unknown { kind, name: name.into(), hint: hint(name, known) }
    }

    /// Whether a disk is full, or a file may not grow. Nothing that was written before is lost then.
    pub fn is_out_of_space(&self) -> bool {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Self::Io { cause, .. } if matches!(cause.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }

    /// An I/O error at `path` while trying to `action`.
    pub fn io(path: impl AsRef<Path>, action: &'static str, cause: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().to_path_buf(), action, cause }
    }

    /// A file that is not what it should be.
    pub fn file(path: impl AsRef<Path>, what: impl Into<String>) -> Self {
        Self::File { path: path.as_ref().to_path_buf(), what: what.into() }
    }

    /// A key inside a file that is missing or wrong.
    pub fn key(
        path: impl AsRef<Path>,
        key: impl Into<String>,
        wanted: impl Into<String>,
        found: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Key {
            path: path.as_ref().to_path_buf(),
            key: key.into(),
            wanted: wanted.into(),
            found: found.into(),
            hint: hint.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_answered_with_the_nearest_only_when_there_is_one() {
        let known = ["hopper-medium", "hopper-medium-replay", "halfcheetah-medium", "k"];
        for (name, wanted) in [
            ("hoper-medium", Some("hopper-medium")),
            ("hopper-medium-rplay", Some("hopper-medium-replay")),
            ("cheetah-medium", Some("halfcheetah-medium")),
            ("kk", Some("k")),
            ("nonsense", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &known), wanted, "{name}");
        }
        let error = Error::unknown("dataset", "hoper-medium", &known).to_string();
        assert!(error.starts_with("unknown dataset `hoper-medium`; did you mean `hopper-medium`? known: "));
        assert!(Error::unknown("thing", "x", &["abc"]).to_string().ends_with("`x`; known: abc"));
    }
}
