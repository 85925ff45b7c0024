//! What would ruin a training, said before it: does the termination rule fit the log, does one column drown the others?

use ndarray::{Array1, Axis};

use super::config::ModelConfig;
use super::session::Session;
use crate::batch::Batch;
use crate::data::ColumnNames;
use crate::dynamics::{DynamicsModel, Ensemble, TerminationConfig};

/// Rows that a rule is checked on.
const ROWS: usize = 100_000;
/// Shares of ends found and of steps taken for ends, beyond which a rule is reported.
const GOOD_RECALL: f64 = 0.99;
const GOOD_FALSE: f64 = 1e-3;
/// Beyond these it is a warning.
const BAD_RECALL: f64 = 0.5;
const BAD_FALSE: f64 = 0.02;
/// A column with more than this share of all squared distances decides nearly alone who is near.
const DROWNS: f64 = 0.9;

/// How a rule for ends does on logged steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RuleCheck {
    /// Logged ends, and how many of them the rule finds.
    pub(super) ends: usize,
    pub(super) found: usize,
    /// Logged steps that are no ends, and how many of them the rule takes for ends.
    pub(super) steps: usize,
    pub(super) mistaken: usize,
}

impl RuleCheck {
    pub(super) fn of(logged: &Array1<bool>, told: &Array1<bool>) -> Self {
        let count = |done: bool, by_rule: bool| {
            logged.iter().zip(told).filter(|(l, t)| **l == done && (**t || !by_rule)).count()
        };
        Self {
            ends: count(true, false),
            found: count(true, true),
            steps: count(false, false),
            mistaken: count(false, true),
        }
    }

    /// What to say, where the rule and the log differ enough.
    pub(super) fn words(&self) -> Option<String> {
        let share = |part: usize, of: usize| part as f64 / of.max(1) as f64;
        let recall = if self.ends == 0 { 1.0 } else { share(self.found, self.ends) };
        let wrong = share(self.mistaken, self.steps);
        if recall >= GOOD_RECALL && wrong <= GOOD_FALSE {
            return None;
        }
        let bad = recall < BAD_RECALL || wrong > BAD_FALSE;
        let precision = share(self.found, self.found + self.mistaken);
        Some(format!(
            "{}the termination rule finds {} of {} logged ends and takes {} of {} other steps for ends (recall {recall:.2}, \
             precision {precision:.2}){}",
            if bad { "warning: " } else { "" },
            self.found,
            self.ends,
            self.mistaken,
            self.steps,
            if bad { "; check model.termination" } else { "" }
        ))
    }
}

/// The column that makes up most of the squared distances between rows (s, a, s'), with its share.
pub(super) fn widest_column(rows: &Batch, names: &ColumnNames) -> Option<(String, f64)> {
    let mut spread: Vec<(String, f64)> = Vec::new();
    let label = |part: &str, i: usize| match part {
        "act" => names.act_label(i),
        "obs" => names.obs_label(i),
        _ => names.next_obs_label(i),
    };
    for (name, part) in [("obs", &rows.obs), ("act", &rows.act), ("next_obs", &rows.next_obs)] {
        let variances = part.mapv(f64::from).var_axis(Axis(0), 0.0);
        spread.extend(variances.iter().enumerate().map(|(i, v)| (label(name, i), *v)));
    }
    let total: f64 = spread.iter().map(|(_, v)| v).sum();
    let (name, most) = spread.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (total > 0.0).then(|| (name, most / total))
}

impl Session<'_> {
    /// Says when imagined episodes end, where nobody said it and the task is not known.
    pub(super) fn tell_assumed_rule(&mut self, cfg: &ModelConfig) {
        let ends = self.data.rows.done.iter().filter(|&&done| done).count();
        let line = match (cfg.rule_of_log(self.data), self.data.reading.dropped_terminals) {
            (None, _) => return,
            (Some(TerminationConfig::Never {}), 0) => {
                "no row of the log ends, so imagined episodes never do (model.termination)".into()
            }
            (Some(TerminationConfig::Never {}), lost) => format!(
                "warning: the {lost} rows that end have no next state and are left out, so imagined episodes never end; give the \
                 log next states, or model.termination a condition"
            ),
            _ => format!(
                "when imagined episodes end is learnt from the {ends} rows of the log that do (model.termination.kind = \
                 \"learnt\"); a condition, if you know one, is surer"
            ),
        };
        self.note(line);
    }

    /// Says how the model's termination rule does on the log's own steps, where it does not fit them.
    pub(super) fn check_termination(&mut self, model: &Ensemble) {
        let rows = &self.data.rows;
        let few: Vec<usize> = (0..rows.len()).step_by(rows.len().div_ceil(ROWS).max(1)).collect();
        let rows = rows.select(&few);
        let told = self.timer.time("model", || model.done(&rows.obs, &rows.act, &rows.next_obs));
        if let Some(words) = RuleCheck::of(&rows.done, &told).words() {
            self.note(words);
        }
    }

    /// Says which column decides nearly alone who is near, where raw columns are compared.
    pub(super) fn check_columns(&mut self) {
        let widest = widest_column(&self.data.rows, &self.data.names);
        if let Some((name, share)) = widest.filter(|(_, share)| *share > DROWNS) {
            self.note(format!(
                "warning: {name} makes up {:.0} % of the distances that SUMO compares, so the other columns hardly count; use \
                 uncertainty.columns = \"standardised\"",
                100.0 * share
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Mat;

    #[test]
    fn a_rule_that_fits_is_not_mentioned_and_others_are() {
        let logged: Array1<bool> = (0..1000).map(|i| i % 100 == 99).collect();
        assert_eq!(RuleCheck::of(&logged, &logged).words(), None);
        let never = RuleCheck::of(&logged, &Array1::from_elem(1000, false));
        assert_eq!(never, RuleCheck { ends: 10, found: 0, steps: 990, mistaken: 0 });
        assert!(
            never.words().unwrap().starts_with("warning: the termination rule finds 0 of 10 logged ends")
        );
        let nearly: Array1<bool> = (0..1000).map(|i| i % 100 == 99 && i > 100 || i == 5).collect();
        let words = RuleCheck::of(&logged, &nearly).words().unwrap();
        assert!(
            words.starts_with("the termination rule finds 9 of 10")
                && words.contains("recall 0.90, precision 0.90")
        );
        let endless = Array1::from_elem(1000, false);
        assert_eq!(RuleCheck::of(&endless, &endless).words(), None, "nothing ends, nothing is missed");
    }

    #[test]
    fn the_widest_column_is_named() {
        let column = |scale: f32| {
            Mat::from_shape_fn((50, 2), |(i, j)| if j == 0 { scale * i as f32 } else { i as f32 })
        };
        let rows = Batch {
            obs: column(1.0),
            act: column(100.0),
            rew: Array1::zeros(50),
            next_obs: column(1.0),
            done: Array1::from_elem(50, false),
        };
        let names = ColumnNames { act: vec!["valve".into(), "pump".into()], ..ColumnNames::default() };
        let (name, share) = widest_column(&rows, &names).unwrap();
        assert!(name == "act[0] (valve)" && share > 0.99, "{name} {share}");
        assert_eq!(widest_column(&Batch::empty(0, 0), &names), None);
    }
}
