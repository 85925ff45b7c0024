//! Which transitions a command means: a name, the rows asked for, and what has been made before.

use std::path::{Path, PathBuf};

use anyhow::Result;
use offing::algo::TrainConfig;
use offing::data::audit::teleport_rows;
use offing::data::catalogue::{Catalogue, Found, Origin, Recipe};
use offing::data::{Dataset, ReadOptions};
use offing::env::GenerateOptions;

use crate::commands::data::{DEFAULT_ROWS, load, make_shown};
use crate::context::Context;
use crate::term;

/// What a name stands for.
#[derive(Debug, PartialEq)]
enum Meant {
    /// A path, an id or a name to read.
    Read(String),
    /// A set of so many rows by the built-in policies; it may have been made already.
    Make(Recipe, usize),
}

/// Where the dataset of that name is. Where `rows` are asked for, a made name stands for the set of that size, which is made by
/// the built-in policies if it is not there; without, for the only one there is.
pub(crate) fn data_of(context: &Context, name: &str, rows: Option<usize>) -> Result<String> {
    Ok(match meant(&context.catalogue, name, rows)? {
        Meant::Read(path) => path,
        Meant::Make(recipe, rows) => {
            let made = make_shown(context, &recipe, &GenerateOptions { rows, ..GenerateOptions::default() })?;
            made.to_string_lossy().into_owned()
        }
    })
}

fn meant(catalogue: &Catalogue, name: &str, rows: Option<usize>) -> Result<Meant> {
    let found = catalogue.find(name);
    if let Ok(Found::ToMake(recipe)) = found {
        return Ok(Meant::Make(recipe, rows.unwrap_or(DEFAULT_ROWS)));
    }
    // Sets of other sizes may have been made: what a command means must not depend on them.
    let may_be_made = matches!(found, Ok(Found::File { origin: Origin::Made, .. }) | Err(_));
    let (Some(rows), Ok(recipe), true) = (rows, Recipe::parse(name), may_be_made) else {
        return Ok(Meant::Read(name.into()));
    };
    let all = catalogue.made(name)?;
    let sized: Vec<&PathBuf> = all.iter().filter(|path| Catalogue::made_rows(path) == Some(rows)).collect();
    let read = |path: &PathBuf| Meant::Read(path.to_string_lossy().into_owned());
    Ok(match (&sized[..], &all[..]) {
        // Perhaps by other policies or with another seed: it is the one there is.
        ([one], _) => read(one),
        // The ants of the mazes need a policy that offing does not have.
        ([], [one]) if recipe.task.starts_with("antmaze") => read(one),
        _ => Meant::Make(recipe, rows),
    })
}

/// The dataset of that name ([`data_of`]); one with more than `rows` rows is subsampled to whole episodes.
pub(crate) fn find_data(
    context: &Context,
    name: &str,
    rows: Option<usize>,
    cfg: &TrainConfig,
) -> Result<Dataset> {
    let path = data_of(context, name, rows)?;
    let (mut dataset, _) = load(context, &path, ReadOptions::default())?;
    if cfg.drop_teleports {
        let rows = teleport_rows(&dataset);
        if !rows.is_empty() {
            context.say(&format!("leaving out {} teleports (train.drop_teleports)", term::count(rows.len())));
            dataset = dataset.without(&rows);
        }
    }
    if let Some(rows) = rows
        && rows < dataset.rows.len()
    {
        dataset = dataset.subsampled(rows, 0);
    }
    let shift = cfg.reward_shift.of(&dataset.rows.rew);
    if shift != 0.0 {
        dataset.shift_rewards(shift);
    }
    Ok(dataset)
}

/// The transitions that a run learnt from, told by their checksum. Of a made name every set there is may be the one: sets of other
/// sizes may have been made since.
pub(crate) fn find_same(
    context: &Context,
    name: &str,
    rows: Option<usize>,
    cfg: &TrainConfig,
    digest: &str,
) -> Result<Option<Dataset>> {
    let made = Recipe::parse(name).is_ok() && !Path::new(name).exists();
    let mut files = if made { context.catalogue.made(name)? } else { Vec::new() };
    files.sort_by_key(|path| Catalogue::made_rows(path) != rows);
    let mut unread = None;
    for file in &files {
        match find_data(context, &file.to_string_lossy(), rows, cfg) {
            Ok(data) if data.digest() == digest => return Ok(Some(data)),
            Ok(_) => {}
            // It may be the very one: whoever misses it should hear of that, but not if another is found.
            Err(error) => unread = Some(error),
        }
    }
    if !files.is_empty() {
        return unread.map_or(Ok(None), Err);
    }
    let data = find_data(context, name, rows, cfg)?;
    Ok((data.digest() == digest).then_some(data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use offing::home::Home;

    #[test]
    fn a_set_of_another_size_is_not_taken_for_the_one_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("nowhere");
        let catalogue = Catalogue { home: Home::new(dir.path()), d4rl: nowhere.clone(), minari: nowhere };
        let sets = dir.path().join("datasets");
        std::fs::create_dir_all(&sets).unwrap();
        let put = |file: &str| {
            std::fs::write(sets.join(file), "").unwrap();
            Meant::Read(sets.join(file).to_string_lossy().into_owned())
        };
        let named = |name: &str| Meant::Read(name.into());
        let make = |name: &str, rows: usize| Meant::Make(Recipe::parse(name).unwrap(), rows);
        let of = |name: &str, rows| meant(&catalogue, name, rows).unwrap();

        assert_eq!(of("hopper-random", None), make("hopper-random", 1_000_000));
        let small = put("hopper-random-2000-s0-0a1b2c3d.hdf5");
        assert_eq!(of("hopper-random", None), named("hopper-random"), "the only one there is");
        assert_eq!(of("hopper-random", Some(2000)), small);
        assert_eq!(of("hopper-random", Some(200_000)), make("hopper-random", 200_000));
        let Meant::Read(path) = &small else { panic!("a file") };
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
