//! Blocks of configuration that algorithms share.

use serde::{Deserialize, Serialize};

use crate::data::{ColumnMap, Dataset};
use crate::dynamics::{EnsembleConfig, LearnedConfig, ModelParts, TerminationConfig, check_rows};
use crate::error::{Result, ensure, invalid};
use crate::pessimism::Pessimism;
use crate::sac::SacConfig;
use crate::tasks::body_of;
use crate::uncertainty::UncertaintyConfig;
use crate::units::ActionRange;

/// The training loop. For `morel` a step is an iteration of planning, and a batch is one of cloning and of the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainConfig {
    /// Gradient steps (`--steps`).
    pub steps: u64,
    /// Rows in a batch (ℬ).
    pub batch: usize,
    /// Steps between evaluations in the simulator.
    pub evaluate_every: u64,
    /// Episodes of an evaluation.
    pub episodes: usize,
    /// Steps between checkpoints; rounded up to the next rollout.
    pub checkpoint_every: u64,
    /// Added to every reward of the dataset before anything else. `to-zero` makes the smallest reward 0, as the paper's
    /// 0 ≤ r ≤ r_max implies.
    pub reward_shift: RewardShift,
    /// Leave out rows whose state moves farther in a step than a body can, by the audit's rule. AntMaze files have such rows.
    pub drop_teleports: bool,
    /// In which units algorithms see the data: `as-logged`, or `standard`: observations with mean 0 and deviation 1, actions
    /// from −1 to 1. Saved policies take and give logged units either way. `auto` is `as-logged` for the tasks that offing
    /// knows, as in the papers, and `standard` for a log of one's own.
    pub units: UnitsChoice,
    /// The smallest and largest possible action in standard units, `{ low = [0], high = [40] }`. Without it, the smallest and
    /// largest in the log, where any is beyond ±1.
    pub action_range: Option<ActionRange>,
    /// Which columns of a CSV or Parquet table hold what (`--columns`). Without it, their names decide.
    pub columns: Option<ColumnMap>,
    /// Keep the policy every so many steps, as `snapshots/step-N.safetensors`.
    // Not written down while it is off: runs keep the names they had before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_every: Option<u64>,
}

/// Units in which algorithms see the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnitsChoice {
    /// Standard for data of no known task.
    #[default]
    Auto,
    /// The log's own.
    AsLogged,
    /// Observations standardised, actions from −1 to 1.
    Standard,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 1_000_000,
            batch: 256,
            evaluate_every: 10_000,
            episodes: 10,
            checkpoint_every: 10_000,
            reward_shift: RewardShift::By(0.0),
            drop_teleports: false,
            units: UnitsChoice::Auto,
            action_range: None,
            columns: None,
            snapshot_every: None,
        }
    }
}

impl TrainConfig {
    /// Says what is wrong with the values, if anything.
    pub fn validate(&self) -> Result<()> {
        for (name, value) in [
            ("steps", self.steps),
            ("batch", self.batch as u64),
            ("evaluate_every", self.evaluate_every),
            ("episodes", self.episodes as u64),
            ("checkpoint_every", self.checkpoint_every),
            ("snapshot_every", self.snapshot_every.unwrap_or(1)),
        ] {
            if value == 0 {
                return Err(invalid!("train.{name}: wanted at least 1, found 0"));
            }
        }
        match self.reward_shift {
            RewardShift::By(x) if !x.is_finite() => {
                Err(invalid!("train.reward_shift: wanted a number or `to-zero`, found {x}"))
            }
            _ => Ok(()),
        }
    }
}

/// What is added to every reward.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenShift", into = "WrittenShift")]
pub enum RewardShift {
    /// This number.
    By(f32),
    /// What makes the smallest reward 0.
    ToZero,
}

impl RewardShift {
    /// The number to add to these rewards.
    pub fn of(self, rewards: &ndarray::Array1<f32>) -> f32 {
        match self {
            Self::By(x) => x,
            Self::ToZero if rewards.is_empty() => 0.0,
            Self::ToZero => -rewards.iter().copied().fold(f32::INFINITY, f32::min),
        }
    }
}

/// A shift as files write it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenShift {
    Number(f32),
    Word(String),
}

impl TryFrom<WrittenShift> for RewardShift {
    type Error = String;

    fn try_from(written: WrittenShift) -> std::result::Result<Self, String> {
        match written {
            WrittenShift::Number(x) => Ok(Self::By(x)),
            WrittenShift::Word(word) if word == "to-zero" => Ok(Self::ToZero),
            WrittenShift::Word(word) => {
                Err(format!("reward_shift: wanted a number or `to-zero`, found `{word}`"))
            }
        }
    }
}

impl From<RewardShift> for WrittenShift {
    fn from(shift: RewardShift) -> Self {
        match shift {
            RewardShift::By(x) => Self::Number(x),
            RewardShift::ToZero => Self::Word("to-zero".into()),
        }
    }
}

/// Imagined rollouts. Defaults are MOPO's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// Gradient steps between rollouts.
    pub every: u64,
    /// States of the dataset that a rollout starts from.
    pub starts: usize,
    /// Steps of a rollout (H).
    pub length: usize,
    /// Rollouts that the buffer has room for.
    pub retain: usize,
    /// Share of dataset rows in a batch (η).
    pub real_ratio: f64,
    /// Who acts.
    // Not written down while it is the policy: runs keep the names they had before there was a choice.
    #[serde(skip_serializing_if = "is_default")]
    pub actions: RolloutActions,
    // The same holds for the settings below.
    /// Share of the starts that are first states of episodes; the rest are drawn from all rows.
    #[serde(skip_serializing_if = "is_default")]
    pub first_states: f64,
    /// One member of the ensemble makes all steps of a trajectory, instead of one drawn for each step.
    #[serde(skip_serializing_if = "is_default")]
    pub one_member: bool,
    /// Rows that the buffer has room for. Without it, `starts` · `length` · `retain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<usize>,
    /// Weight of the critics' mean loss on logged rows beside that on imagined ones, which has the rest, whatever the share of
    /// each in a batch. Without it, all rows count alike. The actor's loss counts all rows alike in any case: which states it
    /// learns at is up to `real_ratio`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logged_weight: Option<f32>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            every: 1000,
            starts: 50_000,
            length: 5,
            retain: 5,
            real_ratio: 0.9,
            actions: RolloutActions::default(),
            first_states: 0.0,
            one_member: false,
            buffer: None,
            logged_weight: None,
        }
    }
}

/// Who acts in imagined rollouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutActions {
    /// The policy that is being learnt.
    #[default]
    Policy,
    /// Actions drawn uniformly from [−1, 1], an option of COMBO and RAMBO.
    Uniform,
}

impl RolloutConfig {
    /// Most rows that are kept.
    pub fn capacity(&self) -> usize {
        self.buffer.unwrap_or(self.starts * self.length * self.retain)
    }

    /// Rows of a batch of `batch` that come from the dataset.
    pub fn real_rows(&self, batch: usize) -> usize {
        (batch as f64 * self.real_ratio) as usize
    }

    /// Says what is wrong with the values, if anything.
    pub fn validate(&self) -> Result<()> {
        for (name, value) in [
            ("every", self.every as usize),
            ("starts", self.starts),
            ("length", self.length),
            ("retain", self.retain),
            ("buffer", self.buffer.unwrap_or(1)),
        ] {
            if value == 0 {
                return Err(invalid!("rollout.{name}: wanted at least 1, found 0"));
            }
        }
        if !(0.0..=1.0).contains(&self.first_states) {
            return Err(invalid!(
                "rollout.first_states: wanted a number from 0 to 1, found {}",
                self.first_states
            ));
        }
        if !(0.0..=1.0).contains(&self.real_ratio) {
            return Err(invalid!(
                "rollout.real_ratio: wanted a number from 0 to 1, found {}; the paper has 0.9",
                self.real_ratio
            ));
        }
        if let Some(weight) = self.logged_weight {
            ensure((0.0..=1.0).contains(&weight), "rollout.logged_weight", "a number from 0 to 1", weight)?;
        }
        Ok(())
    }

    /// Says whether a batch has rows of one kind only although their weights are given.
    fn validate_weight(&self, batch: usize) -> Result<()> {
        let real = self.real_rows(batch);
        if self.logged_weight.is_some() && (real == 0 || real >= batch) {
            return Err(invalid!(
                "rollout.logged_weight: wanted logged and imagined rows to weigh, found {real} logged rows in a batch of \
                 {batch}; set rollout.real_ratio between 0 and 1, or leave the weight out"
            ));
        }
        Ok(())
    }
}

/// The dynamics model of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Size and training.
    pub ensemble: EnsembleConfig,
    /// Seed of the model's training. Without it, the run's own seed, as in the paper. With one number, runs of all seeds
    /// share one model.
    pub seed: Option<u64>,
    /// When imagined episodes end. Without it, the rule of the dataset's task; where the task is not known, a classifier learnt
    /// from the rows that end, or never if none does (docs/data.md#when-imagined-episodes-end).
    pub termination: Option<TerminationConfig>,
    /// Name of a function of the program that trains: rewards of imagined steps come from it, not from the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward: Option<String>,
    /// Name of a function of the program that trains: it sees the next states that the model sampled, and says what they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamics: Option<String>,
}

impl ModelConfig {
    /// The rule by which imagined episodes end: the one given, or that of the dataset's task, or what the log suggests.
    pub fn termination_for(&self, data: &Dataset) -> Result<TerminationConfig> {
        match (&self.termination, self.rule_of_log(data)) {
            (Some(given), _) => Ok(given.clone()),
            (None, Some(suggested)) => Ok(suggested),
            (None, None) => TerminationConfig::of_task(&data.name, data.goal()),
        }
    }

    /// What the log alone suggests, where no rule is given and the task is not known: to learn from the rows that end, or never.
    pub(super) fn rule_of_log(&self, data: &Dataset) -> Option<TerminationConfig> {
        let known = self.termination.is_some() || body_of(&data.name.to_ascii_lowercase()).is_some();
        let ends = data.rows.done.iter().any(|&done| done);
        (!known).then(|| match ends {
            true => TerminationConfig::Learnt { classifier: LearnedConfig::default() },
            false => TerminationConfig::Never {},
        })
    }

    /// Those of the program's functions that these settings name.
    ///
    /// # Errors
    /// A name that the program did not bring.
    pub fn select_parts(&self, brought: &ModelParts) -> Result<ModelParts> {
        let termination = match &self.termination {
            Some(TerminationConfig::Custom { name }) => Some(name.as_str()),
            _ => None,
        };
        brought.select(termination, self.reward.as_deref(), self.dynamics.as_deref())
    }

    /// Says why no model can be fitted to these data, if so, before hours are spent on it.
    pub fn validate_for(&self, data: &Dataset) -> Result<()> {
        self.termination_for(data)?.validate_for(&data.rows, &data.names)?;
        self.ensemble.validate_for(data.rows.len())?;
        check_rows(&data.rows)
    }
}

/// The settings that algorithms share, where they have them.
#[derive(Clone, Copy)]
pub struct Blocks<'a> {
    /// The training loop.
    pub train: &'a TrainConfig,
    /// Rollouts of a [`SacLearner`](super::SacLearner).
    pub rollout: Option<&'a RolloutConfig>,
    /// The dynamics model.
    pub model: Option<&'a ModelConfig>,
    /// An estimator that is built before training.
    pub uncertainty: Option<&'a UncertaintyConfig>,
    /// What is done about its scores.
    pub pessimism: Option<&'a Pessimism>,
    /// The agent.
    pub sac: Option<&'a SacConfig>,
}

impl<'a> Blocks<'a> {
    /// A training loop and nothing else.
    pub fn new(train: &'a TrainConfig) -> Self {
        Self { train, rollout: None, model: None, uncertainty: None, pessimism: None, sac: None }
    }

    /// Says what is wrong with the values, if anything.
    pub(super) fn validate(&self) -> Result<()> {
        self.train.validate()?;
        self.rollout.map_or(Ok(()), RolloutConfig::validate)?;
        self.rollout.map_or(Ok(()), |rollout| rollout.validate_weight(self.train.batch))?;
        self.model.map_or(Ok(()), |model| model.ensemble.validate())?;
        self.sac.map_or(Ok(()), SacConfig::validate)?;
        self.pessimism.map_or(Ok(()), Pessimism::validate)
    }

    /// Says why no model or estimator can be fitted to these data, if so.
    pub(super) fn validate_for(&self, data: &Dataset) -> Result<()> {
        let Some(model) = self.model else { return Ok(()) };
        model.validate_for(data)?;
        match (self.uncertainty, self.pessimism) {
            (Some(estimator), Some(rule)) if rule.needs_scores() => estimator
                .validate_without_critics()
                .and_then(|()| estimator.validate(data.rows.len(), &model.ensemble))
                .map_err(|e| invalid!("uncertainty: {e}")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_is_a_number_or_takes_the_smallest_reward_to_zero() {
        let read = |text: &str| serde_json::from_str::<TrainConfig>(text);
        let rewards = ndarray::arr1(&[2.0, -0.5, 1.0]);
        for (text, wanted) in
            [("{}", 0.0), (r#"{"reward_shift": -1}"#, -1.0), (r#"{"reward_shift": "to-zero"}"#, 0.5)]
        {
            let cfg = read(text).unwrap();
            assert_eq!(cfg.reward_shift.of(&rewards), wanted);
            assert_eq!(read(&serde_json::to_string(&cfg).unwrap()).unwrap(), cfg, "written as it is read");
        }
        let error = read(r#"{"reward_shift": "zero"}"#).unwrap_err().to_string();
        assert!(error.contains("a number or `to-zero`, found `zero`"), "{error}");
    }
}
