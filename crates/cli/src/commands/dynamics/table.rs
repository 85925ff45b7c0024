//! The figures of a model as tables.

use offing::dynamics::{CachedModel, Curve, HoldoutComparison, OpenLoop};

use crate::term::{count, number, table};

/// Prints hold-out errors member by member, beside the linear model's.
pub(crate) fn print(fitted: &CachedModel, found: &HoldoutComparison) {
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

pub(crate) fn holdout_rows(fitted: &CachedModel, found: &HoldoutComparison) -> Vec<Vec<String>> {
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

/// Steps shown in tables.
const OPEN_LOOP_STEPS: [usize; 6] = [1, 2, 5, 10, 20, 50];

/// Prints the error after a few numbers of steps.
pub(crate) fn print_open_loop(open: &OpenLoop) {
    out!(
        "open-loop error against the simulator, mean (10 %–90 %) over {} starts, in standard deviations of the states",
        count(open.windows)
    );
    out!("{}", table(&open_loop_header(open), open_loop_rows(open)));
    out!("{}", super::report::left_out(open));
}

/// One column for each predictor.
pub(crate) fn open_loop_header(open: &OpenLoop) -> Vec<&'static str> {
    std::iter::once("steps").chain(open.curves.iter().map(|c| c.name)).collect()
}

/// One row for each number of steps.
pub(crate) fn open_loop_rows(open: &OpenLoop) -> Vec<Vec<String>> {
    let cell = |curve: &Curve, n: usize| {
        let (low, high) = (short(curve.low[n - 1]), short(curve.high[n - 1]));
        let band = format!("{} ({low}–{high})", short(curve.mean[n - 1]));
        match curve.exploded[n - 1] {
            0 => band,
            lost => format!("{band}, {} exploded", count(lost)),
        }
    };
    let measured = open.curves.first().map_or(0, |c| c.mean.len());
    let rows = OPEN_LOOP_STEPS.iter().filter(|&&n| n <= measured);
    rows.map(|&n| std::iter::once(n.to_string()).chain(open.curves.iter().map(|c| cell(c, n))).collect())
        .collect()
}

/// Two or three digits: a table of intervals has no room for more.
fn short(x: f64) -> String {
    match x.abs() {
        a if !x.is_finite() || a == 0.0 => format!("{x}"),
        a if a >= 10.0 => format!("{x:.0}"),
        a if a >= 1.0 => format!("{x:.1}"),
        a if a >= 0.01 => format!("{x:.2}"),
        a if a >= 1e-3 => format!("{x:.3}"),
        _ => format!("{x:.0e}"),
    }
}
