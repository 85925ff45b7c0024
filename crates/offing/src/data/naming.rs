//! What a dataset is called, and whether its columns fit the task that its name promises.
//!
//! Time limits, reference returns, termination rules and simulators are all found by a dataset's name. A log of another
//! robot may bear such a name by chance. Its widths give it away here, once, so that no command takes it for the task.

use std::path::Path;

use super::messages::escaped;
use super::options::ReadOptions;
use super::transitions::FileColumns;
use crate::error::{Error, Result};
use crate::tasks::{self, TaskSpec};

/// The task whose body a name's first word is, in capitals or not.
pub(super) fn body_of(name: &str) -> Option<&'static TaskSpec> {
    tasks::body_of(&name.to_ascii_lowercase())
}

fn fits(task: &TaskSpec, (obs, act): (usize, usize)) -> bool {
    task.obs_dims.contains(&obs) && task.act_dim == act
}

/// A task's widths in words.
fn shape(task: &TaskSpec) -> String {
    let mut widths = task.obs_dims.to_vec();
    widths.sort_unstable();
    widths.dedup();
    let widths: Vec<String> = widths.iter().map(usize::to_string).collect();
    format!("{} observations and {} actions", widths.join(" or "), task.act_dim)
}

/// What the dataset is called: the set that a generated file says it is, else the name asked for, else the file's. The name
/// of a task with other widths gets `own-` before it, so that nothing takes the data for that task, and a note.
///
/// # Errors
/// A generated file whose columns do not fit the task that it names.
pub(super) fn name_of(
    columns: &FileColumns,
    path: &Path,
    options: &ReadOptions,
    notes: &mut Vec<String>,
) -> Result<String> {
    let (obs, act) = (columns.obs.ncols(), columns.act.ncols());
    let set = columns.meta.get("made_by").and(columns.meta.get("set"));
    let name = match (set, &options.name) {
        (Some(set), _) => set.clone(),
        (None, Some(name)) => name.clone(),
        (None, None) => super::transitions::stem(path),
    };
    let Some(task) = body_of(&name).filter(|task| !fits(task, (obs, act))) else { return Ok(name) };
    // Whoever chose columns knows that they are no longer the task's.
    let chosen = options.columns.is_some() || options.minari_obs.is_some();
    if set.is_some() && !chosen {
        let wanted = format!("{}, as {} has", shape(task), task.body());
        let found = format!("`{}` with {obs} and {act}", escaped(&name));
        let hint = "the file was changed after offing wrote it: make it again, or remove `made_by` and `set`";
        return Err(Error::key(path, "metadata/set", wanted, found, hint));
    }
    let other = format!("own-{name}");
    let note = format!(
        "named like {}, which has {}; these have {obs} and {act}, so offing treats it as data of another task and calls it `{}`",
        task.body(),
        shape(task),
        escaped(&other)
    );
    notes.insert(0, note);
    Ok(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_known_by_the_whole_first_word_and_its_widths() {
        for (name, body) in
            [("hopper_logs", Some("hopper")), ("Hopper-medium-v2", Some("hopper")), ("anthill", None)]
        {
            assert_eq!(body_of(name).map(TaskSpec::body), body, "{name}");
        }
        let ant = body_of("ant").unwrap();
        assert!(fits(ant, (111, 8)) && fits(ant, (27, 8)) && !fits(ant, (29, 8)) && !fits(ant, (111, 2)));
    }
}
