//! Every task that offing knows by name, in one table: shapes, time limit, reference scores, termination and datasets.
//!
//! A new simulated task is one entry here, one entry in the table of `offing-mujoco` (`tasks/mod.rs`: its body and the
//! function that builds it) and its reward function. Everything else finds the task here by its name.
//!
//! ```
//! use offing::tasks::{reference, task_of};
//! assert_eq!(task_of("antmaze-umaze-diverse-v2").unwrap().horizon, 700);
//! let hopper = reference("hopper-medium-v2").unwrap();
//! assert_eq!(hopper.normalise(3234.3), 100.0);
//! // A spread is scaled, never shifted: pushing it through the affine map would subtract the random return.
//! assert!((hopper.normalise_spread(32.54572305) - 1.0).abs() < 1e-9);
//! ```

use crate::env::Physics;

/// What offing knows of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskSpec {
    /// Name, such as `hopper` or `antmaze-umaze`. Its first word is the body.
    pub name: &'static str,
    /// Width of an observation under each physics, in the order of [`Physics::ALL`].
    pub obs_dims: [usize; Physics::ALL.len()],
    /// Width of an action.
    pub act_dim: usize,
    /// Steps after which an episode is cut off.
    pub horizon: usize,
    /// Returns that D4RL normalises with; every version (v0, v1, v2) reuses those of v0.
    pub reference: Reference,
    /// When an episode ends by itself.
    pub termination: TaskTermination,
    /// The datasets that offing generates and D4RL published.
    pub flavours: &'static [Flavour],
    /// Normalised score at which D4RL stopped training its `medium` policies.
    pub medium_score: Option<f64>,
    /// Whether offing ships behaviour policies, so that every flavour can be generated without other files.
    pub built_in_policies: bool,
}

/// When an episode of a task ends, for a dynamics model that must know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskTermination {
    /// By this rule, written in JSON as `model.termination` takes it.
    Rule(&'static str),
    /// Near a goal that differs between datasets, so the configuration must give it.
    AtGoal,
}

/// One of a task's datasets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour {
    /// What follows the task's name in the dataset's; empty where nothing does.
    pub name: &'static str,
    /// Stem of D4RL's file, where it does not follow from the name.
    pub d4rl_file: Option<&'static str>,
}

impl Flavour {
    const fn new(name: &'static str) -> Self {
        Self { name, d4rl_file: None }
    }

    const fn stored_as(name: &'static str, file: &'static str) -> Self {
        Self { name, d4rl_file: Some(file) }
    }
}

/// D4RL's five flavours of a body that runs forward.
const LOCOMOTION: &[Flavour] = &[
    Flavour::new("random"),
    Flavour::new("medium"),
    Flavour::new("medium-replay"),
    Flavour::new("medium-expert"),
    Flavour::new("expert"),
];

/// What the AntMaze tasks share.
const ANTMAZE: TaskSpec = TaskSpec {
    name: "antmaze",
    obs_dims: [29; Physics::ALL.len()],
    act_dim: 8,
    horizon: 1000,
    reference: Reference { random: 0.0, expert: 1.0 },
    termination: TaskTermination::AtGoal,
    flavours: &[],
    medium_score: None,
    built_in_policies: false,
};

/// Every task, in the order in which offing lists them.
pub const TASKS: &[TaskSpec] = &[
    TaskSpec {
        name: "halfcheetah",
        obs_dims: [17; Physics::ALL.len()],
        act_dim: 6,
        horizon: 1000,
        reference: Reference { random: -280.178953, expert: 12135.0 },
        termination: TaskTermination::Rule(r#"{"kind": "halfcheetah"}"#),
        flavours: LOCOMOTION,
        medium_score: Some(40.0),
        built_in_policies: true,
    },
    TaskSpec {
        name: "hopper",
        obs_dims: [11; Physics::ALL.len()],
        act_dim: 3,
        horizon: 1000,
        reference: Reference { random: -20.272305, expert: 3234.3 },
        termination: TaskTermination::Rule(r#"{"kind": "hopper"}"#),
        flavours: LOCOMOTION,
        medium_score: Some(45.0),
        built_in_policies: true,
    },
    TaskSpec {
        name: "walker2d",
        obs_dims: [17; Physics::ALL.len()],
        act_dim: 6,
        horizon: 1000,
        reference: Reference { random: 1.629008, expert: 4592.3 },
        termination: TaskTermination::Rule(r#"{"kind": "walker2d"}"#),
        flavours: LOCOMOTION,
        medium_score: Some(55.0),
        built_in_policies: true,
    },
    TaskSpec {
        name: "ant",
        // v2 shows all contact forces, v4 none, v5 all but the world's own.
        obs_dims: [111, 27, 105, 111],
        act_dim: 8,
        horizon: 1000,
        reference: Reference { random: -325.6, expert: 3879.7 },
        termination: TaskTermination::Rule(r#"{"kind": "ant"}"#),
        flavours: &[],
        medium_score: None,
        built_in_policies: false,
    },
    TaskSpec {
        name: "antmaze-umaze",
        horizon: 700,
        flavours: &[
            Flavour::stored_as("", "Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse"),
            Flavour::stored_as("diverse", "Ant_maze_u-maze_noisy_multistart_True_multigoal_True_sparse"),
        ],
        ..ANTMAZE
    },
    TaskSpec {
        name: "antmaze-medium",
        flavours: &[
            Flavour::stored_as("play", "Ant_maze_big-maze_noisy_multistart_True_multigoal_False_sparse"),
            Flavour::stored_as("diverse", "Ant_maze_big-maze_noisy_multistart_True_multigoal_True_sparse"),
        ],
        ..ANTMAZE
    },
    TaskSpec {
        name: "antmaze-large",
        flavours: &[
            Flavour::stored_as("play", "Ant_maze_hardest-maze_noisy_multistart_True_multigoal_False_sparse"),
            Flavour::stored_as(
                "diverse",
                "Ant_maze_hardest-maze_noisy_multistart_True_multigoal_True_sparse",
            ),
        ],
        ..ANTMAZE
    },
];

impl TaskSpec {
    /// The first word of the name: `antmaze` for `antmaze-umaze`. Tasks of one body differ in nothing but their surroundings.
    pub fn body(&self) -> &'static str {
        self.name.split('-').next().unwrap_or(self.name)
    }

    /// Width of an observation under a physics.
    pub fn obs_dim(&self, physics: Physics) -> usize {
        self.obs_dims[physics as usize]
    }

    /// The name of one of its datasets, without a version.
    pub fn dataset(&self, flavour: &Flavour) -> String {
        if flavour.name.is_empty() { self.name.into() } else { format!("{}-{}", self.name, flavour.name) }
    }
}

/// The words of a task's or dataset's name.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(['-', '_'])
}

/// The task of a task's or dataset's name: all words of the task's name must come first.
pub fn task_of(name: &str) -> Option<&'static TaskSpec> {
    TASKS.iter().find(|task| {
        let mut given = words(name);
        words(task.name).all(|word| given.next() == Some(word))
    })
}

/// A task of the body that a name's first word is, for what all tasks of one body share. Minari's `mujoco/…` sets have
/// other bodies and match none.
pub fn body_of(name: &str) -> Option<&'static TaskSpec> {
    let body = words(name).next()?;
    TASKS.iter().find(|task| task.body() == body)
}

/// Every dataset of the table, with its name.
pub fn datasets() -> impl Iterator<Item = (String, &'static TaskSpec, &'static Flavour)> {
    TASKS.iter().flat_map(|task| task.flavours.iter().map(move |f| (task.dataset(f), task, f)))
}

/// The time limit of a task or of the task behind a dataset's name.
pub fn horizon(name: &str) -> Option<usize> {
    Some(task_of(name)?.horizon)
}

/// Returns of D4RL's random and expert policies on one task. The normalised score is
/// 100 · (return − random) / (expert − random).
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Reference {
    /// Return that scores 0.
    pub random: f64,
    /// Return that scores 100.
    pub expert: f64,
}

impl Reference {
    /// The normalised score of a return, or of a mean of returns.
    pub fn normalise(&self, value: f64) -> f64 {
        100.0 * (value - self.random) / (self.expert - self.random)
    }

    /// A standard deviation or standard error of returns, in points of normalised score.
    pub fn normalise_spread(&self, spread: f64) -> f64 {
        100.0 * spread / (self.expert - self.random)
    }
}

/// The reference of a task or D4RL dataset name, by its first word.
pub fn reference(name: &str) -> Option<Reference> {
    Some(body_of(name)?.reference)
}

/// The reference that applies under a physics: v5 counts rewards differently, so it has none.
pub fn reference_under(name: &str, physics: Physics) -> Option<Reference> {
    reference(name).filter(|_| physics != Physics::GymnasiumV5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_by_whole_words() {
        for (name, task, body) in [
            ("ant", Some("ant"), Some("ant")),
            ("ant_trail", Some("ant"), Some("ant")),
            ("ant-medium", Some("ant"), Some("ant")),
            ("antmaze-umaze", Some("antmaze-umaze"), Some("antmaze")),
            ("antmaze_large-play-v2", Some("antmaze-large"), Some("antmaze")),
            ("antmaze-huge", None, Some("antmaze")),
            ("hopper_medium-v2", Some("hopper"), Some("hopper")),
            ("mujoco/hopper/expert-v0", None, None),
            ("anthill", None, None),
            ("own-hopper_logs", None, None),
            ("Hopper-medium", None, None),
        ] {
            assert_eq!(task_of(name).map(|t| t.name), task, "{name}");
            assert_eq!(body_of(name).map(TaskSpec::body), body, "{name}");
        }
    }

    #[test]
    fn references_and_time_limits_are_found_by_name() {
        for (name, expert) in [("ant-medium", Some(3879.7)), ("antmaze-umaze", Some(1.0)), ("anthill", None)]
        {
            assert_eq!(reference(name).map(|r| r.expert), expert, "{name}");
        }
        assert_eq!(reference_under("hopper", Physics::GymnasiumV5), None);
        for (name, limit) in [
            ("hopper-medium-v2", Some(1000)),
            ("antmaze-umaze-diverse", Some(700)),
            ("antmaze-large-play", Some(1000)),
            ("my-own-logs", None),
        ] {
            assert_eq!(horizon(name), limit, "{name}");
        }
    }

    #[test]
    fn widths_follow_the_physics() {
        let ant = task_of("ant").unwrap();
        assert_eq!(Physics::ALL.map(|physics| ant.obs_dim(physics)), [111, 27, 105, 111]);
    }
}
