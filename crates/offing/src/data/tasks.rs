//! The tasks that a dataset's name may speak of, and whether its columns can be theirs.
//!
//! Time limits, reference returns, rules of termination and simulators are all found by a dataset's name. A log of another
//! robot may bear such a name by chance: it is told by its widths, here and once, so that no command takes it for the task.

use std::path::Path;

use super::options::ReadOptions;
use super::transitions::Columns;
use crate::error::{Error, Result};

/// A task by the first word of its datasets' names.
pub(super) struct Known {
    /// The word.
    pub(super) body: &'static str,
    /// Widths of an observation: one for each physics that has another.
    obs: &'static [usize],
    /// Width of an action.
    act: usize,
}

const TASKS: [Known; 5] = [
    Known { body: "halfcheetah", obs: &[17], act: 6 },
    Known { body: "hopper", obs: &[11], act: 3 },
    Known { body: "walker2d", obs: &[17], act: 6 },
    Known { body: "ant", obs: &[27, 105, 111], act: 8 },
    Known { body: "antmaze", obs: &[29], act: 8 },
];

/// The task that a name speaks of by its first word, in capitals or not.
pub(super) fn named(name: &str) -> Option<&'static Known> {
    let word = name.split(['-', '_']).next()?;
    TASKS.iter().find(|task| task.body.eq_ignore_ascii_case(word))
}

impl Known {
    fn fits(&self, (obs, act): (usize, usize)) -> bool {
        self.obs.contains(&obs) && self.act == act
    }

    /// Its widths in words.
    fn shape(&self) -> String {
        let widths: Vec<String> = self.obs.iter().map(usize::to_string).collect();
        format!("{} observations and {} actions", widths.join(" or "), self.act)
    }
}

/// What the dataset is called: the set that a made file says it is, else the name asked for, else the file's. A name that
/// speaks of a task with other widths gets `own-` before it, so that nothing takes the data for that task, and a note.
///
/// # Errors
/// A made file whose columns are not those of the task that it says it is of.
pub(super) fn name_of(
    columns: &Columns,
    path: &Path,
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> Result<String> {
    let widths = (columns.obs.ncols(), columns.act.ncols());
    let set = columns.meta.get("made_by").and(columns.meta.get("set"));
    let name = match (set, &options.name) {
        (Some(set), _) => set.clone(),
        (None, Some(name)) => name.clone(),
        (None, None) => super::transitions::stem(path),
    };
    let Some(task) = named(&name).filter(|task| !task.fits(widths)) else { return Ok(name) };
    // Whoever chose columns knows that they are no longer the task's.
    let chosen = options.columns.is_some() || options.minari_obs.is_some();
    if set.is_some() && !chosen {
        return Err(Error::key(
            path,
            "metadata/set",
            format!("{}, as {} has", task.shape(), task.body),
            format!("`{}` with {} and {}", super::hdf5::escaped(&name), widths.0, widths.1),
            "the file was changed after it was made: make it again, or write it without `made_by` and `set`",
        ));
    }
    let other = format!("own-{name}");
    notes.insert(
        0,
        format!(
            "named like {}, which has {}; these have {} and {}, so it is taken for data of another world and called `{}`",
            task.body,
            task.shape(),
            widths.0,
            widths.1,
            super::hdf5::escaped(&other)
        ),
    );
    Ok(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_known_by_the_whole_first_word_and_its_widths() {
        for (name, body) in [
            ("hopper_logs", Some("hopper")),
            ("Hopper-medium-v2", Some("hopper")),
            ("ant_trail", Some("ant")),
            ("antmaze-umaze", Some("antmaze")),
            ("anthill", None),
            ("own-hopper_logs", None),
            ("mujoco/hopper/expert-v0", None),
        ] {
            assert_eq!(named(name).map(|task| task.body), body, "{name}");
        }
        let ant = named("ant").unwrap();
        assert!(ant.fits((111, 8)) && ant.fits((27, 8)) && !ant.fits((29, 8)) && !ant.fits((111, 2)));
    }
}
