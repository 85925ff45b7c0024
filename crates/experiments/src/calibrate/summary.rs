//! Studies of several seeds as tables.

use std::ops::Range;

use anyhow::Result;
use offing::calibration::{EstimatorResult, NextObsKind, RowSubset, Study};
use offing::stats::{self, Interval};

use crate::format::{count, or_dash};
use crate::mean_std::MeanStd;
use crate::table::{Table, file_word, row};

/// The studies of one dataset, a seed each.
pub struct StudySummary {
    /// The dataset as it was asked for.
    pub dataset: String,
    /// Seeds and their studies.
    pub studies: Vec<(u64, Study)>,
}

/// What a study found of an estimator on one choice of rows.
pub(super) fn find<'a>(
    study: &'a Study,
    name: &str,
    variant: NextObsKind,
    part: RowSubset,
) -> Option<&'a EstimatorResult> {
    study.findings.iter().find(|f| f.estimator == name && f.variant == variant && f.part == part)
}

/// Stretches of a rollout for which ρ is shown apart.
const STRETCHES: usize = 5;

impl StudySummary {
    /// Names in the order of the study, the step baseline first.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for f in self.studies.iter().flat_map(|(_, s)| &s.findings) {
            if !names.contains(&f.estimator.as_str()) {
                names.push(&f.estimator);
            }
        }
        names
    }

    /// A number of one estimator on one choice of rows, over seeds, as text.
    fn mean(
        &self,
        name: &str,
        variant: NextObsKind,
        part: RowSubset,
        pick: impl Fn(&EstimatorResult) -> f64,
    ) -> String {
        let found = self.studies.iter().filter_map(|(_, study)| find(study, name, variant, part));
        MeanStd::of(&found.map(pick).collect::<Vec<f64>>()).text()
    }

    /// Every table with its heading, the headline first; without columns and tables that have no numbers.
    pub fn tables(&self) -> Vec<(&'static str, Table)> {
        let all = [
            ("Estimators against the true error", self.headline()),
            ("By choice of rows", self.by_part()),
            ("By imagined next state", self.by_variant()),
            ("By rollout step", self.by_step()),
            ("Bootstrap over rollouts", self.intervals()),
        ];
        let known = all.map(|(heading, table)| (heading, table.without_empty_columns()));
        known.into_iter().filter(|(_, table)| table.header.len() > 1).collect()
    }

    /// Whether a simulator said what is true, in any of the studies.
    pub(super) fn simulated(&self) -> bool {
        self.studies.iter().any(|(_, study)| study.simulated)
    }

    /// The headline: all rows, ŝ' as sampled, not clipped.
    fn headline(&self) -> Table {
        let cells = |name: &str| {
            let picks: [fn(&EstimatorResult) -> f64; 5] =
                [|f| f.rho.value, |f| f.r.value, |f| f.rho_within_step, |f| f.auroc, |f| f.auprc];
            let mut cells =
                row(name, picks.map(|pick| self.mean(name, NextObsKind::Sampled, RowSubset::All, pick)));
            let timing = self.studies.iter().flat_map(|(_, s)| &s.timings).find(|t| t.estimator == name);
            let share =
                |beyond: [f64; 3]| beyond.map(|share| format!("{:.0}", 100.0 * share)).join(", ") + " %";
            cells.push(or_dash(timing.and_then(|t| t.beyond), share));
            cells.push(or_dash(timing, |t| format!("{:.0}", 1e3 * t.seconds_per_10k)));
            cells
        };
        let header =
            ["estimator", "ρ", "r", "ρ within a step", "AUROC", "AUPRC", "u > α·max, α = 1, 5, 10", "ms/10k"];
        Table::new(header, self.names().into_iter().map(cells))
    }

    /// ρ and r of every seed with their bootstrap intervals of 95 %.
    fn intervals(&self) -> Table {
        let text = |of: &Interval| match of.low.is_finite() {
            true => format!("{:.2} [{:.2}, {:.2}]", of.value, of.low, of.high),
            false => "-".into(),
        };
        let cells = |name: &str| {
            let both = |(_, study): &(u64, Study)| {
                let found = find(study, name, NextObsKind::Sampled, RowSubset::All);
                [or_dash(found, |f| text(&f.rho)), or_dash(found, |f| text(&f.r))]
            };
            row(name, self.studies.iter().flat_map(both))
        };
        let seeds =
            self.studies.iter().flat_map(|(seed, _)| [format!("ρ, seed {seed}"), format!("r, seed {seed}")]);
        Table::new(row("95 % interval", seeds), self.names().into_iter().map(cells))
    }

    /// ρ in stretches of a rollout, mean over seeds.
    fn by_step(&self) -> Table {
        let ages = |study: &Study| study.error.iter().map(|(age, _)| *age).max();
        let length = self.studies.iter().filter_map(|(_, s)| ages(s)).max().map_or(0, |last| last + 1);
        let width = length.div_ceil(STRETCHES).max(1);
        let stretches: Vec<Range<usize>> =
            (0..length).step_by(width).map(|first| first..(first + width).min(length)).collect();
        let rho = |study: &Study, name: &str, stretch: &Range<usize>| {
            // Scores that another version kept may be of other rows.
            let named = |(of, scores): &&(String, Vec<f64>)| of == name && scores.len() == study.error.len();
            let scores = &study.scores.iter().find(named)?.1;
            let rows = (0..scores.len()).filter(|&i| stretch.contains(&study.error[i].0));
            let (u, error): (Vec<f64>, Vec<f64>) = rows.map(|i| (scores[i], study.error[i].1)).unzip();
            Some(stats::spearman(&u, &error)).filter(|rho| rho.is_finite())
        };
        let cells = |name: &str| {
            let over_seeds = |stretch: &Range<usize>| {
                let values: Vec<f64> =
                    self.studies.iter().filter_map(|(_, study)| rho(study, name, stretch)).collect();
                or_dash(MeanStd::of_some(&values), |mean| mean.text())
            };
            row(name, stretches.iter().map(over_seeds))
        };
        let header = row("ρ", stretches.iter().map(|s| format!("step {} to {}", s.start + 1, s.end)));
        let scored =
            |name: &&str| self.studies.iter().any(|(_, s)| s.scores.iter().any(|(of, _)| of == name));
        Table::new(header, self.names().into_iter().filter(scored).map(cells))
    }

    /// ρ on each choice of rows.
    fn by_part(&self) -> Table {
        let parts = [
            ("all rows", RowSubset::All),
            ("before the end", RowSubset::BeforeEnd),
            ("|obs| < 100", RowSubset::Bounded),
            ("not clipped", RowSubset::Unclipped),
        ];
        // Only simulators clip velocities.
        let parts = parts.into_iter().filter(|(_, part)| self.simulated() || *part != RowSubset::Unclipped);
        self.rho(parts.map(|(name, part)| (name, (NextObsKind::Sampled, part))).collect())
    }

    /// ρ for each ŝ'.
    fn by_variant(&self) -> Table {
        use NextObsKind::{Mean, MeanClipped, Sampled, SampledClipped};
        let kinds = [
            ("sampled", Sampled),
            ("sampled, clipped", SampledClipped),
            ("mean", Mean),
            ("mean, clipped", MeanClipped),
        ];
        let kinds = kinds.into_iter().filter(|(name, _)| self.simulated() || !name.contains("clipped"));
        self.rho(kinds.map(|(name, kind)| (name, (kind, RowSubset::All))).collect())
    }

    /// ρ of each estimator on these choices.
    fn rho(&self, choices: Vec<(&str, (NextObsKind, RowSubset))>) -> Table {
        let rho = |name: &str, (variant, part)| self.mean(name, variant, part, |f| f.rho.value);
        let cells = |name: &str| row(name, choices.iter().map(|(_, choice)| rho(name, *choice)));
        let header = row("ρ", choices.iter().map(|(name, _)| name.to_string()));
        Table::new(header, self.names().into_iter().map(cells))
    }

    /// How many rows each seed has, and how many were left out, in words.
    pub fn row_counts(&self) -> Vec<String> {
        let line = |(seed, s): &(u64, Study)| {
            let [rows, exploded, lost, clipped] = [s.rows - s.lost, s.exploded, s.lost, s.clipped].map(count);
            if !s.simulated {
                return format!(
                    "seed {seed}: {rows} rows compared with held-out transitions; left out: {exploded} exploded in the model"
                );
            }
            format!(
                "seed {seed}: {rows} rows compared with the simulator; left out: {exploded} exploded in the model, {lost} the \
                 simulator could not follow; {clipped} replayed from clipped velocities"
            )
        };
        self.studies.iter().map(line).collect()
    }

    /// All findings, without the rows themselves.
    ///
    /// # Errors
    /// A study that is no JSON, which none is.
    pub fn json(&self) -> Result<serde_json::Value> {
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
    pub fn csv(&self) -> String {
        let header = "dataset,seed,estimator,variant,part,rows,rho,rho_low,rho_high,r,r_low,r_high,rho_within_step,auroc,auprc";
        let line = |(seed, f): (u64, &EstimatorResult)| {
            let (variant, part) = (file_word(f.variant), file_word(f.part));
            let choice = [self.dataset.clone(), seed.to_string(), f.estimator.clone(), variant, part];
            let (rho, r) = (&f.rho, &f.r);
            let correlations = [rho.value, rho.low, rho.high, r.value, r.low, r.high].map(|x| x.to_string());
            let others = [f.rho_within_step, f.auroc, f.auprc].map(|x| x.to_string());
            [&choice[..], &[f.rows.to_string()], &correlations, &others].concat()
        };
        let findings = self.studies.iter().flat_map(|(seed, s)| s.findings.iter().map(|f| (*seed, f)));
        Table::new(header.split(','), findings.map(line)).csv()
    }
}
