//! Datasets by name: found on this machine, or generated on first use, and read.

use std::path::{Path, PathBuf};

use super::catalogue::{Catalogue, GeneratedName, Located, Origin, d4rl_id};
use super::{Dataset, ReadOptions, read};
use crate::env::{GenerateOptions, Simulators};
use crate::error::{Error, Result};
use crate::tasks::task_of;

/// Finds, generates and reads datasets.
pub struct Resolver<'a> {
    /// Where datasets are.
    pub catalogue: &'a Catalogue,
    /// What generates those that are not there; `None` generates nothing.
    pub simulators: Option<&'a dyn Simulators>,
    /// Called with what happens on the way.
    pub on_event: &'a mut dyn FnMut(DataEvent<'_>),
}

/// What happens while a dataset is resolved.
pub enum DataEvent<'a> {
    /// Something a user should know, one line.
    Note(String),
    /// Rows of a dataset have been generated.
    Generated {
        /// The dataset's name.
        name: &'a str,
        /// Rows so far.
        rows: usize,
        /// Rows in the end.
        total: usize,
    },
}

/// What a name stands for.
#[derive(Debug, PartialEq)]
enum Resolved {
    /// A path, an id or a name to read.
    Read(String),
    /// A set of so many rows by the built-in policies; it may have been generated already.
    Generate(GeneratedName, usize),
}

impl Resolver<'_> {
    /// Where the dataset of that name is. With `rows`, a generated name stands for the set of that size, which is
    /// generated if it is not there; without, for the only one there is.
    ///
    /// # Errors
    /// An unknown name, or one that nothing here can generate.
    pub fn locate(&mut self, name: &str, rows: Option<usize>) -> Result<String> {
        Ok(match resolve(self.catalogue, name, rows)? {
            Resolved::Read(path) => path,
            Resolved::Generate(set, rows) => {
                let path =
                    self.generate(&set.name, &GenerateOptions { rows, ..GenerateOptions::default() })?;
                path.to_string_lossy().into_owned()
            }
        })
    }

    /// Generates a dataset, or finds it generated before.
    ///
    /// # Errors
    /// No simulator for it.
    pub fn generate(&mut self, name: &str, options: &GenerateOptions) -> Result<PathBuf> {
        let Some(simulators) = self.simulators else {
            let hint = "there is no simulator here to generate it; give the path of a file".into();
            return Err(Error::Unknown { kind: "dataset", name: name.into(), hint });
        };
        let on_event = &mut *self.on_event;
        if let Some(task) = simulators.task_of(name) {
            simulators.prepare(&task, &mut |line| on_event(DataEvent::Note(line.into())))?;
        }
        let total = options.rows;
        let generated = simulators
            .generate(name, options, &mut |rows| on_event(DataEvent::Generated { name, rows, total }))?;
        let verb = if generated.fresh { "generated" } else { "found" };
        let by = generated.behaviour.join(", ");
        on_event(DataEvent::Note(format!("{verb} {total} rows of {name} by {by}")));
        Ok(generated.path)
    }

    /// Reads a dataset by path, id or name. Its notes are in [`Dataset::reading`].
    ///
    /// # Errors
    /// An unknown name, or a file that is not what it should be.
    pub fn read(&mut self, name: &str, options: ReadOptions) -> Result<(Dataset, Origin)> {
        let (path, origin) = match self.catalogue.find(name)? {
            Located::File { path, origin } => (path, origin),
            Located::ToGenerate(set) => {
                (self.generate(&set.name, &GenerateOptions::default())?, Origin::Generated)
            }
        };
        // A file of D4RL's is known by its name wherever it lies: AntMaze's say nothing of a maze that others would
        // recognise.
        let named = match origin {
            Origin::Own => path.file_stem().and_then(|stem| d4rl_id(&stem.to_string_lossy())),
            // Run directories are named after the dataset, and a colon in them would not suit every system.
            Origin::NeoRL2 => None,
            _ => Some(name.to_string()),
        };
        let dataset = read(&path, &ReadOptions { name: named, ..options })?;
        // A generated file says itself which set it is, whatever it is called now; of chosen columns it no longer is that
        // set.
        let generated =
            dataset.meta.contains_key("made_by") && dataset.meta.get("set") == Some(&dataset.name);
        Ok((dataset, if generated { Origin::Generated } else { origin }))
    }

    /// [`read`](Self::read), with the notes of the reader as events.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_with_notes(&mut self, name: &str, options: ReadOptions) -> Result<(Dataset, Origin)> {
        let (dataset, origin) = self.read(name, options)?;
        for note in &dataset.reading.notes {
            (self.on_event)(DataEvent::Note(format!("{}: {note}", dataset.name)));
        }
        Ok((dataset, origin))
    }

    /// Names or paths under which the data of an earlier run may be found: of a generated name every set there is, those
    /// of `rows` rows first, since sets of other sizes may have been generated meanwhile.
    ///
    /// # Errors
    /// A home that cannot be listed.
    pub fn candidates(&self, name: &str, rows: Option<usize>) -> Result<Vec<String>> {
        let generated = GeneratedName::parse(name).is_ok() && !Path::new(name).exists();
        let mut files = if generated { self.catalogue.generated(name)? } else { Vec::new() };
        files.sort_by_key(|path| Catalogue::generated_rows(path) != rows);
        if files.is_empty() {
            return Ok(vec![name.into()]);
        }
        Ok(files.iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }
}

fn resolve(catalogue: &Catalogue, name: &str, rows: Option<usize>) -> Result<Resolved> {
    let found = catalogue.find(name);
    if let Ok(Located::ToGenerate(set)) = found {
        return Ok(Resolved::Generate(set, rows.unwrap_or(GenerateOptions::default().rows)));
    }
    // Sets of other sizes may have been generated: what a command means must not depend on them.
    let may_be_generated = matches!(found, Ok(Located::File { origin: Origin::Generated, .. }) | Err(_));
    let (Some(rows), Ok(set), true) = (rows, GeneratedName::parse(name), may_be_generated) else {
        return Ok(Resolved::Read(name.into()));
    };
    let all = catalogue.generated(name)?;
    let sized: Vec<&PathBuf> =
        all.iter().filter(|path| Catalogue::generated_rows(path) == Some(rows)).collect();
    let read = |path: &PathBuf| Resolved::Read(path.to_string_lossy().into_owned());
    Ok(match (&sized[..], &all[..]) {
        // Perhaps by other policies or with another seed: it is the one there is.
        ([one], _) => read(one),
        // Without behaviour policies of its own offing cannot generate another.
        ([], [one]) if task_of(&set.task).is_none_or(|task| !task.built_in_policies) => read(one),
        _ => Resolved::Generate(set, rows),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;

    #[test]
    fn a_set_of_another_size_is_not_taken_for_the_one_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("nowhere");
        let catalogue = Catalogue { home: Home::new(dir.path()), d4rl: nowhere.clone(), minari: nowhere };
        let sets = dir.path().join("datasets");
        std::fs::create_dir_all(&sets).unwrap();
        let put = |file: &str| {
            std::fs::write(sets.join(file), "").unwrap();
            Resolved::Read(sets.join(file).to_string_lossy().into_owned())
        };
        let named = |name: &str| Resolved::Read(name.into());
        let make = |name: &str, rows: usize| Resolved::Generate(GeneratedName::parse(name).unwrap(), rows);
        let of = |name: &str, rows| resolve(&catalogue, name, rows).unwrap();

        assert_eq!(of("hopper-random", None), make("hopper-random", 1_000_000));
        let small = put("hopper-random-2000-s0-0a1b2c3d.hdf5");
        assert_eq!(of("hopper-random", None), named("hopper-random"), "the only one there is");
        assert_eq!(of("hopper-random", Some(2000)), small);
        assert_eq!(of("hopper-random", Some(200_000)), make("hopper-random", 200_000));
        let Resolved::Read(path) = &small else { panic!("a file") };
        assert_eq!(of(path, Some(100)), named(path), "a path is that file");
        // One by other policies is the one meant as long as it is the only one of its size.
        let mine = put("hopper-random-3000-s7-ffffffff.hdf5");
        assert_eq!(of("hopper-random", Some(3000)), mine);
        assert_eq!(of("hopper-random", None), named("hopper-random"), "reading it lists both");
        put("hopper-random-3000-s8-ffffffff.hdf5");
        assert_eq!(of("hopper-random", Some(3000)), make("hopper-random", 3000));
        // What the built-in policies cannot make is subsampled.
        let maze = put("antmaze-umaze-5000-s0-0a1b2c3d.hdf5");
        assert_eq!(of("antmaze-umaze", Some(5000)), maze);
        assert_eq!(of("antmaze-umaze", Some(900)), maze);
        assert_eq!(of("hopper-medium-v2", Some(900)), named("hopper-medium-v2"), "a published set");
    }
}
