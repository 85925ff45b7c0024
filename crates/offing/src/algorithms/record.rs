//! What a training writes about its policies: scores, metrics, files.

use serde_json::{Map, Value, json};

use super::config::TrainConfig;
use super::session::{Event, Pick, Session, Status};
use crate::error::{Error, Result};
use crate::eval::{Evaluation, evaluate};
use crate::rollout::RolloutStats;
use crate::sac::{Actor, Deterministic};

/// The file of the policy with the highest return in the model.
pub const PICKED_POLICY: &str = "picked.safetensors";

/// The directory of policies kept on the way (`train.snapshot_every`).
pub const SNAPSHOTS: &str = "snapshots";

impl Session<'_> {
    /// Scores the policy, where there is a simulator, and records that together with `metrics`; keeps the best policy and
    /// the one of the highest estimated return.
    pub(super) fn record(
        &mut self,
        cfg: &TrainConfig,
        status: &mut Status,
        actor: &Actor,
        metrics: Metrics,
    ) -> Result<()> {
        let mut line = Map::from_iter([("step".to_string(), json!(status.step))]);
        line.extend(metrics.numbers);
        let is_higher = |value: &f64| self.pick.is_none_or(|pick| *value > pick.estimated_return);
        let picked = metrics.estimated_return.filter(is_higher);
        if let Some(estimated_return) = picked {
            self.pick = Some(Pick { estimated_return, step: status.step });
            self.run.write(PICKED_POLICY, &self.outward(actor).to_policy().to_bytes()?)?;
        }
        if let Some(pick) = self.pick {
            line.insert("picked_step".into(), json!(pick.step));
        }
        if let Some(found) = self.evaluate(actor, cfg.episodes, status.step)? {
            let mean = found.mean();
            line.insert("return".into(), json!(mean));
            line.insert("return_std".into(), json!(found.std()));
            line.insert("length".into(), json!(found.mean_length()));
            let reference = self.evaluator.and_then(|evaluator| evaluator.reference);
            status.last_score = reference.map(|r| found.score(&r));
            line.insert("score".into(), json!(status.last_score));
            if self.scores.best.is_none_or(|best| mean > best) {
                self.scores.best = Some(mean);
                self.run.write("best.safetensors", &self.outward(actor).to_policy().to_bytes()?)?;
            }
            self.scores.last = Some(mean);
            if picked.is_some() {
                self.scores.picked = Some(mean);
            }
            status.scores = self.scores;
        }
        self.run.record(Value::Object(line.clone()))?;
        let _ = (self.on_event)(Event::Recorded(&line));
        Ok(())
    }

    /// The policy's episodes, where there is something to play them in.
    fn evaluate(&mut self, actor: &Actor, episodes: usize, step: u64) -> Result<Option<Evaluation>> {
        let (seed, outward) = (self.rng("evaluate", step).bits(), self.outward(actor));
        let (own, evaluator) = (&mut self.own_evaluation, self.evaluator);
        self.timer.time("evaluate", || match (own, evaluator) {
            (Some(own), _) => own(&outward, episodes, seed).map(Some),
            (None, Some(known)) => evaluate(known.envs, &Deterministic(&outward), episodes, seed).map(Some),
            (None, None) => Ok(None),
        })
    }

    /// Keeps the policy as it is now, so that `act` and other programs can read it.
    pub(super) fn write_snapshot(&mut self, step: u64, policy: &Actor) -> Result<()> {
        let dir = self.run.path().join(SNAPSHOTS);
        std::fs::create_dir_all(&dir).map_err(|e| Error::io(&dir, "create the directory", e))?;
        let name = format!("{SNAPSHOTS}/step-{step}.safetensors");
        self.run.write(&name, &policy.to_policy().to_bytes()?).map(drop)
    }

    /// Writes the finished policy.
    pub(super) fn write_policy(&mut self, actor: &Actor) -> Result<()> {
        let actor = self.outward(actor);
        self.run.write("policy.safetensors", &actor.to_policy().to_bytes()?)?;
        self.run.write("policy.onnx", &crate::export::onnx(&actor)?)?;
        Ok(())
    }

    /// The policy in the log's units.
    pub(super) fn outward(&self, actor: &Actor) -> Actor {
        self.data.units.as_ref().map_or_else(|| actor.clone(), |units| units.policy_outward(actor))
    }
}

/// Named numbers of one evaluation, in the order in which they are put.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    numbers: Map<String, Value>,
    /// The policy's return as far as the data alone tell it: that of its actions in a learnt model, say. Of the policies
    /// evaluated on the way, the run keeps the one with the highest as `picked.safetensors`.
    pub estimated_return: Option<f64>,
}

impl Metrics {
    /// Adds a number, or replaces the one of that name.
    pub fn put(&mut self, name: &str, value: Value) {
        self.numbers.insert(name.into(), value);
    }

    /// Adds what rollouts did, under the names that every algorithm's metrics have for it.
    pub fn put_rollout(&mut self, stats: &RolloutStats) {
        self.put("imagined", json!(stats.imagined));
        self.put("truncated", json!(stats.truncated));
        self.put("terminated", json!(stats.terminated));
        self.put("non_finite", json!(stats.non_finite));
        self.put("u_mean", json!(stats.mean_score()));
        self.put("u_max", json!((stats.scored > 0).then_some(stats.score_max)));
        self.put("scored", json!(stats.scored));
    }
}
