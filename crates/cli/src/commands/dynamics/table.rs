//! The figures of a model as tables.

use offing::dynamics::{Cached, Comparison};

use crate::term::{count, number, table};

/// Prints hold-out errors member by member, beside the linear model's.
pub(crate) fn print(fitted: &Cached, found: &Comparison) {
    out!(
        "hold-out error on standardised targets (a model that answers the mean has 1): {} rows held out, {} trained on, \
         {} epochs",
        count(found.rows),
        count(fitted.report.train_rows),
        fitted.epochs
    );
    if !fitted.report.constant_inputs.is_empty() {
        out!("inputs that never change: columns {:?} of (s, a)", fitted.report.constant_inputs);
    }
    out!("{}", table(&HEADER, holdout_rows(fitted, found)));
}

pub(crate) const HEADER: [&str; 4] = ["", "elite", "MSE", "linear / it"];

pub(crate) fn holdout_rows(fitted: &Cached, found: &Comparison) -> Vec<Vec<String>> {
    let row = |name: String, elite: &str, error: f64| {
        vec![name, elite.to_string(), number(error), format!("{:.1}", found.linear / error)]
    };
    let member = |(i, &error): (usize, &f64)| {
        let elite = if fitted.model.elites().contains(&i) { "yes" } else { "" };
        row(format!("member {i}"), elite, error)
    };
    let mut rows: Vec<_> = found.members.iter().enumerate().map(member).collect();
    rows.push(row("mean of the elites".into(), "", found.elite_mean));
    rows.push(row("linear least squares".into(), "", found.linear));
    rows
}
