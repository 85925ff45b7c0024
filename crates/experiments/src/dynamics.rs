//! How good a learnt model of the world is, as tables and as a page: hold-out errors, open-loop errors against the simulator.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use offing::Rng;
use offing::config::Layers;
use offing::data::catalogue::Origin;
use offing::data::{Dataset, ReadOptions};
use offing::dynamics::{
    CachedModel, Curve, EnsembleConfig, FitEvent, FitRequest, HoldoutComparison, Linear, OpenLoop,
    OpenLoopConfig, Oracle, TerminationConfig, compare, fit_cached, open_loop,
};
use offing::env::{Physics, Simulators};
use offing::nn::ThreadPool;
use serde::{Deserialize, Serialize};
use toml::Table as TomlTable;

use crate::document::Card;
use crate::format::{count, number, short};
use crate::plot::{Axis, Plot, Series};
use crate::table::{Table, row};
use crate::{Document, Element, Runtime};

/// Steps for which model and simulator are followed, and those shown in tables.
const STEPS: usize = 50;
const SHOWN_STEPS: [usize; 6] = [1, 2, 5, 10, 20, 50];

/// What settings can change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DynamicsConfig {
    model: EnsembleConfig,
    termination: TerminationConfig,
}

impl Default for DynamicsConfig {
    fn default() -> Self {
        // Where an episode ends changes nothing that is measured here.
        Self { model: EnsembleConfig::default(), termination: TerminationConfig::Never {} }
    }
}

/// Which model to fit.
#[derive(Clone, Debug, clap::Args)]
pub struct DynamicsRequest {
    /// A path, a D4RL or Minari id, or the name of a generated dataset.
    dataset: String,
    /// Override one value, such as --set model.max_epochs=10 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Settings from a TOML file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Learn from this many rows only, drawn at random.
    #[arg(long)]
    rows: Option<usize>,
    /// Seed of the model.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// How to compare it with the simulator.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct SimulatorComparison {
    /// Which physics to compare with [default: the dataset's own, else D4RL's].
    #[arg(long)]
    physics: Option<Physics>,
    /// Starts from which to follow the model and the simulator.
    #[arg(long, default_value_t = 1000)]
    windows: usize,
}

/// What was measured of a model.
pub struct DynamicsReport {
    dataset: String,
    origin: Origin,
    rows: usize,
    request: DynamicsRequest,
    config: TomlTable,
    fitted: CachedModel,
    holdout: HoldoutComparison,
    open_loop: Option<OpenLoop>,
}

impl DynamicsRequest {
    /// Fits the model, or finds it fitted, and measures it.
    ///
    /// # Errors
    /// Unknown names or settings, data that cannot be read, a simulator that cannot be fetched.
    pub fn run(
        &self,
        runtime: &Runtime,
        reading: ReadOptions,
        comparison: &SimulatorComparison,
        on_fit: &mut dyn FnMut(FitEvent<'_>),
    ) -> Result<DynamicsReport> {
        self.fit_and_measure(runtime, reading, comparison, on_fit).map_err(with_own_keys)
    }

    /// What was asked, as it would be typed.
    fn command(&self) -> String {
        let mut words = vec!["offing dynamics".to_string(), self.dataset.clone()];
        words.extend(self.config.iter().map(|path| format!("--config {}", path.display())));
        words.extend(self.set.iter().map(|set| format!("--set {set}")));
        words.extend(self.rows.map(|n| format!("--rows {n}")));
        words.push(format!("--seed {}", self.seed));
        words.join(" ")
    }

    fn fit_and_measure(
        &self,
        runtime: &Runtime,
        reading: ReadOptions,
        comparison: &SimulatorComparison,
        on_fit: &mut dyn FnMut(FitEvent<'_>),
    ) -> Result<DynamicsReport> {
        let mut layers = Layers::of::<DynamicsConfig>()?;
        if let Some(path) = &self.config {
            layers.file(path, Some(&self.dataset))?;
        }
        self.set.iter().try_for_each(|set| layers.set(set))?;
        let config: DynamicsConfig = layers.read()?;
        config.model.validate()?;
        let (data, origin) = runtime.hooks().resolver(|resolver| {
            let path = resolver.locate(&self.dataset, self.rows)?;
            resolver.read_with_notes(&path, reading)
        })?;
        let drawn = self.rows.filter(|&n| n < data.rows.len()).map(|n| {
            let mut rows = draw_rows(n, data.rows.len(), &mut Rng::stream(self.seed, "rows", 0));
            rows.sort_unstable();
            data.rows.select(&rows)
        });
        let rows = drawn.as_ref().unwrap_or(&data.rows);
        runtime.say(&format!("{} ({origin}): {} rows", data.name, count(rows.len())));
        let pool = ThreadPool::new(rayon::current_num_threads());
        let fit = FitRequest {
            rows,
            names: &data.names,
            config: &config.model,
            termination: &config.termination,
            seed: self.seed,
        };
        let fitted = fit_cached(runtime.home(), fit, &pool, &mut |event| {
            on_fit(event);
            Ok(())
        })?;
        let verb = if fitted.fresh { "fitted" } else { "found" };
        let (members, dir) = (fitted.model.members(), fitted.dir.display());
        runtime.say(&format!("{verb} a model of {members} members after {} epochs: {dir}", fitted.epochs));
        let (holdout, line) = compare(&fitted.model, rows, &config.model, self.seed);
        let (rows, request) = (rows.len(), self.clone());
        let open_loop = comparison.open_loop(runtime, &data, (&fitted, self.seed), &line)?;
        let (dataset, config) = (data.name, layers.table().clone());
        Ok(DynamicsReport { dataset, origin, rows, request, config, fitted, holdout, open_loop })
    }
}

impl SimulatorComparison {
    /// Open-loop errors, when there is a simulator for the dataset's task.
    fn open_loop(
        &self,
        runtime: &Runtime,
        data: &Dataset,
        (fitted, seed): (&CachedModel, u64),
        line: &Linear,
    ) -> Result<Option<OpenLoop>> {
        let Some(task) = runtime.mujoco.task_of(&data.name) else {
            runtime.say(&format!("no simulator is known for `{}`: no open-loop errors", data.name));
            return Ok(None);
        };
        let longest = data.episodes.iter().map(|e| e.len()).max().unwrap_or(0);
        if longest == 0 {
            return Ok(None);
        }
        let recorded = data.meta.get("physics").and_then(|p| p.split_whitespace().next()?.parse().ok());
        let physics: Physics = self.physics.or(recorded).unwrap_or_default();
        let oracle = Oracle::new(runtime.envs(&task, physics)?)?;
        if (oracle.spec().obs_dim, oracle.spec().act_dim) != (data.rows.obs_dim(), data.rows.act_dim()) {
            runtime.say(&format!("{task} has other shapes than these data: no open-loop errors"));
            return Ok(None);
        }
        runtime.say(&format!("following {task} ({physics}) and the model from {} starts", self.windows));
        let cfg = OpenLoopConfig { windows: self.windows, steps: STEPS.min(longest), seed };
        Ok(Some(open_loop(&fitted.model, line, &oracle, data, &cfg)?))
    }
}

/// The library names keys as `train` has them; here the ensemble lies directly under `model`, and the rule beside it.
fn with_own_keys(error: anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    let own = text.replace("model.ensemble.", "model.").replace("model.termination", "termination");
    if own == text { error } else { anyhow!("{own}") }
}

impl DynamicsReport {
    /// Tables for the terminal, each between lines.
    pub fn tables(&self) -> Vec<(Vec<String>, Table, Vec<String>)> {
        let [held_out, trained_on] = [self.holdout.rows, self.fitted.report.train_rows].map(count);
        let mut lines = vec![format!(
            "hold-out error on standardised targets (a model that answers the mean has 1): {held_out} rows held out, \
             {trained_on} trained on, {} epochs",
            self.fitted.epochs
        )];
        let constant = &self.fitted.report.constant_inputs;
        lines.extend(
            (!constant.is_empty())
                .then(|| format!("inputs that never change: columns {constant:?} of (s, a)")),
        );
        let mut tables = vec![(lines, self.holdout_table(), Vec::new())];
        tables.extend(self.open_loop.as_ref().map(|open| {
            let line = format!(
                "open-loop error against the simulator, mean (10 %–90 %) over {} starts, in standard deviations of the states",
                count(open.windows)
            );
            (vec![line], open_loop_table(open), vec![left_out(open)])
        }));
        tables
    }

    /// All figures.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "dataset": self.dataset, "origin": self.origin, "rows": self.rows, "seed": self.request.seed, "config": self.config,
            "epochs": self.fitted.epochs, "updates": self.fitted.updates, "fit": self.fitted.report,
            "elites": self.fitted.model.elites(), "holdout": self.holdout, "open_loop": self.open_loop,
        })
    }

    /// Hold-out errors member by member, beside the linear model's.
    fn holdout_table(&self) -> Table {
        let found = &self.holdout;
        let cells = |name: String, elite: &str, error: f64| {
            row(name, [elite.to_string(), number(error), format!("{:.1}", found.linear / error)])
        };
        let member = |(i, &error): (usize, &f64)| {
            let elite = if self.fitted.model.elites().contains(&i) { "yes" } else { "" };
            cells(format!("member {i}"), elite, error)
        };
        let mut rows: Vec<_> = found.members.iter().enumerate().map(member).collect();
        rows.push(cells("mean of the elites".into(), "", found.elite_mean));
        rows.push(cells("linear least squares".into(), "", found.linear));
        Table::new(["", "elite", "MSE", "linear / it"], rows)
    }

    /// The page.
    ///
    /// # Errors
    /// Settings that TOML cannot hold.
    pub fn document(&self) -> Result<Document> {
        let (fitted, found, epochs) = (&self.fitted, &self.holdout, self.fitted.epochs);
        let (members, elites) = (fitted.model.members(), fitted.model.elites().len());
        let [trained, held, updates] =
            [fitted.report.train_rows, found.rows, fitted.updates as usize].map(count);
        let config = toml::to_string(&self.config).context("cannot write the configuration")?;
        let mut page = Document::new(format!("Dynamics model of {}", self.dataset));
        page.intro = vec![
            Element::Code(self.request.command()),
            Element::text(format!(
                "{members} members, of which {elites} make steps; {trained} rows trained on, {held} held out; {epochs} \
                 epochs, {updates} gradient steps."
            )),
        ];
        page.results = vec![
            self.cards(),
            Element::heading("Hold-out error"),
            Element::text(
                "Mean squared error on standardised targets (the change of state, and the reward): a model that answers the \
                 mean has 1. The last column says how many times larger the linear model's error is.",
            ),
            Element::Table(self.holdout_table()),
            Element::figure(
                by_column(found),
                "Hold-out error of each target column: the entries of the state in their order, the reward last.",
            ),
        ];
        page.results.extend(self.open_loop.as_ref().map(open_loop_elements).into_iter().flatten());
        page.details.extend(Element::section("Configuration", Element::Lines("toml", config)));
        Ok(page)
    }

    /// What a reader wants first.
    fn cards(&self) -> Element {
        let (found, fitted) = (&self.holdout, &self.fitted);
        let mut cards = vec![
            Card {
                main: true,
                ..Card::new(
                    "hold-out error",
                    number(found.elite_mean),
                    "elites' mean; answering the mean has 1",
                )
            },
            Card::new(
                "linear model",
                format!("{:.1}×", found.linear / found.elite_mean),
                "its error, in ours",
            ),
        ];
        if let Some(open) = &self.open_loop
            && let Some(curve) = open.curves.iter().find(|c| c.name == "mean of the elites")
        {
            let after = |n: usize| {
                Some(Card::new(
                    format!("after {n} steps"),
                    short(*curve.mean.get(n - 1)?),
                    "deviations from the simulator",
                ))
            };
            cards.extend([1, 10, 50].into_iter().filter_map(after));
        }
        cards.push(Card::new(
            "rows",
            count(self.rows),
            format!("{} members, {} epochs", fitted.model.members(), fitted.epochs),
        ));
        Element::Cards(cards)
    }
}

fn open_loop_elements(open: &OpenLoop) -> Vec<Element> {
    vec![
        Element::heading("Open-loop error against the simulator"),
        Element::text(format!(
            "Model and simulator start in {} states of the dataset and follow the dataset's own actions. The error is the \
             root mean square over the state's entries, each divided by its standard deviation over the dataset. \
             “recorded” is the difference between the recorded states and the simulator's: below it nothing can be told. {}",
            count(open.windows),
            left_out(open)
        )),
        Element::Table(open_loop_table(open)),
        Element::text("Mean over the starts (10 %–90 % quantile)."),
        Element::figure(
            over_steps(open, false),
            "Lines: mean over the starts; shades: 10 %–90 % quantile. “recorded” is drawn from a hundredth of the \
             model's first error on.",
        ),
        Element::figure(over_steps(open, true), "The same for the learnt model, on a linear axis."),
    ]
}

/// Errors after a few numbers of steps, one column for each predictor.
fn open_loop_table(open: &OpenLoop) -> Table {
    let cell = |curve: &Curve, n: usize| {
        let (low, high) = (short(curve.low[n - 1]), short(curve.high[n - 1]));
        let band = format!("{} ({low}–{high})", short(curve.mean[n - 1]));
        match curve.exploded[n - 1] {
            0 => band,
            lost => format!("{band}, {} exploded", count(lost)),
        }
    };
    let measured = open.curves.first().map_or(0, |c| c.mean.len());
    let steps = SHOWN_STEPS.into_iter().filter(|&n| n <= measured);
    let rows = steps.map(|n| row(n.to_string(), open.curves.iter().map(|c| cell(c, n))));
    Table::new(["steps"].into_iter().chain(open.curves.iter().map(|c| c.name)), rows)
}

/// Which starts could not be used, in a sentence.
fn left_out(open: &OpenLoop) -> String {
    match (open.clipped, open.unstable) {
        (0, 0) => "Every start could be rebuilt in the simulator.".into(),
        (clipped, unstable) => {
            let clipped = format!("{} starts whose observation hides clipped velocities", count(clipped));
            format!("Left out: {clipped}, {} the simulator could not follow.", count(unstable))
        }
    }
}

fn by_column(found: &HoldoutComparison) -> Plot {
    let points = |errors: &[f64]| errors.iter().enumerate().map(|(i, e)| (i as f64, *e)).collect();
    let series = vec![
        Series::scatter("mean of the elites", points(&found.elite_mean_by_column)),
        Series::scatter("linear", points(&found.linear_by_column)),
    ];
    Plot::new("Hold-out error by target", Axis::linear("column"), Axis::log("standardised MSE"), series)
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
    let y = if close { Axis::linear("scaled error") } else { Axis::log("scaled error") };
    let series = open.curves.iter().filter(shown).map(series).collect();
    Plot::new("Open-loop error", Axis::linear("steps"), y, series)
}

/// So many of the numbers below `of`, drawn at random.
pub(crate) fn draw_rows(count: usize, of: usize, rng: &mut Rng) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..of).collect();
    (0..count.min(of)).for_each(|i| rows.swap(i, i + rng.below(of - i)));
    rows.truncate(count);
    rows
}
