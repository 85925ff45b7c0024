//! The words that readers share: names, shapes and errors of other libraries, safe to print in one line.

use std::path::Path;

pub(super) use crate::error::escaped;
use crate::error::{Error, Result, bad_file};

/// (1000, 17) as Python would print it.
pub(super) fn show_shape(shape: &[usize]) -> String {
    let parts: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("({}{})", parts.join(", "), if shape.len() == 1 { "," } else { "" })
}

/// A third party's message, without line breaks and not longer than a terminal line or two.
pub(super) fn one_line(message: impl std::fmt::Display) -> String {
    let flat = escaped(&message.to_string().split_whitespace().collect::<Vec<_>>().join(" "));
    match flat.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", &flat[..end]),
        None => flat,
    }
}

/// The first few of the names found. A damaged file may hold anything as a name.
pub(super) fn some_names<S: AsRef<str>>(names: &[S]) -> String {
    const FEW: usize = 12;
    let shown = |name: &S| escaped(name.as_ref()).chars().take(40).collect::<String>();
    let some: Vec<String> = names.iter().take(FEW).map(shown).collect();
    match names.len() {
        0 => "nothing".into(),
        n => format!("only {}{}", some.join(", "), if n > FEW { ", …" } else { "" }),
    }
}

/// A file that breaks off or does not follow its own format, such as an "HDF5 file".
pub(super) fn damaged(path: &Path, kind: &str, error: impl std::fmt::Display) -> Error {
    let why = one_line(error);
    bad_file!(path, "wanted a complete {kind}, found a damaged or truncated one ({why}); get it again")
}

/// A key or column whose content contradicts its format.
pub(super) fn damaged_key(path: &Path, key: &str, wanted: &str, found: impl std::fmt::Display) -> Error {
    let hint = "the file is damaged or of another kind: write or get it again";
    Error::key(path, escaped(key), wanted, one_line(found), hint)
}

/// A writer of another library failed.
pub(super) fn cannot_write(path: &Path, error: impl std::fmt::Display) -> Error {
    bad_file!(path, "cannot write it: {}", one_line(error))
}

/// Half precision is too coarse for states, so readers refuse it.
pub(super) fn float16(path: &Path, key: &str) -> Error {
    let hint = "float16 is not supported; rewrite as float32";
    Error::key(path, escaped(key), "float32 or float64", "float16", hint)
}

/// Turns 0 and 1 into flags. `place` says where a row is, for the error about another value.
pub(super) fn flags<C: FromIterator<bool>>(
    path: &Path,
    key: &str,
    values: impl IntoIterator<Item = f64>,
    place: impl Fn(usize) -> String,
) -> Result<C> {
    let flag = |(row, value): (usize, f64)| match value {
        0.0 => Ok(false),
        1.0 => Ok(true),
        _ => {
            let hint = "store flags as booleans or as 0 and 1";
            Err(Error::key(path, escaped(key), "0 or 1", format!("{value} in {}", place(row)), hint))
        }
    };
    values.into_iter().enumerate().map(flag).collect()
}
