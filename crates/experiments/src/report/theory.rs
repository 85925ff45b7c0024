//! The terms of the paper's bounds that a run can estimate, for its report. What they are and are not: docs/theory.md.

use offing::algorithms::{EstimatorUse, Registry};
use offing::pessimism::Pessimism;

use crate::format::{count, number};
use crate::run_record::{RunKind, RunRecord};

/// One term, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TheoryTerm {
    pub(super) name: &'static str,
    pub(super) value: Option<f64>,
    /// What it is made of, or what is missing.
    pub(super) from: String,
}

/// What a reader must know about the terms.
pub const CAVEAT: &str = "Estimates, not guarantees: admissibility of u (Theorem 1) is assumed, ε (Theorem 2) is \
    in units of u and not in nats, and the total variations between distributions of states need densities and are not \
    estimated. docs/theory.md says what each result needs.";

const PENALTY: &str = "2λ·E[u]";
const WHOLE: &str = "2λ·E[u]/(1−γ)";
const EPSILON: &str = "r_max/(1−γ)·√(ε/2)";
const SCALE: &str = "r_max/(1−γ)";

/// The terms of a run by its configuration and metrics; none for algorithms the theorems say nothing about.
pub(super) fn terms(run: &RunRecord) -> Vec<TheoryTerm> {
    let RunKind::Training { algorithm, .. } = &run.kind else { return Vec::new() };
    // MOBILE penalises the target of the critics, by a score the theorems do not speak of.
    let name = Registry::default().parse(algorithm);
    if name.is_ok_and(|name| name.spec.estimators == EstimatorUse::WithCritics) {
        return Vec::new();
    }
    let settings = |table: &str| run.config.get("settings")?.get(table);
    let rule = settings("pessimism").and_then(|rule| rule.clone().try_into::<Pessimism>().ok());
    // The learner's own, or the planner's (MOReL).
    let gamma =
        ["sac", "npg"].iter().find_map(|table| settings(table)?.get("gamma")?.clone().try_into().ok());
    let (Some(rule), Some(gamma)) = (rule, gamma) else { return Vec::new() };
    match rule {
        // The last rollouts are those of the policy the run returns.
        Pessimism::Penalize { lambda, .. } => {
            penalty(lambda.into(), gamma, run.last("u_mean"), run.last("scored"))
        }
        Pessimism::PenalizeExcess { .. } => missing(
            PENALTY,
            "only what exceeds the data's own level is penalised, which Theorem 1 does not cover",
        ),
        Pessimism::Truncate { alpha } | Pessimism::Halt { alpha, .. } => {
            threshold(alpha.into(), gamma, run.last("epsilon"), run.last("reward_range"))
        }
        Pessimism::Ignore {} => missing(PENALTY, "the run trusts every step: there is neither λ nor ε"),
    }
}

fn missing(name: &'static str, why: &str) -> Vec<TheoryTerm> {
    vec![TheoryTerm { name, value: None, from: why.into() }]
}

/// Theorem 1: the mean over imagined rows, and as a return, since the occupancy of the theorem sums over time.
fn penalty(lambda: f64, gamma: f64, u: Option<f64>, rows: Option<f64>) -> Vec<TheoryTerm> {
    let Some(u) = u else {
        let why =
            "no imagined row was scored (all rows of a batch are the dataset's, or nothing was recorded)";
        return missing(PENALTY, why);
    };
    let rows =
        rows.map_or(String::new(), |n| format!(" over {} rows of the last rollouts", count(n as usize)));
    let each = 2.0 * lambda * u;
    let from = format!("λ = {}, mean u = {}{rows}", number(lambda), number(u));
    // A factor without bound at γ = 1.
    let whole = (gamma < 1.0).then(|| each / (1.0 - gamma));
    let how = format!("the same over a whole return, γ = {gamma}, if every step were like these");
    vec![
        TheoryTerm { name: PENALTY, value: Some(each), from },
        TheoryTerm { name: WHOLE, value: whole, from: how },
    ]
}

/// Theorem 2: what the threshold adds, beside the largest return there is.
fn threshold(alpha: f64, gamma: f64, epsilon: Option<f64>, range: Option<f64>) -> Vec<TheoryTerm> {
    let missing = |why: &str| missing(EPSILON, why);
    if gamma >= 1.0 {
        return missing("γ = 1: the bound is infinite");
    }
    let Some(epsilon) = epsilon else { return missing("no ε was recorded yet") };
    let Some(range) = range else {
        return missing("r_max was not recorded: the run was made by an older version; train again");
    };
    let scale = range / (1.0 - gamma);
    let rewards = format!("r_max = {} (range of the dataset's rewards), γ = {gamma}", number(range));
    let from = format!("ε = {} (α = {}, Eq. 7), {rewards}", number(epsilon), number(alpha));
    vec![
        TheoryTerm { name: EPSILON, value: Some(scale * (epsilon / 2.0).sqrt()), from },
        TheoryTerm {
            name: SCALE,
            value: Some(scale),
            from: "the largest return there can be, to compare with".into(),
        },
    ]
}

impl TheoryTerm {
    /// As a row of a table, behind the run's name and seed.
    pub(super) fn row(&self, run: &str, seed: u64) -> Vec<String> {
        let value = self.value.map_or("not estimated".into(), number);
        vec![run.into(), seed.to_string(), self.name.into(), value, self.from.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::super::labels::tests::record;
    use super::*;

    fn of(config: &str, metrics: &[serde_json::Value]) -> Vec<TheoryTerm> {
        let algorithm = if config.contains("mobile") { "mobile" } else { "mopo" }.to_string();
        let run = record(RunKind::Training { algorithm, dataset: "hopper".into() }, config);
        let metrics = metrics.iter().map(|r| r.as_object().unwrap().clone()).collect();
        terms(&RunRecord { metrics, ..run })
    }

    #[test]
    fn a_penalty_gives_the_term_of_theorem_1() {
        let config = "[settings.pessimism]\nkind = 'penalize'\nlambda = 1.5\n[settings.sac]\ngamma = 0.99";
        let early = serde_json::json!({ "step": 10, "u_mean": 9.0, "scored": 5 });
        let late = serde_json::json!({ "step": 20, "u_mean": 0.25, "scored": 1200 });
        let found = of(config, &[early.clone(), late]);
        assert_eq!(found[0].value, Some(0.75), "2 · 1.5 · 0.25, of the last record");
        assert!(found[0].from.contains("1,200 rows"), "{found:?}");
        assert!((found[1].value.unwrap() - 75.0).abs() < 1e-9, "and / (1 − .99)");
        // All rows of a batch real: nothing is scored.
        let none = of(config, &[serde_json::json!({ "step": 10, "u_mean": null, "scored": 0 })]);
        assert_eq!((none.len(), none[0].value), (1, None));
        assert!(none[0].from.contains("no imagined row"));
        let one = of(&config.replace("0.99", "1"), &[early]);
        assert_eq!((one[0].value, one[1].value), (Some(27.0), None));
    }

    #[test]
    fn a_threshold_gives_the_term_of_theorem_2() {
        let config = "[settings.pessimism]\nkind = 'truncate'\nalpha = 2.0\n[settings.sac]\ngamma = 0.9";
        let record = serde_json::json!({ "step": 10, "epsilon": 8.0, "reward_range": 4.0, "u_mean": 1.0 });
        let found = of(config, &[record]);
        // 4 / .1 · √(8/2) = 80, beside 40.
        assert!(
            (found[0].value.unwrap() - 80.0).abs() < 1e-9 && (found[1].value.unwrap() - 40.0).abs() < 1e-9
        );
        assert!(found[0].from.contains("α = 2"), "{found:?}");
        let planned = config.replace("truncate", "halt").replace("settings.sac", "settings.npg");
        let record = serde_json::json!({ "step": 10, "epsilon": 8.0, "reward_range": 4.0 });
        assert_eq!(of(&planned, &[record])[0].value, found[0].value, "a planner's discount counts alike");
        let old = of(config, &[serde_json::json!({ "step": 10, "epsilon": 8.0 })]);
        assert_eq!(old[0].value, None);
        assert!(old[0].from.contains("r_max was not recorded"), "{old:?}");
        assert_eq!(old[0].row("run", 3)[3], "not estimated");
        assert_eq!(of(&config.replace("0.9", "1.0"), &[])[0].value, None);
    }

    #[test]
    fn other_algorithms_have_no_terms_and_a_run_without_rule_says_so() {
        assert!(of("[settings.sac]\ngamma = 0.99", &[]).is_empty(), "no rule of pessimism: bc, combo");
        let mobile =
            "algorithm = 'mobile'\n[settings.pessimism]\nkind = 'penalize'\n[settings.sac]\ngamma = 0.99";
        assert!(of(mobile, &[]).is_empty() && !of(&mobile.replace("bile", "po"), &[]).is_empty());
        let ignore = of("[settings.pessimism]\nkind = 'ignore'\n[settings.sac]\ngamma = 0.99", &[]);
        assert!(ignore.len() == 1 && ignore[0].from.contains("trusts every step"));
    }
}
