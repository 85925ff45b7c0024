//! What a study finds: how each estimator's score goes with the true error.

use ndarray::Array1;
use serde::{Deserialize, Serialize};

use super::rows::{Imaginings, Truth, mean_next};
use super::{StudyConfig, Subject};
use crate::algorithms::Session;
use crate::batch::Mat;
use crate::dynamics::ModelStep;
use crate::error::Result;
use crate::run::PhaseTimer;
use crate::stats::{self, Interval};
use crate::uncertainty::{BellmanStd, BuildContext, Uncertainty, UncertaintyConfig, build_all};

/// Which ŝ' is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// As sampled, as the model gives it: the paper's, and the headline.
    Sampled,
    /// As sampled, clipped as the simulator's observation clips.
    SampledClipped,
    /// The member's mean.
    Mean,
    /// The member's mean, clipped.
    MeanClipped,
}

/// Which rows are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// All that have a truth.
    All,
    /// Those before the model's own termination.
    BeforeEnd,
    /// Those with every |entry| of s and ŝ' below 100.
    Bounded,
    /// Those whose velocities no clipping touched, before and after the step.
    Unclipped,
}

const VARIANTS: [Variant; 4] =
    [Variant::Sampled, Variant::SampledClipped, Variant::Mean, Variant::MeanClipped];
const PARTS: [Part; 4] = [Part::All, Part::BeforeEnd, Part::Bounded, Part::Unclipped];

/// How one estimator did on one choice of rows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// The estimator's name; `step` for the rollout step itself, the baseline.
    pub estimator: String,
    /// Which ŝ'.
    pub variant: Variant,
    /// Which rows.
    pub part: Part,
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Study {
    /// Rows imagined and kept.
    pub rows: usize,
    /// Rows left out because their numbers exploded in the model.
    pub exploded: usize,
    /// Rows left out because the simulator could not say what follows.
    pub lost: usize,
    /// Rows replayed from clipped velocities.
    pub clipped: usize,
    /// Whether the truth came from a simulator, or from held-out transitions.
    pub simulated: bool,
    /// All findings.
    pub findings: Vec<Finding>,
    /// Costs.
    pub timings: Vec<Timing>,
    /// True error of each row of the headline variant, with age: for plots.
    pub error: Vec<(usize, f64)>,
    /// Scores of each estimator on those rows: for plots.
    pub scores: Vec<(String, Vec<f64>)>,
}

/// Scores the rows by every estimator and compares.
pub fn judge(
    cfg: &StudyConfig,
    estimators: &[(String, UncertaintyConfig)],
    subject: &Subject,
    rows: &Imaginings,
    truth: &Truth,
    session: &mut Session<'_>,
) -> Result<Study> {
    let usable: Vec<usize> = (0..rows.age.len()).filter(|&i| !truth.lost[i]).collect();
    let mut study = Study {
        rows: rows.age.len(),
        exploded: rows.exploded,
        lost: rows.age.len() - usable.len(),
        clipped: truth.clipped.iter().filter(|c| **c).count(),
        simulated: true,
        findings: Vec::new(),
        timings: Vec::new(),
        error: Vec::new(),
        scores: Vec::new(),
    };
    let configs: Vec<UncertaintyConfig> =
        estimators.iter().map(|(_, c)| c.clone()).filter(|c| !c.needs_critics()).collect();
    let data = &session.data.rows;
    let (pool, home) = (session.pool.clone(), Some(session.home));
    let source = BuildContext {
        model: Some(&subject.model),
        pool,
        seed: session.seed,
        home,
        ..BuildContext::of_data(data)
    };
    let built = build_all(&configs, &source)?;
    built.iter().filter_map(|estimator| estimator.warning()).for_each(|remark| session.note(remark));
    let mut built = built.into_iter();
    let mut scorers: Vec<(String, Scorer)> = Vec::new();
    for (name, config) in estimators {
        let scorer = match config {
            UncertaintyConfig::BellmanStd(c) => Scorer::Bellman(BellmanStd::new(c, subject.model.elites())?),
            _ => Scorer::Plain(built.next().expect("one estimator for each configuration")),
        };
        scorers.push((name.clone(), scorer));
    }
    for variant in VARIANTS {
        let next = match variant {
            Variant::Sampled => rows.step.batch.next_obs.clone(),
            Variant::SampledClipped => truth.shown.clone(),
            Variant::Mean => mean_next(&rows.step),
            Variant::MeanClipped => truth.shown_mean.clone(),
        };
        let errors = distances(&next, &truth.next_obs);
        let mut step = rows.step.clone();
        step.batch.next_obs = next;
        let steps: Vec<f64> = rows.age.iter().map(|&a| a as f64).collect();
        let mut columns = vec![("step".to_string(), steps)];
        for (name, scorer) in &scorers {
            let timer = PhaseTimer::default();
            let scores = scorer.score(&step, subject, session)?;
            if variant == Variant::Sampled {
                let seconds = timer.elapsed() * 1e4 / rows.age.len().max(1) as f64;
                study.timings.push(scorer.timing(name, seconds, &scores));
            }
            columns.push((name.clone(), scores.iter().map(|&u| f64::from(u)).collect()));
        }
        for part in PARTS {
            let picks: Vec<usize> = usable
                .iter()
                .copied()
                .filter(|&i| belongs(part, i, rows, truth, &step.batch.next_obs))
                .collect();
            for (name, scores) in &columns {
                study
                    .findings
                    .push(compare(cfg, name, variant, part, &picks, scores, &errors, rows, session));
            }
        }
        if variant == Variant::Sampled {
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

fn belongs(part: Part, row: usize, rows: &Imaginings, truth: &Truth, next: &Mat) -> bool {
    let small = |m: &Mat| m.row(row).iter().all(|x| x.abs() < 100.0);
    match part {
        Part::All => true,
        Part::BeforeEnd => !rows.after_end[row],
        Part::Bounded => small(&rows.step.batch.obs) && small(next),
        // A clipped s was replayed from other velocities; a clipped ŝ' is compared with what the simulator hides.
        Part::Unclipped => {
            let unchanged = truth.shown.row(row) == rows.step.batch.next_obs.row(row);
            !truth.clipped[row] && unchanged
        }
    }
}

#[allow(clippy::too_many_arguments, reason = "a row of the table is its coordinates")]
fn compare(
    cfg: &StudyConfig,
    name: &str,
    variant: Variant,
    part: Part,
    picks: &[usize],
    scores: &[f64],
    errors: &[f64],
    rows: &Imaginings,
    session: &Session<'_>,
) -> Finding {
    let column = |values: &[f64], of: &[usize]| -> Vec<f64> { of.iter().map(|&i| values[i]).collect() };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut by_age: Vec<Vec<usize>> = Vec::new();
    for &i in picks {
        for (list, at) in [(&mut groups, rows.trajectory[i]), (&mut by_age, rows.age[i])] {
            if list.len() <= at {
                list.resize(at + 1, Vec::new());
            }
            list[at].push(i);
        }
    }
    groups.retain(|g| !g.is_empty());
    let repeats = if variant == Variant::Sampled { cfg.bootstrap } else { 0 };
    let (u, e) = (column(scores, picks), column(errors, picks));
    // Groups count rows of the whole study; the columns hold the picked ones.
    let place: std::collections::HashMap<usize, usize> =
        picks.iter().enumerate().map(|(at, &i)| (i, at)).collect();
    groups.iter_mut().flatten().for_each(|i| *i = place[i]);
    let mut rng = session.rng("calibrate/bootstrap", 0);
    let (rho, r) = stats::correlation_intervals(&u, &e, &groups, repeats, 0.95, &mut rng);
    let within: Vec<f64> = by_age
        .iter()
        .map(|of| stats::spearman(&column(scores, of), &column(errors, of)))
        .filter(|rho| rho.is_finite())
        .collect();
    let worst = stats::largest(&e, 0.1);
    Finding {
        estimator: name.to_string(),
        variant,
        part,
        rows: picks.len(),
        rho,
        r,
        rho_within_step: within.iter().sum::<f64>() / within.len() as f64,
        auroc: stats::auroc(&u, &worst),
        auprc: stats::auprc(&u, &worst),
    }
}

/// ‖a − b‖₂ of each row.
fn distances(a: &Mat, b: &Mat) -> Vec<f64> {
    let row = |(a, b): (ndarray::ArrayView1<'_, f32>, ndarray::ArrayView1<'_, f32>)| {
        a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
    };
    a.rows().into_iter().zip(b.rows()).map(row).collect()
}
