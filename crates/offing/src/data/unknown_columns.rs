//! Notes about columns and keys that nothing reads, with a guess where a name looks misspelt.

use super::messages::escaped;

/// Something that a file may hold and this one does not, under any name that is looked for.
#[derive(Clone, Copy)]
pub(super) struct Absent {
    /// The name to suggest.
    pub(super) name: &'static str,
    /// The names that are looked for.
    pub(super) known: &'static [&'static str],
    /// What others call it: words whose letters are too far from the known names.
    pub(super) also: &'static [&'static str],
    /// Words that give it away as a part of a name, such as `done` in `is_done`.
    pub(super) parts: &'static [&'static str],
}

/// Other words for next observations.
pub(super) const NEXT_ALSO: &[&str] = &[
    "next",
    "next_state",
    "next_states",
    "obs_next",
    "observation_next",
    "observations_next",
    "state_next",
    "new_obs",
    "new_state",
    "obs_after",
    "obs2",
    "s2",
];
/// Other words for terminals.
pub(super) const DONE_ALSO: &[&str] =
    &["finished", "finish", "end", "ended", "over", "final", "last", "failed", "fell", "crashed", "dead"];
/// Other words for time limits.
pub(super) const TIMEOUT_ALSO: &[&str] =
    &["truncated", "truncation", "trunc", "time_limit", "time_over", "time_up", "limit", "interrupted"];
/// Other words for the number of an episode.
pub(super) const EPISODE_ALSO: &[&str] =
    &["ep", "episode_number", "episode_index", "traj", "trajectory_id", "trial", "rollout", "run"];

/// Most names that a note lists.
const FEW: usize = 6;

/// A note of the keys that were not used, with guesses for misspelt ones. `None` when there are none besides D4RL's
/// remarks (`infos/*`, `metadata/*`), which need no note.
pub(super) fn note(keys: &[String], absent: &[Absent]) -> Option<String> {
    let keys: Vec<&str> = keys.iter().map(String::as_str).filter(|k| !is_remark(k)).collect();
    if keys.is_empty() {
        return None;
    }
    let mut shown = in_runs(&keys);
    if shown.len() > FEW {
        shown.truncate(FEW);
        shown.push("…".into());
    }
    let mut guesses: Vec<String> = Vec::new();
    for key in &keys {
        let guess = absent.iter().find(|a| is_like(split_number(key).0, a)).map(|a| format!("`{}`", a.name));
        if let Some(guess) = guess
            && !guesses.contains(&guess)
        {
            guesses.push(guess);
        }
    }
    let list = shown.join(", ");
    Some(match guesses.is_empty() {
        true => format!("not used: {list}"),
        false => format!("not used: {list}; did you mean {}?", guesses.join(" and ")),
    })
}

fn is_remark(key: &str) -> bool {
    key.starts_with("infos/") || key.starts_with("metadata/")
}

/// `obs_3`, `obs.3`, `obs[3]` and `obs3` are `obs` and 3; a name without a number is itself.
pub(super) fn split_number(name: &str) -> (&str, Option<u32>) {
    let inner = name.strip_suffix(']').unwrap_or(name);
    let base = inner.trim_end_matches(|c: char| c.is_ascii_digit());
    match inner[base.len()..].parse() {
        Ok(number) => (base.strip_suffix(|c: char| "_.[".contains(c)).unwrap_or(base), Some(number)),
        Err(_) => (name, None),
    }
}

/// The names, those that only count up as `first … last`.
fn in_runs(keys: &[&str]) -> Vec<String> {
    let mut runs: Vec<(&str, &str)> = Vec::new();
    for &key in keys {
        let (base, number) = split_number(key);
        match runs.last_mut() {
            Some((_, last)) if goes_on(last, base, number) => *last = key,
            _ => runs.push((key, key)),
        }
    }
    let show = |name: &str| match name {
        "" => "a column without a name".to_string(),
        _ => escaped(name).chars().take(40).collect(),
    };
    runs.into_iter()
        .map(|(first, last)| match first == last {
            true => show(first),
            false => format!("{} … {}", show(first), show(last)),
        })
        .collect()
}

/// Whether a name of this base and number is the one after `last`.
fn goes_on(last: &str, base: &str, number: Option<u32>) -> bool {
    let (before, old) = split_number(last);
    before == base && old.and_then(|n| n.checked_add(1)).is_some_and(|next| Some(next) == number)
}

fn is_like(base: &str, absent: &Absent) -> bool {
    let given = letters(base);
    let mut words = base.split(|c: char| !c.is_ascii_alphanumeric());
    absent.known.iter().any(|known| is_close(&given, &letters(known)))
        || absent.also.iter().any(|other| letters(other) == given)
        || words.any(|word| absent.parts.iter().any(|part| part.eq_ignore_ascii_case(word)))
}

/// Without signs and capitals: `nextObs` and `next_obs` are the same name.
fn letters(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// A slip or two of the keyboard apart; in a short word, one. Nobody mistypes the first letter, and `zone` is not `done`.
fn is_close(given: &str, known: &str) -> bool {
    let slips = if known.len() < 6 { 1 } else { 2 };
    given.chars().next() == known.chars().next() && strsim::osa_distance(given, known) <= slips
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABSENT: [Absent; 3] = [
        Absent { name: "next_obs_0", known: &["next_obs", "next_state"], also: NEXT_ALSO, parts: &[] },
        Absent { name: "done", known: &["terminal", "done"], also: DONE_ALSO, parts: &["done"] },
        Absent { name: "timeout", known: &["timeout"], also: TIMEOUT_ALSO, parts: &["timeout"] },
    ];

    fn of(keys: &[&str]) -> Option<String> {
        note(&keys.iter().map(|k| k.to_string()).collect::<Vec<_>>(), &ABSENT)
    }

    #[test]
    fn what_is_not_used_is_told_with_what_it_may_have_been() {
        for (keys, wanted) in [
            (
                &["nextobs_0", "nextobs_1", "nextobs_2"][..],
                "not used: nextobs_0 … nextobs_2; did you mean `next_obs_0`?",
            ),
            (&["finished", "time_out"], "not used: finished, time_out; did you mean `done` and `timeout`?"),
            (&["is_done"], "not used: is_done; did you mean `done`?"),
            (
                &["obs_next[0]", "obs_next[1]"],
                "not used: obs_next[0] … obs_next[1]; did you mean `next_obs_0`?",
            ),
            (&["time", "zone", "episode_return"], "not used: time, zone, episode_return"),
            (&["x_0", "x_2", "", "y"], "not used: x_0, x_2, a column without a name, y"),
            (&["a", "b", "c", "d", "e", "f", "g"], "not used: a, b, c, d, e, f, …"),
        ] {
            assert_eq!(of(keys).as_deref(), Some(wanted));
        }
        assert_eq!(of(&["infos/action_log_probs", "metadata/policy/fc0/weight"]), None);
    }
}
