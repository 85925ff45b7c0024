//! The dataset constraint: an actor is held to the logged rows nearest to what it does, found by exact search (PRDC, Ran et
//! al. 2023).

use ndarray::{Axis, concatenate};
use offing_knn::{NeighborIndex, Threads, Tree, TreeConfig};
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Mat};
use crate::error::Result;
use crate::sac::Standardiser;

/// The dataset constraint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Constraint {
    /// Weight of the critics beside the constraint: λ = weight / mean |Q|. With `spread`, its first value.
    pub weight: f32,
    /// Adapt the weight until the policy's mean squared distance from logged actions is this multiple of the clone's, which
    /// is the spread of the logged actions. Data of many policies so leave more freedom than data of one. Without it, the
    /// weight stays.
    pub spread: Option<f32>,
    /// Factor on standardised states in the search for the nearest row (β). A large one makes the constraint behaviour
    /// cloning, a small one leaves the actor free to take actions from other states.
    pub state_scale: f32,
}

impl Default for Constraint {
    fn default() -> Self {
        Self { weight: 2.5, spread: None, state_scale: 2.0 }
    }
}

/// The logged action nearest to what a policy does.
pub(super) struct NearestActions<'a> {
    index: Tree,
    act: &'a Mat,
    state_scale: f32,
}

impl<'a> NearestActions<'a> {
    pub(super) fn new(
        rows: &'a Batch,
        standardiser: &Standardiser,
        state_scale: f32,
        threads: usize,
    ) -> Result<Self> {
        let mut obs = rows.obs.clone();
        standardiser.apply(&mut obs);
        obs *= state_scale;
        let points = side_by_side(&obs, &rows.act);
        let config = TreeConfig { threads: Threads::Exactly(threads), ..TreeConfig::default() };
        Ok(Self { index: Tree::new(&config, points.view())?, act: &rows.act, state_scale })
    }

    /// The actions of the rows nearest to (s, a), for standardised states.
    pub(super) fn find(&self, obs: &Mat, act: &Mat) -> Result<Mat> {
        let points = side_by_side(&(obs * self.state_scale), act);
        let found = self.index.search(points.view(), 1)?;
        let rows: Vec<usize> = found.ids.iter().map(|&id| id as usize).collect();
        Ok(self.act.select(Axis(0), &rows))
    }
}

fn side_by_side(left: &Mat, right: &Mat) -> Mat {
    concatenate(Axis(1), &[left.view(), right.view()]).expect("as many rows on both sides")
}

/// The weight of the critics beside the constraint.
#[derive(Clone, Debug)]
pub(super) struct AdaptiveWeight {
    spread: Option<f64>,
    pub(super) log_weight: f64,
    /// Running means of the squared distance from logged actions, of the clone and of the policy.
    pub(super) of_clone: f64,
    pub(super) distance: f64,
}

impl AdaptiveWeight {
    /// Share of a new distance in the running means.
    const SHARE: f64 = 0.01;
    /// How fast the weight follows.
    const RATE: f64 = 2e-3;

    pub(super) fn new(cfg: &Constraint) -> Self {
        let log_weight = f64::from(cfg.weight).ln();
        Self { spread: cfg.spread.map(f64::from), log_weight, of_clone: 0.0, distance: 0.0 }
    }

    pub(super) fn value(&self) -> f32 {
        self.log_weight.exp() as f32
    }

    /// Takes a distance of the clone into account.
    pub(super) fn clone_took(&mut self, distance: f64) {
        let share = if self.of_clone == 0.0 { 1.0 } else { Self::SHARE };
        self.of_clone += share * (distance - self.of_clone);
        self.distance = self.of_clone;
    }

    /// Takes a distance of the policy into account: beyond the allowed spread the weight falls, within it rises.
    pub(super) fn adapt(&mut self, distance: f64) {
        self.distance += Self::SHARE * (distance - self.distance);
        let allowed = self.spread.map(|spread| spread * self.of_clone).filter(|&allowed| allowed > 0.0);
        if let Some(allowed) = allowed {
            let room = (1.0 - distance / allowed).clamp(-1.0, 1.0);
            self.log_weight = (self.log_weight + Self::RATE * room).clamp(0.1f64.ln(), 1000f64.ln());
        }
    }
}
