//! Which estimator to take on these data, in words: the one whose score follows the true error best, and which others chance
//! does not tell from it.

use offing::calibration::{NextObsKind, RowSubset};
use offing::uncertainty::UncertaintyConfig;

use super::summary::{StudySummary, find};
use crate::bars::Bar;

/// The estimator that knows nothing but how long a rollout has been going on.
const BASELINE: &str = "step";

/// An estimator's ρ with the true error, over seeds.
#[derive(Clone, Debug)]
pub(super) struct Rating<'a> {
    pub(super) name: &'a str,
    pub(super) rho: f64,
    /// Means of the seeds' bootstrap bounds.
    low: f64,
    high: f64,
    pub(super) auroc: f64,
}

impl StudySummary {
    /// All estimators, the best first; those without a number are left out.
    pub(super) fn ratings(&self) -> Vec<Rating<'_>> {
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let rating = |name| {
            let found =
                self.studies.iter().filter_map(|(_, s)| find(s, name, NextObsKind::Sampled, RowSubset::All));
            let [mut rho, mut low, mut high, mut auroc] = [const { Vec::new() }; 4];
            for result in found {
                rho.push(result.rho.value);
                low.push(result.rho.low);
                high.push(result.rho.high);
                auroc.push(result.auroc);
            }
            let rating =
                Rating { name, rho: mean(&rho), low: mean(&low), high: mean(&high), auroc: mean(&auroc) };
            rating.rho.is_finite().then_some(rating)
        };
        let mut ratings: Vec<Rating<'_>> = self.names().into_iter().filter_map(rating).collect();
        ratings.sort_by(|a, b| b.rho.total_cmp(&a.rho));
        ratings
    }

    /// ρ of every estimator, the best first; the baseline is grey.
    pub(super) fn rating_bars(&self) -> Vec<Bar> {
        let bar = |r: Rating<'_>| {
            let spread = if r.low.is_finite() { (r.high - r.low) / 2.0 } else { 0.0 };
            let bar = Bar { spread, ..Bar::new(r.name, r.rho, format!("{:.2}", r.rho).replace('-', "−")) };
            if r.name == BASELINE { bar.reference() } else { bar }
        };
        self.ratings().into_iter().map(bar).collect()
    }

    /// What to take from the study, in a few sentences.
    pub fn recommendation(&self) -> String {
        let ratings = self.ratings();
        let baseline = ratings.iter().find(|r| r.name == BASELINE);
        let Some(best) = ratings.iter().find(|r| r.name != BASELINE) else {
            return "No estimator has a number on these data: there is nothing to recommend.".into();
        };
        let text = |r: &Rating<'_>| match r.low.is_finite() {
            true => format!("ρ {:.2}, 95 % interval {:.2} to {:.2}", r.rho, r.low, r.high),
            false => format!("ρ {:.2}", r.rho),
        };
        let weak = best.rho < 0.2 || baseline.is_some_and(|step| step.rho >= best.rho);
        let mut words = if weak {
            format!(
                "No estimator follows the true error well here: the best, {}, has {}. Prefer short rollouts, and a method \
                 that needs no model (`td3bc`, `iql`) beside it.",
                best.name,
                text(best)
            )
        } else {
            format!("Recommended on these data: {} ({}).", best.name, text(best))
        };
        let close =
            ratings.iter().filter(|r| r.name != best.name && r.name != BASELINE && r.high >= best.low);
        let close: Vec<&str> = close.map(|r| r.name).collect();
        if !close.is_empty() {
            words.push_str(&format!(" Chance does not tell it from {}.", close.join(", ")));
        }
        if let Some(step) = baseline {
            words.push_str(&format!(" The rollout step alone has ρ {:.2}.", step.rho));
        }
        // An estimator with settings of its own is not named by its id alone.
        if !weak && UncertaintyConfig::from_id(best.name).is_ok() && best.name != "bellman-std" {
            words.push_str(&format!(" Train with it: offing train mopo+{} {}", best.name, self.dataset));
        }
        words.replace("ρ -", "ρ −")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use offing::calibration::{EstimatorResult, Study};
    use offing::stats::Interval;

    fn summary(all: &[(&str, f64, f64)]) -> StudySummary {
        let result = |(name, rho, room): &(&str, f64, f64)| EstimatorResult {
            estimator: (*name).into(),
            variant: NextObsKind::Sampled,
            part: RowSubset::All,
            rows: 10,
            rho: Interval { value: *rho, low: rho - room, high: rho + room },
            r: Interval { value: 0.0, low: 0.0, high: 0.0 },
            rho_within_step: 0.0,
            auroc: 0.5,
            auprc: 0.5,
        };
        let study = Study { findings: all.iter().map(result).collect(), ..Study::default() };
        StudySummary { dataset: "my.csv".into(), studies: vec![(0, study)] }
    }

    #[test]
    fn the_best_estimator_is_recommended_beside_those_that_chance_does_not_tell_from_it() {
        let words =
            summary(&[("step", 0.3, 0.0), ("sumo", 0.7, 0.05), ("count", 0.68, 0.05), ("loo-kl", 0.4, 0.05)])
                .recommendation();
        for piece in [
            "Recommended on these data: sumo (ρ 0.70",
            "from count.",
            "step alone has ρ 0.30",
            "mopo+sumo my.csv",
        ] {
            assert!(words.contains(piece), "`{piece}` missing in {words}");
        }
        assert!(!words.contains("loo-kl"), "{words}");
    }

    #[test]
    fn where_none_is_better_than_the_step_none_is_recommended() {
        let words = summary(&[("step", 0.5, 0.0), ("sumo", 0.4, 0.05)]).recommendation();
        assert!(words.contains("No estimator follows") && !words.contains("offing train"), "{words}");
        assert!(summary(&[]).recommendation().contains("nothing to recommend"));
    }
}
