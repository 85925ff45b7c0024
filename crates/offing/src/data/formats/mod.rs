//! Dataset formats: one table that reading, writing, error messages and the command line share.
//!
//! A format is a file in this directory that defines a [`Format`] constant, and a line in [`Format::all`].

mod actions;
mod arrays;
mod arrow_file;
mod cells;
mod csv;
mod d4rl;
mod d4rl_policy;
mod guess_columns;
mod hdf5;
mod hdf5_elsewhere;
mod hdf5_tiles;
mod hdf5_write;
mod lerobot;
mod minari;
mod minari_parts;
mod minari_write;
mod neorl;
mod npy;
mod npz;
mod observations;
mod ogbench;
mod parquet;
mod parquet_arrays;
mod parquet_footer;
mod parquet_kinds;
mod parquet_pages;
mod parquet_write;
mod robomimic;
mod separator;
mod table;
mod text_numbers;

use std::cell::OnceCell;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::contain::contain;
use super::dataset::Dataset;
use super::options::ReadOptions;
use crate::error::{Error, Result, bad_file};
pub use actions::ActionFile;
pub use d4rl_policy::recorded_policy;
use hdf5::{Hdf5, SIGNATURE};
pub use npy::{read_npy, write_npy};
pub use observations::Observations;

/// A dataset format: how offing recognises, reads and writes it. Two formats are equal when their names are.
///
/// ```
/// use offing::data::Format;
/// assert_eq!(Format::of_target("logs.parquet".as_ref())?, Format::PARQUET);
/// assert!(Format::written().any(|format| format == Format::CSV));
/// # Ok::<(), offing::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Format {
    name: &'static str,
    /// What messages call it.
    title: &'static str,
    /// Endings of its files, the usual one first. None: it is a directory.
    extensions: &'static [&'static str],
    /// One transition a row in named columns, so that a column map applies.
    is_table: bool,
    recognises: fn(&Candidate) -> bool,
    read: fn(Candidate, &ReadOptions) -> Result<Dataset>,
    /// `None`: it is only read.
    write: Option<fn(&Dataset, &Path) -> Result<()>>,
    /// Where a row is, for a reader of the file.
    row_place: fn(&Path, usize) -> String,
}

impl Format {
    /// Every format, in the order in which [`read`] tries them: of those that share a file's ending the most general comes
    /// last, so D4RL's takes any HDF5 file that is not Minari's.
    pub fn all() -> &'static [Self] {
        const ALL: &[Format] = &[
            Format::LEROBOT,
            Format::MINARI,
            Format::ROBOMIMIC,
            Format::D4RL,
            Format::CSV,
            Format::PARQUET,
            Format::NEORL,
            Format::OGBENCH,
            Format::NPZ,
        ];
        ALL
    }

    /// The formats that offing also writes.
    pub fn written() -> impl DoubleEndedIterator<Item = Self> {
        Self::all().iter().copied().filter(|format| format.write.is_some())
    }

    /// The name on the command line and in messages.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The endings of its files, the usual one first; none when it is a directory.
    pub fn extensions(self) -> &'static [&'static str] {
        self.extensions
    }

    /// The format of that name.
    pub fn named(name: &str) -> Result<Self> {
        let names: Vec<&str> = Self::all().iter().map(|f| f.name).collect();
        let found = Self::all().iter().find(|f| f.name == name);
        found.copied().ok_or_else(|| Error::unknown("format", name, &names))
    }

    /// The format that the ending of a file to write asks for: the most general that has it. A name without an ending, or
    /// with a version as Minari's have (`medium-v0`), is a directory.
    pub fn of_target(path: &Path) -> Result<Self> {
        let fits = |f: &Self| match path.extension() {
            Some(_) => has_extension(path, f.extensions),
            None => f.extensions.is_empty() && path.file_name().is_some(),
        };
        Self::written().rev().find(fits).ok_or_else(|| {
            bad_file!(path, "wanted a name with {}, found another; rename the target", Self::endings())
        })
    }

    /// The ending that each format is written with, in words for help and messages.
    pub fn endings() -> String {
        let ending = |f: Self| match f.extensions {
            [] => Some(format!("no ending ({})", f.name)),
            [first, ..] if *first == f.name => Some(format!(".{first}")),
            // Another format may own the ending: then only its name asks for this one.
            [first, ..] if Self::written().any(|other| other.name == *first) => None,
            [first, ..] => Some(format!(".{first} ({})", f.name)),
        };
        either(Self::written().filter_map(ending))
    }

    pub(super) fn row_place(self, path: &Path, row: usize) -> String {
        (self.row_place)(path, row)
    }
}

impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Format {}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Reads the dataset at `path` in any of the formats of [`Format::all`]. The content decides which; only CSV, which has
/// no signature, needs its ending (`.csv`, `.tsv`). A Minari dataset may be given by its directory, its `data` directory
/// or its `main_data.hdf5`.
///
/// [`Dataset::reading`] reports how next observations were obtained and what was left out. Damaged, foreign and
/// incomplete files are errors that name file, key, what was wanted and what was found.
///
/// ```no_run
/// let data = offing::data::read("hopper_medium-v2.hdf5".as_ref(), &Default::default())?;
/// println!("{} transitions; {}", data.rows.len(), data.reading.next_obs);
/// # Ok::<(), offing::Error>(())
/// ```
pub fn read(path: &Path, options: &ReadOptions) -> Result<Dataset> {
    let candidate = Candidate::open(path)?;
    let format = Format::all().iter().find(|f| (f.recognises)(&candidate));
    let format = format.ok_or_else(|| candidate.not_a_dataset())?;
    if options.columns.is_some() && !format.is_table {
        // A column map has no effect on arrays that are found by their keys: it must not look as if it had.
        let tables = either(Format::all().iter().filter(|f| f.is_table).map(|f| f.title.into()));
        return Err(bad_file!(
            path,
            "wanted {tables} for a column map, found {}, whose arrays are known by their keys (D4RL's are observations, \
                 actions, rewards, terminals, next_observations, timeouts); leave the map out or rename the keys",
            format.title
        ));
    }
    contain(path, || (format.read)(candidate, options))
}

/// Writes `data` to `path` in the given format, which must be one of [`Format::written`].
pub fn write(data: &Dataset, path: &Path, format: Format) -> Result<()> {
    match format.write {
        Some(write) => write(data, path),
        None => {
            let names = either(Format::written().map(|f| f.name.into()));
            Err(bad_file!(path, "wanted a format that can be written, found {}; choose {names}", format.name))
        }
    }
}

/// The place of a row in a format without lines.
fn row_number(_: &Path, row: usize) -> String {
    format!("row {row}")
}

/// `a, b or c`.
fn either(words: impl Iterator<Item = String>) -> String {
    let mut words: Vec<String> = words.collect();
    match (words.pop(), words.join(", ")) {
        (Some(last), rest) if rest.is_empty() => last,
        (last, rest) => format!("{rest} or {}", last.unwrap_or_default()),
    }
}

/// Whether a path ends in one of the extensions, in capitals or not.
fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|e| extensions.iter().any(|known| e.eq_ignore_ascii_case(known)))
}

/// A file or directory about to be read: what formats recognise it by.
struct Candidate<'a> {
    path: &'a Path,
    is_dir: bool,
    /// The first bytes of a file.
    head: Vec<u8>,
    /// The file, once a format has asked for it. Opening looks through all of it, so formats share it.
    hdf5: OnceCell<Result<Hdf5<'a>>>,
}

impl<'a> Candidate<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let (is_dir, mut head) = (path.is_dir(), Vec::new());
        if !is_dir {
            let file = File::open(path).map_err(|e| Error::io(path, "read", e))?;
            file.take(512).read_to_end(&mut head).map_err(|e| Error::io(path, "read", e))?;
        }
        Ok(Self { path, is_dir, head, hdf5: OnceCell::new() })
    }

    /// Whether it is an HDF5 file with a dataset whose path satisfies `fits`.
    fn has_hdf5(&self, fits: impl Fn(&str) -> bool) -> bool {
        let file = || self.hdf5.get_or_init(|| Hdf5::open(self.path)).as_ref();
        self.starts_with(SIGNATURE) && file().is_ok_and(|file| file.names().iter().any(|name| fits(name)))
    }

    /// The HDF5 file that it is.
    fn into_hdf5(self) -> Result<Hdf5<'a>> {
        self.hdf5.into_inner().unwrap_or_else(|| Hdf5::open(self.path))
    }

    fn starts_with(&self, signature: &[u8]) -> bool {
        self.head.starts_with(signature)
    }

    fn is_html(&self) -> bool {
        let text = String::from_utf8_lossy(&self.head).to_ascii_lowercase();
        let text = text.trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t']);
        ["<!doctype", "<html", "<head", "<?xml", "<error"].iter().any(|tag| text.starts_with(tag))
    }

    fn not_a_dataset(&self) -> Error {
        let found = if self.is_dir {
            "a directory that holds none; give the file or directory itself".into()
        } else if self.head.is_empty() {
            "an empty file; get it again".into()
        } else if self.is_html() {
            "an HTML page, as servers send in place of a file they no longer have; get it from another place"
                .into()
        } else if let Some(ending) = self.table_ending() {
            format!("text that looks like CSV; name it {ending}")
        } else {
            let start = &self.head[..self.head.len().min(8)];
            format!("something else (it begins with {start:02x?}); give one of these formats")
        };
        let titles = either(Format::all().iter().map(|f| f.title.into()));
        bad_file!(self.path, "wanted a dataset ({titles}), found {found}")
    }

    /// The ending that a text table should have: its first line is printable and has a separator in it.
    fn table_ending(&self) -> Option<&'static str> {
        let text = String::from_utf8_lossy(&self.head);
        let line = text.trim_start_matches('\u{feff}').lines().next()?;
        let printable =
            line.chars().all(|c| c == '\t' || !c.is_control()) && !line.starts_with(['{', '[', '(']);
        // The head may end in the middle of a letter.
        let text = !line.trim_end_matches('\u{fffd}').contains('\u{fffd}');
        match (printable && text, line.contains([',', ';']), line.contains('\t')) {
            (true, true, _) => Some(".csv"),
            (true, false, true) => Some(".tsv"),
            _ => None,
        }
    }
}
