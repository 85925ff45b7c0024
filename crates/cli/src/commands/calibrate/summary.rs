//! Studies of several seeds as one table.

use anyhow::Result;
use offing::calibration::{EstimatorResult, NextObsKind, RowSubset, Study};
use offing::stats::{self, Interval};

use crate::csv::field;
use crate::term;

/// The studies of one dataset.
pub(crate) struct Summary {
    pub(crate) dataset: String,
    pub(crate) studies: Vec<(u64, Study)>,
}

/// Mean over seeds, with the standard deviation where there are several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mean {
    pub(crate) mean: f64,
    pub(crate) std: f64,
    pub(crate) seeds: usize,
}

impl Mean {
    pub(crate) fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let square: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        Self { mean, std: if n > 1.0 { (square / (n - 1.0)).sqrt() } else { 0.0 }, seeds: values.len() }
    }

    pub(crate) fn text(&self) -> String {
        if !self.mean.is_finite() {
            return "-".into();
        }
        if self.seeds > 1 {
            format!("{:.2} ± {:.2}", self.mean, self.std)
        } else {
            format!("{:.2}", self.mean)
        }
    }
}

impl Summary {
    pub(crate) fn new(dataset: &str) -> Self {
        Self { dataset: dataset.into(), studies: Vec::new() }
    }

    pub(crate) fn add(&mut self, seed: u64, study: Study) {
        self.studies.push((seed, study));
    }

    /// Names in the order of the study, the step baseline first.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for f in self.studies.iter().flat_map(|(_, s)| &s.findings) {
            if !names.contains(&f.estimator) {
                names.push(f.estimator.clone());
            }
        }
        names
    }

    /// A number of one estimator on one choice of rows, over seeds.
    pub(crate) fn mean(
        &self,
        name: &str,
        variant: NextObsKind,
        part: RowSubset,
        pick: impl Fn(&EstimatorResult) -> f64,
    ) -> Mean {
        let is = |f: &&EstimatorResult| f.estimator == name && f.variant == variant && f.part == part;
        let values: Vec<f64> =
            self.studies.iter().filter_map(|(_, s)| s.findings.iter().find(is).map(&pick)).collect();
        Mean::of(&values)
    }

    /// The headline: all rows, ŝ' as sampled, not clipped.
    pub(crate) fn headline(&self) -> Vec<Vec<String>> {
        let row = |name: &String| {
            let of = |pick: fn(&EstimatorResult) -> f64| {
                self.mean(name, NextObsKind::Sampled, RowSubset::All, pick)
            };
            let mut cells = vec![name.clone()];
            let picks: [fn(&EstimatorResult) -> f64; 5] =
                [|f| f.rho.value, |f| f.r.value, |f| f.rho_within_step, |f| f.auroc, |f| f.auprc];
            cells.extend(picks.map(|pick| of(pick).text()));
            let timing = self.studies.iter().flat_map(|(_, s)| &s.timings).find(|t| &t.estimator == name);
            let share = timing.and_then(|t| t.beyond).map(|b| b.map(|share| format!("{:.0}", 100.0 * share)));
            cells.push(share.map_or("-".into(), |b| format!("{} %", b.join(", "))));
            cells.push(timing.map_or("-".into(), |t| format!("{:.0}", 1e3 * t.seconds_per_10k)));
            cells
        };
        self.names().iter().map(row).collect()
    }

    pub(crate) const HEADER: [&'static str; 8] =
        ["estimator", "ρ", "r", "ρ within a step", "AUROC", "AUPRC", "u > α·max, α = 1, 5, 10", "ms/10k"];

    /// ρ and r of every seed with their bootstrap intervals of 95 %.
    pub(crate) fn intervals(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let text = |of: &Interval| match of.low.is_finite() {
            true => format!("{:.2} [{:.2}, {:.2}]", of.value, of.low, of.high),
            false => "-".into(),
        };
        let row = |name: &String| {
            let mut cells = vec![name.clone()];
            for (_, study) in &self.studies {
                let headline = |f: &&EstimatorResult| {
                    f.estimator == *name && f.variant == NextObsKind::Sampled && f.part == RowSubset::All
                };
                let found = study.findings.iter().find(headline);
                cells.extend([
                    found.map_or("-".into(), |f| text(&f.rho)),
                    found.map_or("-".into(), |f| text(&f.r)),
                ]);
            }
            cells
        };
        let seeds =
            self.studies.iter().flat_map(|(seed, _)| [format!("ρ, seed {seed}"), format!("r, seed {seed}")]);
        let header = std::iter::once("95 % interval".to_string()).chain(seeds).collect();
        (header, self.names().iter().map(row).collect())
    }

    /// ρ in five stretches of a rollout, mean over seeds.
    pub(crate) fn by_step(&self) -> (Vec<String>, Vec<Vec<String>>) {
        const STRETCHES: usize = 5;
        let ages = |study: &Study| study.error.iter().map(|(age, _)| *age).max();
        let length = self.studies.iter().filter_map(|(_, s)| ages(s)).max().map_or(0, |last| last + 1);
        let width = length.div_ceil(STRETCHES).max(1);
        let stretches: Vec<std::ops::Range<usize>> =
            (0..length).step_by(width).map(|first| first..(first + width).min(length)).collect();
        let rho = |study: &Study, name: &str, stretch: &std::ops::Range<usize>| {
            // Scores that were kept by another version may be of other rows.
            let named = |(of, scores): &&(String, Vec<f64>)| of == name && scores.len() == study.error.len();
            let scores = &study.scores.iter().find(named)?.1;
            let rows = || (0..scores.len()).filter(|&i| stretch.contains(&study.error[i].0));
            let (u, error): (Vec<f64>, Vec<f64>) = rows().map(|i| (scores[i], study.error[i].1)).unzip();
            Some(stats::spearman(&u, &error)).filter(|rho| rho.is_finite())
        };
        let row = |name: &String| {
            let over_seeds = |stretch| -> Vec<f64> {
                self.studies.iter().filter_map(|(_, study)| rho(study, name, stretch)).collect()
            };
            let cells = stretches.iter().map(|stretch| match over_seeds(stretch) {
                none if none.is_empty() => "-".into(),
                values => Mean::of(&values).text(),
            });
            std::iter::once(name.clone()).chain(cells).collect()
        };
        let names = stretches.iter().map(|s| format!("step {} to {}", s.start + 1, s.end));
        let header = std::iter::once("ρ".to_string()).chain(names).collect();
        let scored =
            |name: &&String| self.studies.iter().any(|(_, s)| s.scores.iter().any(|(of, _)| of == *name));
        (header, self.names().iter().filter(scored).map(row).collect())
    }

    /// ρ on each choice of rows.
    pub(crate) fn by_part(&self) -> Vec<Vec<String>> {
        let row = |name: &String| {
            let parts = [RowSubset::All, RowSubset::BeforeEnd, RowSubset::Bounded, RowSubset::Unclipped];
            let of = |part: RowSubset| self.mean(name, NextObsKind::Sampled, part, |f| f.rho.value).text();
            [vec![name.clone()], parts.map(of).to_vec()].concat()
        };
        self.names().iter().map(row).collect()
    }

    /// ρ for each ŝ'.
    pub(crate) fn by_variant(&self) -> Vec<Vec<String>> {
        let row = |name: &String| {
            let variants = [
                NextObsKind::Sampled,
                NextObsKind::SampledClipped,
                NextObsKind::Mean,
                NextObsKind::MeanClipped,
            ];
            let of = |variant: NextObsKind| self.mean(name, variant, RowSubset::All, |f| f.rho.value).text();
            [vec![name.clone()], variants.map(of).to_vec()].concat()
        };
        self.names().iter().map(row).collect()
    }

    pub(crate) const PARTS: [&'static str; 5] =
        ["ρ", "all rows", "before the end", "|obs| < 100", "not clipped"];
    pub(crate) const VARIANTS: [&'static str; 5] =
        ["ρ", "sampled", "sampled, clipped", "mean", "mean, clipped"];

    /// How many rows there were, and how many were left out, in words.
    pub(crate) fn rows(&self) -> Vec<String> {
        let line = |(seed, s): &(u64, Study)| {
            let truth = if s.simulated { "the simulator" } else { "held-out transitions" };
            format!(
                "seed {seed}: {} rows judged by {truth}; left out: {} exploded in the model, {} the simulator could not \
                 follow; {} replayed from clipped velocities",
                term::count(s.rows - s.lost),
                term::count(s.exploded),
                term::count(s.lost),
                term::count(s.clipped)
            )
        };
        self.studies.iter().map(line).collect()
    }

    pub(crate) fn print(&self) {
        out!("{}", self.dataset);
        self.rows().iter().for_each(|line| out!("{line}"));
        out!("{}", term::table(&Self::HEADER, self.headline()));
        out!("{}", term::table(&Self::PARTS, self.by_part()));
        out!("{}", term::table(&Self::VARIANTS, self.by_variant()));
        for (header, rows) in [self.by_step(), self.intervals()] {
            out!("{}", term::table(&header.iter().map(String::as_str).collect::<Vec<_>>(), rows));
        }
    }

    /// All findings, without the rows themselves.
    pub(crate) fn json(&self) -> Result<serde_json::Value> {
        let mut studies = Vec::new();
        for (seed, study) in &self.studies {
            let mut value = serde_json::to_value(study)?;
            if let Some(map) = value.as_object_mut() {
                map.remove("error");
                map.remove("scores");
                map.insert("seed".into(), (*seed).into());
            }
            studies.push(value);
        }
        Ok(serde_json::json!({ "dataset": self.dataset, "studies": studies }))
    }

    /// All findings, one a line.
    pub(crate) fn csv(&self) -> String {
        let mut out = String::from(
            "dataset,seed,estimator,variant,part,rows,rho,rho_low,rho_high,r,r_low,r_high,rho_within_step,auroc,auprc\n",
        );
        for (seed, study) in &self.studies {
            for f in &study.findings {
                out.push_str(&format!(
                    "{},{seed},{},{},{},{},{},{},{},{},{},{},{},{},{}\n",
                    field(&self.dataset),
                    field(&f.estimator),
                    word(f.variant),
                    word(f.part),
                    f.rows,
                    f.rho.value,
                    f.rho.low,
                    f.rho.high,
                    f.r.value,
                    f.r.low,
                    f.r.high,
                    f.rho_within_step,
                    f.auroc,
                    f.auprc
                ));
            }
        }
        out
    }
}

/// A choice as the word its files use.
fn word(choice: impl serde::Serialize) -> String {
    serde_json::to_value(choice).ok().and_then(|v| v.as_str().map(str::to_string)).unwrap_or_default()
}
