//! What separates the columns of a text table: a comma, a semicolon or a tab, by its first line.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::has_extension;
use crate::error::{Error, Result, bad_file};

/// Separators with what messages call them.
const KNOWN: [(u8, &str); 3] = [(b',', "commas"), (b';', "semicolons"), (b'\t', "tabs")];
/// Longer first lines are judged by this many bytes.
const LONGEST: u64 = 1 << 20;

/// The one separator that the first line has outside quotes. In a `.tsv` file tabs come first, and the others may stand
/// in names.
pub(super) fn separator(path: &Path) -> Result<u8> {
    let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
    let mut head = Vec::new();
    file.take(LONGEST).read_to_end(&mut head).map_err(|e| Error::io(path, "read", e))?;
    let counts = count(&head);
    let found: Vec<(u8, &str)> =
        KNOWN.into_iter().zip(counts).filter(|(_, count)| *count > 0).map(|(known, _)| known).collect();
    match found.as_slice() {
        // A single column: anything will do.
        [] => Ok(b','),
        [(one, _)] => Ok(*one),
        [.., (b'\t', _)] if has_extension(path, &["tsv"]) => Ok(b'\t'),
        several => {
            let words: Vec<&str> = several.iter().map(|(_, word)| *word).collect();
            Err(bad_file!(
                path,
                "wanted one kind of separator in the first line, found {}; put names that hold one in quotes, or rename \
                 these columns",
                words.join(" and ")
            ))
        }
    }
}

/// How often each separator stands in the first line that is not blank, outside quotes.
fn count(head: &[u8]) -> [usize; KNOWN.len()] {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let (mut counts, mut quoted, mut starts, mut blank) = ([0; KNOWN.len()], false, true, true);
    for &byte in head {
        match byte {
            b'\n' | b'\r' if !quoted && !blank => break,
            b'\n' | b'\r' if !quoted => continue,
            // A quote opens only at the start of a field; `5" pipe` is a name. Doubled inside, it closes and opens.
            b'"' if quoted => (quoted, starts) = (false, true),
            b'"' if starts => (quoted, starts) = (true, false),
            _ if quoted => (),
            _ => {
                let known = KNOWN.iter().position(|(separator, _)| *separator == byte);
                known.into_iter().for_each(|at| counts[at] += 1);
                starts = known.is_some();
            }
        }
        blank = false;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_tells_what_separates_columns() {
        for (head, wanted) in [
            ("a,b,c\n1;2;3", [2, 0, 0]),
            ("a;b\r\n1,5;2", [0, 1, 0]),
            ("\u{feff}a\tb\n", [0, 0, 1]),
            ("\n\r\na;b\n", [0, 1, 0]),
            ("\u{feff}\"a,x\";b\n", [0, 1, 0]),
            ("\"a\n,\";b\n", [0, 1, 0]),
            ("\"a \"\", x\";b", [0, 1, 0]),
            ("5\" pipe,b,c", [2, 0, 0]),
            ("a, x;b", [1, 1, 0]),
            ("alone", [0, 0, 0]),
            ("", [0, 0, 0]),
        ] {
            assert_eq!(count(head.as_bytes()), wanted, "{head:?}");
        }
    }
}
