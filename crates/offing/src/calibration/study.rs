//! What a study finds: how well each estimator's score follows the true error.

use std::collections::BTreeMap;

use ndarray::Array1;
use serde::{Deserialize, Serialize};

use super::rows::{RolloutRows, TrueSteps, mean_next};
use super::{StudyConfig, Subject};
use crate::algorithms::Session;
use crate::batch::Mat;
use crate::dynamics::ModelStep;
use crate::error::Result;
use crate::rng::Rng;
use crate::run::PhaseTimer;
use crate::stats::{self, Interval};
use crate::uncertainty::{BellmanStd, BuildContext, Uncertainty, UncertaintyConfig, build_all};

/// Which ŝ' the true error is measured at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NextObsKind {
    /// As sampled, as the model gives it: the paper's, and the headline.
    Sampled,
    /// As sampled, clipped as the simulator's observation clips.
    SampledClipped,
    /// The member's mean.
    Mean,
    /// The member's mean, clipped.
    MeanClipped,
}

/// Which rows count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowSubset {
    /// All that have a truth.
    All,
    /// Those before the model's own termination.
    BeforeEnd,
    /// Those with every |entry| of s and ŝ' below 100.
    Bounded,
    /// Those whose velocities no clipping touched, before and after the step.
    Unclipped,
}

const VARIANTS: [NextObsKind; 4] =
    [NextObsKind::Sampled, NextObsKind::SampledClipped, NextObsKind::Mean, NextObsKind::MeanClipped];
const SUBSETS: [RowSubset; 4] =
    [RowSubset::All, RowSubset::BeforeEnd, RowSubset::Bounded, RowSubset::Unclipped];

/// How one estimator did on one choice of rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EstimatorResult {
    /// The estimator's name; `step` for the rollout step itself, the baseline.
    pub estimator: String,
    /// Which ŝ'.
    pub variant: NextObsKind,
    /// Which rows.
    pub part: RowSubset,
    /// How many rows.
    pub rows: usize,
    /// Spearman's ρ with its interval; the interval is drawn for the headline variant only.
    pub rho: Interval,
    /// Pearson's r.
    pub r: Interval,
    /// Mean of ρ over rows of equal age: what is left when the rollout step cannot be guessed from.
    #[serde(with = "stats::nan_as_null")]
    pub rho_within_step: f64,
    /// Area under the ROC curve for the worst tenth of the rows.
    #[serde(with = "stats::nan_as_null")]
    pub auroc: f64,
    /// Area under the precision-recall curve for the worst tenth.
    #[serde(with = "stats::nan_as_null")]
    pub auprc: f64,
}

/// What scoring costs, and how many rows a threshold would cut.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// The estimator's name.
    pub estimator: String,
    /// Seconds for 10,000 scores. A timer reading: it differs from run to run.
    pub seconds_per_10k: f64,
    /// The dataset's largest leave-one-out score.
    pub max_loo_score: Option<f32>,
    /// Share of rows beyond α times it, for α = 1, 5, 10.
    pub beyond: Option<[f64; 3]>,
}

/// The study of one dataset and seed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Study {
    /// Rows of the rollouts.
    pub rows: usize,
    /// Rows left out because the model's numbers left their range.
    pub exploded: usize,
    /// Rows left out because the simulator could not say what follows.
    pub lost: usize,
    /// Rows replayed from clipped velocities.
    pub clipped: usize,
    /// Whether the truth came from a simulator, or from held-out transitions.
    pub simulated: bool,
    /// All findings.
    pub findings: Vec<EstimatorResult>,
    /// Costs.
    pub timings: Vec<Timing>,
    /// True error of each row of the headline variant, with age: for plots.
    pub error: Vec<(usize, f64)>,
    /// Scores of each estimator on those rows: for plots.
    pub scores: Vec<(String, Vec<f64>)>,
}

/// Scores the rows by every estimator and compares the scores with the true errors.
pub(super) fn compare_estimators(
    cfg: &StudyConfig,
    estimators: &[(String, UncertaintyConfig)],
    subject: &Subject,
    (rows, truth): (&RolloutRows, &TrueSteps),
    session: &mut Session<'_>,
) -> Result<Study> {
    let usable: Vec<usize> = (0..rows.age.len()).filter(|&i| !truth.lost[i]).collect();
    let mut study = Study {
        rows: rows.age.len(),
        exploded: rows.exploded,
        lost: rows.age.len() - usable.len(),
        clipped: truth.clipped.iter().filter(|c| **c).count(),
        ..Study::default()
    };
    let scorers = build_scorers(estimators, subject, session)?;
    for variant in VARIANTS {
        let mut step = rows.step.clone();
        match variant {
            NextObsKind::Sampled => {}
            NextObsKind::SampledClipped => step.batch.next_obs.assign(&truth.shown),
            NextObsKind::Mean => step.batch.next_obs = mean_next(&rows.step),
            NextObsKind::MeanClipped => step.batch.next_obs.assign(&truth.shown_mean),
        }
        let errors = distances(&step.batch.next_obs, &truth.next_obs);
        let mut columns = vec![("step".to_string(), rows.age.iter().map(|&a| a as f64).collect())];
        for ((name, _), scorer) in estimators.iter().zip(&scorers) {
            let timer = PhaseTimer::default();
            let scores = scorer.score(&step, subject, session)?;
            if variant == NextObsKind::Sampled {
                let seconds = timer.elapsed() * 1e4 / rows.age.len().max(1) as f64;
                study.timings.push(scorer.timing(name, seconds, &scores));
            }
            columns.push((name.clone(), scores.iter().map(|&u| f64::from(u)).collect::<Vec<f64>>()));
        }
        for part in SUBSETS {
            let belongs = |&i: &usize| belongs(part, i, rows, truth, &step.batch.next_obs);
            let picked = Picked::new(rows, &errors, usable.iter().copied().filter(belongs).collect());
            for (name, scores) in &columns {
                let repeats = if variant == NextObsKind::Sampled { cfg.bootstrap } else { 0 };
                let mut rng = session.rng("calibrate/bootstrap", 0);
                study.findings.push(picked.compare(name, variant, part, scores, repeats, &mut rng));
            }
        }
        if variant == NextObsKind::Sampled {
            study.error = usable.iter().map(|&i| (rows.age[i], errors[i])).collect();
            study.scores = (columns.into_iter().skip(1))
                .map(|(name, scores)| (name, usable.iter().map(|&i| scores[i]).collect()))
                .collect();
        }
    }
    Ok(study)
}

/// An estimator, with the critics where it needs them.
enum Scorer {
    Plain(Box<dyn Uncertainty>),
    Bellman(BellmanStd),
}

/// One scorer for each estimator.
fn build_scorers(
    estimators: &[(String, UncertaintyConfig)],
    subject: &Subject,
    session: &mut Session<'_>,
) -> Result<Vec<Scorer>> {
    let configs: Vec<UncertaintyConfig> =
        estimators.iter().map(|(_, c)| c.clone()).filter(|c| !c.needs_critics()).collect();
    let context = BuildContext {
        model: Some(&subject.model),
        pool: session.pool.clone(),
        seed: session.seed,
        home: Some(session.home),
        custom: session.estimators,
        ..BuildContext::of_data(&session.data.rows)
    };
    let built = build_all(&configs, &context)?;
    built.iter().filter_map(|estimator| estimator.warning()).for_each(|warning| session.note(warning));
    let mut built = built.into_iter();
    let scorer = |(_, config): &(String, UncertaintyConfig)| match config {
        UncertaintyConfig::BellmanStd(c) => Ok(Scorer::Bellman(BellmanStd::new(c, subject.model.elites())?)),
        _ => Ok(Scorer::Plain(built.next().expect("one estimator for each configuration"))),
    };
    estimators.iter().map(scorer).collect()
}

impl Scorer {
    fn score(&self, step: &ModelStep, subject: &Subject, session: &Session<'_>) -> Result<Array1<f32>> {
        match self {
            Self::Plain(estimator) => estimator.score(step),
            Self::Bellman(estimator) => {
                let prediction = step.prediction.as_ref().expect("a study's steps carry every member");
                let mut rng = session.rng("calibrate/bellman", 0);
                Ok(estimator.score(prediction, &subject.agent, session.pool, &mut rng))
            }
        }
    }

    fn timing(&self, name: &str, seconds_per_10k: f64, scores: &Array1<f32>) -> Timing {
        let max_loo_score = match self {
            Self::Plain(estimator) => Some(estimator.max_loo_score()),
            Self::Bellman(_) => None,
        };
        let share =
            |limit: f32| scores.iter().filter(|u| **u > limit).count() as f64 / scores.len().max(1) as f64;
        let beyond = max_loo_score.map(|max| [1.0, 5.0, 10.0].map(|alpha| share(alpha * max)));
        Timing { estimator: name.to_string(), seconds_per_10k, max_loo_score, beyond }
    }
}

fn belongs(part: RowSubset, row: usize, rows: &RolloutRows, truth: &TrueSteps, next: &Mat) -> bool {
    let small = |m: &Mat| m.row(row).iter().all(|x| x.abs() < 100.0);
    match part {
        RowSubset::All => true,
        RowSubset::BeforeEnd => !rows.after_end[row],
        RowSubset::Bounded => small(&rows.step.batch.obs) && small(next),
        // A clipped s was replayed from other velocities; a clipped ŝ' is compared with what the simulator hides.
        RowSubset::Unclipped => {
            let unchanged = truth.shown.row(row) == rows.step.batch.next_obs.row(row);
            !truth.clipped[row] && unchanged
        }
    }
}

/// Some rows with their true errors, which every estimator's scores are compared with.
struct Picked {
    rows: Vec<usize>,
    errors: Vec<f64>,
    /// Places in `rows`, by trajectory and by age.
    by_trajectory: Vec<Vec<usize>>,
    by_age: Vec<Vec<usize>>,
}

impl Picked {
    fn new(all: &RolloutRows, errors: &[f64], rows: Vec<usize>) -> Self {
        let group = |key: &[usize]| {
            let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            rows.iter().enumerate().for_each(|(at, &i)| groups.entry(key[i]).or_default().push(at));
            groups.into_values().collect()
        };
        let (by_trajectory, by_age) = (group(&all.trajectory), group(&all.age));
        Self { errors: rows.iter().map(|&i| errors[i]).collect(), by_trajectory, by_age, rows }
    }

    fn compare(
        &self,
        name: &str,
        variant: NextObsKind,
        part: RowSubset,
        scores: &[f64],
        repeats: usize,
        rng: &mut Rng,
    ) -> EstimatorResult {
        let (u, e): (Vec<f64>, _) = (self.rows.iter().map(|&i| scores[i]).collect(), &self.errors);
        let (rho, r) = stats::correlation_intervals(&u, e, &self.by_trajectory, repeats, 0.95, rng);
        let column = |values: &[f64], of: &[usize]| -> Vec<f64> { of.iter().map(|&at| values[at]).collect() };
        let within: Vec<f64> = (self.by_age.iter())
            .map(|of| stats::spearman(&column(&u, of), &column(e, of)))
            .filter(|rho| rho.is_finite())
            .collect();
        let worst = stats::largest(e, 0.1);
        EstimatorResult {
            estimator: name.to_string(),
            variant,
            part,
            rows: self.rows.len(),
            rho,
            r,
            rho_within_step: within.iter().sum::<f64>() / within.len() as f64,
            auroc: stats::auroc(&u, &worst),
            auprc: stats::auprc(&u, &worst),
        }
    }
}

/// ‖a − b‖₂ of each row.
fn distances(a: &Mat, b: &Mat) -> Vec<f64> {
    let row = |(a, b): (ndarray::ArrayView1<'_, f32>, ndarray::ArrayView1<'_, f32>)| {
        a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
    };
    a.rows().into_iter().zip(b.rows()).map(row).collect()
}
