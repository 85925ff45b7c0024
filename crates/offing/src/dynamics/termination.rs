//! When an imagined episode ends: the rules of the known bodies, an expression, or a learnt classifier.
//!
//! A state with an entry that is not finite always ends the episode.

use ndarray::{Array1, ArrayView1};
use serde::{Deserialize, Serialize};

use super::custom::StepFn;
use super::expression::Expression;
use super::learnt::{LearnedConfig, LearnedTermination};
use crate::batch::{Batch, Mat};
use crate::data::ColumnNames;
use crate::error::{Error, Result, invalid, require};
use crate::tasks::{self, TaskTermination};
use crate::units::Units;

/// When imagined episodes end: never, by the rule of a known body, by a condition, or by a classifier. A state with an
/// entry that is not finite always ends the episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum TerminationConfig {
    /// Never.
    Never {},
    /// Never, or when an entry reaches `limit` (OfflineRL-Kit: 100).
    #[serde(rename = "halfcheetah")]
    HalfCheetah {
        /// Magnitude from which an entry ends the episode.
        #[serde(default)]
        limit: Option<f32>,
    },
    /// Alive while all entries but the height are within ±100, the height is above 0.7 and the angle within ±0.2.
    Hopper {},
    /// Alive while the height is between 0.8 and 2 and the angle within ±1.
    Walker2d {
        /// Magnitude from which an entry ends the episode (OfflineRL-Kit: 100).
        #[serde(default)]
        limit: Option<f32>,
    },
    /// Alive while the height (entry 0) is in [0.2, 1].
    Ant {},
    /// Ends within `radius` of the goal; entries 0 and 1 are the position. There is no fall.
    #[serde(rename = "antmaze")]
    AntMaze {
        /// The goal's position, `[x, y]`.
        goal: [f32; 2],
        /// Distance that counts as reached.
        #[serde(default = "default_radius")]
        radius: f32,
    },
    /// Alive while the condition `alive` holds.
    Expression {
        /// The condition, for example `obs[0] > 0.7 && abs(obs[1]) < 0.2`. `obs` is the state after the step, `prev` the one
        /// before it, `act` the action. It knows `+ - * /`, comparisons, `&& || !`, `abs sqrt min max` and `max_abs(obs)`. Where
        /// the data name their columns, so may it: `p_tank < 1.6e5 && prev.p_tank > 0`.
        alive: String,
    },
    /// By a function of the program that trains, under this name. From Python: `offing.train(…, termination=f)`.
    Custom {
        /// The function's name.
        name: String,
    },
    /// Learnt from the data's own terminals.
    Learnt {
        /// How to train the classifier.
        #[serde(default)]
        classifier: LearnedConfig,
    },
}

fn default_radius() -> f32 {
    0.5
}

/// A rule, ready to use.
#[derive(Clone, Debug)]
pub enum Termination {
    /// Never.
    Never,
    /// The rule of a known body, which looks at the new state only.
    Body(TerminationConfig),
    /// A condition for staying alive.
    Alive(Expression),
    /// A classifier.
    Learnt(Box<LearnedTermination>),
    /// A function of the program that trains.
    Custom(StepFn<Array1<bool>>),
    /// A rule that looks at logged units, for steps in standard ones.
    InUnits(Box<Termination>, Box<Units>),
}

impl TerminationConfig {
    /// The rule of a task by name (`hopper`, `antmaze-umaze`…); AntMaze needs its goal.
    pub fn of_task(task: &str, goal: Option<[f32; 2]>) -> Result<Self> {
        let known = tasks::body_of(&task.to_ascii_lowercase()).ok_or_else(|| Error::Unknown {
            kind: "task",
            name: task.into(),
            hint: "its termination is not known: give model.termination.kind = \"never\", \"expression\" or \"learnt\"".into(),
        })?;
        let invalid = |what: String| Error::Invalid(format!("termination of `{task}`: {what}"));
        match (known.termination, goal) {
            (TaskTermination::Rule(json), _) => serde_json::from_str(json).map_err(|e| invalid(e.to_string())),
            (TaskTermination::AtGoal, Some(goal)) => Ok(Self::AntMaze { goal, radius: default_radius() }),
            (TaskTermination::AtGoal, None) => Err(invalid(
                "wanted a goal position, found none; give model.termination = { kind = \"antmaze\", goal = [x, y] }".into(),
            )),
        }
    }

    /// Finds what is wrong with the rule for states of these rows, without training anything.
    pub fn validate_for(&self, rows: &Batch, names: &ColumnNames) -> Result<()> {
        match self {
            Self::Learnt { classifier } => classifier.validate_for(rows),
            other => other.build(rows, names, 0).map(drop),
        }
    }

    /// Builds the rule for states of these rows; only a learnt one looks at more than their widths. A condition may use
    /// the names of their columns.
    pub fn build(&self, rows: &Batch, names: &ColumnNames, seed: u64) -> Result<Termination> {
        let obs = rows.obs_dim();
        let body = match self {
            Self::Hopper {} => Some("hopper"),
            Self::Walker2d { .. } => Some("walker2d"),
            Self::AntMaze { .. } => Some("antmaze"),
            _ => None,
        };
        if let Some(body) = body {
            require!(
                obs >= 2,
                "termination of {body}: wanted states of at least 2 entries, found {obs}; choose another \
                 model.termination.kind"
            );
        }
        Ok(match self {
            Self::Expression { alive } => {
                let parsed = Expression::parse_named(alive, obs, rows.act_dim(), names);
                Termination::Alive(parsed.map_err(|e| invalid!("model.termination.alive: {e}"))?)
            }
            Self::Learnt { classifier } => {
                Termination::Learnt(Box::new(LearnedTermination::fit(classifier, rows, seed)?))
            }
            body => Termination::Body(body.clone()),
        })
    }

    /// The rules of known bodies, which look at the new state only.
    fn ends(&self, next: ArrayView1<'_, f32>) -> bool {
        let beyond = |from: usize, limit: f32| next.iter().skip(from).any(|x| x.abs() >= limit);
        match self {
            Self::HalfCheetah { limit } => limit.is_some_and(|limit| beyond(0, limit)),
            Self::Hopper {} => !(next[0] > 0.7 && next[1].abs() < 0.2) || beyond(1, 100.0),
            Self::Walker2d { limit } => {
                let upright = next[0] > 0.8 && next[0] < 2.0 && next[1].abs() < 1.0;
                !upright || limit.is_some_and(|limit| beyond(0, limit))
            }
            Self::Ant {} => !(0.2..=1.0).contains(&next[0]),
            Self::AntMaze { goal, radius } => (next[0] - goal[0]).hypot(next[1] - goal[1]) <= *radius,
            Self::Never {} | Self::Expression { .. } | Self::Learnt { .. } | Self::Custom { .. } => false,
        }
    }
}

impl Termination {
    /// The same rule for steps in standard units. A classifier has learnt from such steps.
    #[must_use]
    pub fn in_units(self, units: &Units) -> Self {
        match self {
            Self::Alive(_) | Self::Body(_) | Self::Custom(_) => {
                Self::InUnits(Box::new(self), Box::new(units.clone()))
            }
            other => other,
        }
    }

    /// Whether each step from `obs` by `act` to `next_obs` ended its episode.
    pub fn done(&self, obs: &Mat, act: &Mat, next_obs: &Mat) -> Array1<bool> {
        let mut done = match self {
            Self::Alive(alive) => {
                let slice = |row: ArrayView1<'_, f32>| row.to_vec();
                let rows = obs.rows().into_iter().zip(act.rows()).zip(next_obs.rows());
                rows.map(|((s, a), n)| !alive.holds(&slice(s), &slice(a), &slice(n))).collect()
            }
            Self::Learnt(learnt) => learnt.done(obs, act, next_obs),
            Self::Custom(ends) => ends.call(obs, act, next_obs),
            Self::Body(rule) => next_obs.rows().into_iter().map(|row| rule.ends(row)).collect(),
            Self::InUnits(rule, units) => {
                rule.done(&units.obs_outward(obs), &units.act_outward(act), &units.obs_outward(next_obs))
            }
            Self::Never => Array1::from_elem(next_obs.nrows(), false),
        };
        for (done, row) in done.iter_mut().zip(next_obs.rows()) {
            *done |= row.iter().any(|x| !x.is_finite());
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, array};

    fn rows(width: usize) -> Batch {
        Batch::empty(width, 1)
    }

    static NONE: ColumnNames = ColumnNames { obs: Vec::new(), act: Vec::new() };

    fn done(cfg: &TerminationConfig, next: &[f32]) -> bool {
        let rule = cfg.build(&rows(next.len()), &NONE, 0).unwrap();
        let next = Array2::from_shape_vec((1, next.len()), next.to_vec()).unwrap();
        rule.done(&Mat::zeros(next.raw_dim()), &array![[0.0]], &next)[0]
    }

    #[test]
    fn each_body_ends_where_its_simulator_does() {
        use TerminationConfig as T;
        let nan = f32::NAN;
        let limit = Some(100.0);
        for (cfg, next, want) in [
            (T::Hopper {}, vec![1.2, 0.1, 0.0], false),
            (T::Hopper {}, vec![0.7, 0.1, 0.0], true),
            (T::Hopper {}, vec![1.2, -0.2, 0.0], true),
            (T::Hopper {}, vec![1.2, 0.1, -100.0], true),
            (T::Hopper {}, vec![200.0, 0.1, 0.0], false),
            (T::Hopper {}, vec![1.2, 0.1, nan], true),
            (T::Walker2d { limit: None }, vec![1.2, -0.9, 500.0], false),
            (T::Walker2d { limit }, vec![1.2, -0.9, 500.0], true),
            (T::Walker2d { limit: None }, vec![2.0, 0.0, 0.0], true),
            (T::Walker2d { limit: None }, vec![1.2, 1.0, 0.0], true),
            (T::HalfCheetah { limit: None }, vec![500.0, 0.0], false),
            (T::HalfCheetah { limit }, vec![0.0, -100.0], true),
            (T::HalfCheetah { limit: None }, vec![nan, 0.0], true),
            (T::Ant {}, vec![0.2, 9.0], false),
            (T::Ant {}, vec![0.19, 9.0], true),
            (T::Ant {}, vec![1.01, 9.0], true),
            (T::AntMaze { goal: [8.0, 0.0], radius: 0.5 }, vec![0.75, 0.0], false),
            (T::AntMaze { goal: [8.0, 0.0], radius: 0.5 }, vec![7.75, 0.25], true),
            (T::Never {}, vec![1e30, 0.0], false),
            (T::Expression { alive: "obs[0] < 3".into() }, vec![2.0, 0.0], false),
            (T::Expression { alive: "obs[0] < 3".into() }, vec![3.0, 0.0], true),
            (T::Expression { alive: "obs[0] < 3".into() }, vec![2.0, nan], true),
        ] {
            assert_eq!(done(&cfg, &next), want, "{cfg:?} {next:?}");
        }
    }

    #[test]
    fn every_task_of_the_table_has_a_rule() {
        for task in tasks::TASKS {
            TerminationConfig::of_task(task.name, Some([0.0; 2])).unwrap();
        }
        assert_eq!(TerminationConfig::of_task("Hopper_logs", None).unwrap(), TerminationConfig::Hopper {});
    }

    #[test]
    fn antmaze_is_never_taken_for_ant() {
        let goal = Some([8.0, 0.0]);
        assert!(matches!(
            TerminationConfig::of_task("antmaze-umaze", goal).unwrap(),
            TerminationConfig::AntMaze { .. }
        ));
        assert!(matches!(TerminationConfig::of_task("ant", None).unwrap(), TerminationConfig::Ant {}));
        assert!(TerminationConfig::of_task("antmaze-umaze", None).is_err());
        assert!(TerminationConfig::of_task("pong", None).unwrap_err().to_string().contains("expression"));
    }

    #[test]
    fn rules_are_read_from_configuration() {
        let read = |text: &str| serde_json::from_str::<TerminationConfig>(text);
        assert!(read(r#"{"kind": "antmaze", "goal": [1, 2]}"#).is_ok());
        assert!(read(r#"{"kind": "hopper", "goal": [1, 2]}"#).is_err(), "unknown keys are refused");
        assert!(read(r#"{"kind": "learnt", "classifier": {"updates": 10}}"#).is_ok());
        let narrow = TerminationConfig::Hopper {}.build(&rows(1), &NONE, 0).unwrap_err().to_string();
        assert!(narrow.contains("at least 2"), "{narrow}");
    }

    #[test]
    fn a_bad_rule_is_named_without_learning_anything() {
        let some = Batch { done: vec![true, false].into(), ..two_rows() };
        for (text, word) in [
            (r#"{"kind": "expression", "alive": "obs[9] > 0"}"#, "model.termination.alive: condition"),
            (
                r#"{"kind": "learnt", "classifier": {"threshold": 2}}"#,
                "classifier.threshold: wanted a number",
            ),
            (r#"{"kind": "learnt", "classifier": {"lr": 0}}"#, "classifier.lr"),
        ] {
            let cfg: TerminationConfig = serde_json::from_str(text).unwrap();
            let error = cfg.validate_for(&some, &NONE).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains('{'), "{error}");
        }
        let learnt = TerminationConfig::Learnt { classifier: LearnedConfig::default() };
        learnt.validate_for(&some, &NONE).unwrap();
        let error = learnt.validate_for(&two_rows(), &NONE).unwrap_err().to_string();
        assert!(error.contains("found 0 and 2"), "{error}");
    }

    #[test]
    fn a_condition_with_names_speaks_of_the_log_s_units() {
        let alive =
            TerminationConfig::Expression { alive: "p_tank < 1.6e5 && prev.p_tank > 0 && valve < 30".into() };
        let logged = Batch {
            obs: array![[293.0, 1.0e5], [295.0, 1.2e5], [291.0, 1.4e5]],
            act: array![[0.0], [20.0], [40.0]],
            next_obs: array![[293.0, 1.5e5], [295.0, 1.7e5], [291.0, 1.5e5]],
            rew: Array1::zeros(3),
            done: vec![false; 3].into(),
        };
        let names = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let names = ColumnNames { obs: names("t_in p_tank"), act: names("valve") };
        let rule = alive.build(&logged, &names, 0).unwrap();
        let want = ndarray::arr1(&[false, true, true]);
        assert_eq!(rule.done(&logged.obs, &logged.act, &logged.next_obs), want);
        let units = Units::of(&logged, None).unwrap();
        let mut inward = logged.clone();
        units.rows_inward(&mut inward);
        assert_eq!(rule.in_units(&units).done(&inward.obs, &inward.act, &inward.next_obs), want);
        let error = alive.validate_for(&logged, &NONE).unwrap_err().to_string();
        assert!(error.starts_with("model.termination.alive: condition") && !error.contains('\n'), "{error}");
    }

    fn two_rows() -> Batch {
        let (obs, act) = (Mat::zeros((2, 3)), Mat::zeros((2, 1)));
        Batch { next_obs: obs.clone(), obs, act, rew: Array1::zeros(2), done: vec![false; 2].into() }
    }
}
