//! The model's figures as one HTML page.

use offing::dynamics::{CachedModel, Curve, HoldoutComparison, OpenLoop};

use super::table::{HEADER, holdout_rows, open_loop_header, open_loop_rows};
use crate::page::Page;
use crate::plot::{Axis, Plot, Series};
use crate::term::count;

/// What a page is about.
pub(crate) struct About<'a> {
    pub(crate) dataset: &'a str,
    pub(crate) command: String,
    pub(crate) config: String,
}

pub(crate) fn page(
    about: &About<'_>,
    fitted: &CachedModel,
    found: &HoldoutComparison,
    open: Option<&OpenLoop>,
) -> Page {
    let mut page = Page::new(&format!("Dynamics model of {}", about.dataset));
    page.code(&about.command);
    page.text(&format!(
        "{} members, of which {} make steps; {} rows trained on, {} held out; {} epochs, {} gradient steps.",
        fitted.model.members(),
        fitted.model.elites().len(),
        count(fitted.report.train_rows),
        count(found.rows),
        fitted.epochs,
        count(fitted.updates as usize)
    ));
    page.heading("Hold-out error");
    page.text(
        "Mean squared error on standardised targets (the change of state, and the reward): a model that answers the \
         mean has 1. The last column says how many times larger the linear model's error is.",
    );
    page.table(&HEADER, &holdout_rows(fitted, found));
    page.figure(
        &by_column(found),
        "Hold-out error of each target column: the entries of the state in their order, the reward last.",
    );
    if let Some(open) = open {
        page.heading("Open-loop error against the simulator");
        page.text(&format!(
            "Model and simulator start in {} states of the dataset and follow the dataset's own actions. The error is the \
             root mean square over the state's entries, each divided by its standard deviation over the dataset. \
             “recorded” is the difference between the recorded states and the simulator's: below it nothing can be told. {}",
            count(open.windows),
            left_out(open)
        ));
        page.table(&open_loop_header(open), &open_loop_rows(open));
        page.text("Mean over the starts (10 %–90 % quantile).");
        page.figure(&over_steps(open, false), "Lines: mean over the starts; shades: 10 %–90 % quantile. “recorded” is drawn from a hundredth of the \
             model's first error on.",);
        page.figure(&over_steps(open, true), "The same for the learnt model, on a linear axis.");
    }
    page.heading("Configuration");
    about.config.lines().filter(|l| !l.is_empty()).for_each(|line| page.code(line));
    page
}

/// What could not be used, in a sentence.
pub(crate) fn left_out(open: &OpenLoop) -> String {
    match (open.clipped, open.unstable) {
        (0, 0) => "Every start could be rebuilt in the simulator.".into(),
        (clipped, unstable) => format!(
            "Left out: {} starts whose observation hides clipped velocities, {} the simulator could not follow.",
            count(clipped),
            count(unstable)
        ),
    }
}

fn by_column(found: &HoldoutComparison) -> Plot {
    let points = |errors: &[f64]| errors.iter().enumerate().map(|(i, e)| (i as f64, *e)).collect();
    Plot {
        title: "Hold-out error by target".into(),
        x: Axis::linear("column"),
        y: Axis::log("standardised MSE"),
        series: vec![
            Series::scatter("mean of the elites", points(&found.elite_mean_by_column)),
            Series::scatter("linear", points(&found.linear_by_column)),
        ],
    }
}

fn over_steps(open: &OpenLoop, close: bool) -> Plot {
    // Recorded states agree with the simulator to many digits at first; drawn from there they would squeeze the
    // rest together.
    let least = open.curves.iter().find(|c| c.name == "mean of the elites").map_or(0.0, |c| 0.01 * c.mean[0]);
    let series = |curve: &Curve| {
        let at = |least: f64| -> Vec<(f64, f64)> {
            let shown = |v: &f64| if *v < least { f64::NAN } else { *v };
            curve.mean.iter().enumerate().map(|(i, v)| ((i + 1) as f64, shown(v))).collect()
        };
        let bounds = curve.low.iter().copied().zip(curve.high.iter().copied()).collect();
        match curve.name {
            "recorded" => Series::dashed(curve.name, at(least)),
            "no change" => Series::dashed(curve.name, at(0.0)),
            _ => Series::line(curve.name, at(0.0)).with_band(bounds),
        }
    };
    let shown = |curve: &&Curve| match curve.name {
        "mean of the elites" | "sampled" => true,
        "recorded" => !close && curve.mean.iter().any(|e| *e >= least),
        _ => !close,
    };
    Plot {
        title: "Open-loop error".into(),
        x: Axis::linear("steps"),
        y: if close { Axis::linear("scaled error") } else { Axis::log("scaled error") },
        series: open.curves.iter().filter(shown).map(series).collect(),
    }
}
