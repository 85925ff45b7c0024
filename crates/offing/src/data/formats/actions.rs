//! Actions of a policy, one a row, written as they are computed.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::super::messages::cannot_write;
use super::has_extension;
use super::npy::write_npy;
use super::parquet_write::ParquetWriter;
use crate::batch::Mat;
use crate::error::{Error, Result, bad_file};
use crate::home::replace_atomic;

/// A file to write actions to; its ending says the format.
#[derive(Debug)]
pub struct ActionFile {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A matrix of float32.
    Npy,
    /// Columns `act_0` and on between these.
    Text(&'static str),
    Parquet,
}

impl ActionFile {
    /// The file at `path`, which need not exist: `.npy`, `.csv`, `.tsv` or `.parquet`.
    ///
    /// # Errors
    /// Another ending.
    pub fn new(path: &Path) -> Result<Self> {
        let known = [
            ("npy", Kind::Npy),
            ("csv", Kind::Text(",")),
            ("tsv", Kind::Text("\t")),
            ("parquet", Kind::Parquet),
        ];
        match known.into_iter().find(|(ending, _)| has_extension(path, &[ending])) {
            Some((_, kind)) => Ok(Self { path: path.into(), kind }),
            None => {
                Err(bad_file!(path, "wanted a name that ends in .npy, .csv, .tsv or .parquet, found another"))
            }
        }
    }

    /// Writes all rows that `next` gives, each `width` wide, whole or not at all; how many they were. A table is never
    /// in memory as a whole.
    ///
    /// # Errors
    /// Those of `next`, and a file that cannot be written.
    pub fn write(&self, width: usize, mut next: impl FnMut() -> Result<Option<Mat>>) -> Result<usize> {
        let names: Vec<String> = (0..width).map(|i| format!("act_{i}")).collect();
        let (path, mut count) = (&self.path, 0);
        let mut next = || {
            let rows = next()?;
            count += rows.as_ref().map_or(0, Mat::nrows);
            Ok::<_, Error>(rows)
        };
        let create = |at: &Path| File::create(at).map_err(|e| Error::io(path, "write", e));
        match self.kind {
            Kind::Npy => {
                let mut values = Vec::new();
                while let Some(rows) = next()? {
                    values.extend(rows.iter());
                }
                let shape = (values.len() / width.max(1), width);
                let all = Mat::from_shape_vec(shape, values).map_err(|e| cannot_write(path, e))?;
                write_npy(&all, path)?;
            }
            Kind::Text(separator) => replace_atomic(path, |temporary| {
                let mut out = BufWriter::new(create(temporary)?);
                let mut line = |words: Vec<String>| {
                    writeln!(out, "{}", words.join(separator)).map_err(|e| Error::io(path, "write", e))
                };
                line(names)?;
                while let Some(rows) = next()? {
                    // The shortest text that reads back as the same number.
                    rows.rows()
                        .into_iter()
                        .try_for_each(|row| line(row.iter().map(f32::to_string).collect()))?;
                }
                out.flush().map_err(|e| Error::io(path, "write", e))
            })?,
            Kind::Parquet => replace_atomic(path, |temporary| {
                let bad = |e| cannot_write(path, e);
                let mut writer = ParquetWriter::create(create(temporary)?, &names).map_err(bad)?;
                while let Some(rows) = next()? {
                    writer.push(&rows).map_err(bad)?;
                }
                writer.finish().map_err(bad)
            })?,
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Observations;

    #[test]
    fn actions_are_written_as_datasets_name_them_and_read_back_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let chunks = [vec![0.5, -1.0, 0.25, 0.1], vec![1e-9, 3.0]];
        let chunks = chunks.map(|c| Mat::from_shape_vec((c.len() / 2, 2), c).unwrap());
        let columns = ["act_0".to_string(), "act_1".into()];
        for name in ["a.csv", "a.tsv", "a.parquet", "a.npy"] {
            let path = dir.path().join(name);
            let mut left = chunks.iter().cloned();
            assert_eq!(ActionFile::new(&path).unwrap().write(2, || Ok(left.next())).unwrap(), 3);
            let named = (name != "a.npy").then_some(&columns[..]);
            let mut back = Observations::open(&path, named).unwrap();
            let mut values = Vec::new();
            while let Some(rows) = back.next_rows().unwrap() {
                values.extend(rows.iter().copied());
            }
            assert_eq!(values, [0.5, -1.0, 0.25, 0.1, 1e-9, 3.0], "{name}");
        }
        let text = std::fs::read_to_string(dir.path().join("a.csv")).unwrap();
        assert!(text.starts_with("act_0,act_1\n0.5,-1\n0.25,0.1\n"), "{text}");
        let error = ActionFile::new(Path::new("a.txt")).unwrap_err().to_string();
        assert!(error.contains(".npy, .csv, .tsv or .parquet"), "{error}");
        // An error on the way leaves nothing behind.
        let path = dir.path().join("b.csv");
        let failed = ActionFile::new(&path).unwrap().write(2, || Err(Error::Invalid("no".into())));
        assert!(failed.is_err() && !path.exists());
    }
}
