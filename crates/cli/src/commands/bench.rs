//! `offing bench …`: speed, measured. Every bench prints a table and writes the same JSON.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use offing::env::Physics;
use offing_experiments::Runtime;
use offing_experiments::bench::{
    KnnBench, Measurements, NetworkBench, TrainingBench, bench_data, bench_dynamics, bench_env, bench_sac,
    bench_uncertainty,
};
use offing_experiments::calibrate::parse_estimator;
use offing_knn::Metric;

use crate::args::{JsonFile, positive};
use crate::exit::ExitCode;
use crate::term;

#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Simulator steps a second on one core, beside the bare engine.
    Env {
        #[command(flatten)]
        common: Common,
        /// Tasks to step [default: all].
        #[arg(long, value_delimiter = ',')]
        tasks: Vec<String>,
        /// Steps a sample.
        #[arg(long, default_value_t = 20_000, value_parser = positive)]
        steps: usize,
        /// Which physics to simulate.
        #[arg(long, default_value_t)]
        physics: Physics,
    },
    /// Generate, read and write a dataset.
    Data {
        #[command(flatten)]
        common: Common,
        /// Only read this dataset file.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Rows to generate.
        #[arg(long, default_value_t = 100_000)]
        rows: usize,
        /// Which dataset to generate.
        #[arg(long, default_value = "hopper-random")]
        set: String,
        /// Behaviour policies for datasets that need them.
        #[arg(long, value_name = "DIR")]
        policies: Option<PathBuf>,
    },
    /// Exact neighbour search on imagined transitions.
    Knn(Knn),
    /// One gradient step of actor, critics and temperature.
    Sac {
        #[command(flatten)]
        work: Work,
        /// Hidden widths of actor and critics.
        #[arg(long, value_delimiter = ',', default_values_t = [256, 256, 256])]
        hidden: Vec<usize>,
    },
    /// One gradient step of the model ensemble, and its predictions.
    Dynamics {
        #[command(flatten)]
        work: Work,
        /// Members of the ensemble.
        #[arg(long, default_value_t = 7, value_parser = positive)]
        members: usize,
        /// Hidden widths of a member.
        #[arg(long, value_delimiter = ',', default_values_t = [400, 400, 400, 400])]
        hidden: Vec<usize>,
        /// Rows to predict; 0 skips the predictions.
        #[arg(long, default_value_t = 50_000)]
        rows: usize,
    },
    /// Score imagined rows, beside the ensemble's own forward pass.
    Uncertainty {
        /// The dataset to score against (path, id or name).
        dataset: String,
        #[command(flatten)]
        common: Common,
        /// Imagined rows to score.
        #[arg(long, default_value_t = 50_000, value_parser = positive)]
        rows: usize,
        /// Estimators by id, or as JSON settings.
        #[arg(long, value_delimiter = ' ', num_args = 1.., default_values_t = ["sumo".to_string(), "fathom".into()])]
        estimators: Vec<String>,
        /// Gradient steps of the (full-size) ensemble before it imagines: enough for next states near the data.
        #[arg(long, default_value_t = 500)]
        updates: u64,
    },
    /// Whole trainings: seconds of a thousand gradient steps by phase, the projected run, memory.
    Train(Train),
}

/// Options of every bench.
#[derive(clap::Args)]
pub(crate) struct Common {
    #[command(flatten)]
    json: JsonFile,
    /// How often to measure each thing.
    #[arg(long, default_value_t = 5, value_parser = positive)]
    samples: usize,
}

/// The shape of gradient steps, which is half-cheetah's.
#[derive(clap::Args)]
pub(crate) struct Work {
    #[command(flatten)]
    common: Common,
    /// Threads that do the arithmetic.
    #[arg(long, default_value_t = 2, value_parser = positive)]
    threads: usize,
    /// Gradient steps a sample.
    #[arg(long, default_value_t = 20, value_parser = positive)]
    updates: usize,
    /// Rows of one gradient step.
    #[arg(long, default_value_t = 256, value_parser = positive)]
    batch: usize,
    /// Width of a state.
    #[arg(long, default_value_t = 17, value_parser = positive)]
    obs: usize,
    /// Width of an action.
    #[arg(long, default_value_t = 6, value_parser = positive)]
    act: usize,
}

impl Work {
    fn shape(&self) -> NetworkBench {
        let Self { common, threads, updates, batch, obs, act } = self;
        let (threads, updates, batch, obs, act) = (*threads, *updates, *batch, *obs, *act);
        NetworkBench { samples: common.samples, threads, updates, batch, obs, act }
    }
}

#[derive(clap::Args)]
pub(crate) struct Knn {
    /// A generated dataset: it must hold simulator states, from which the queries roll out.
    dataset: String,
    #[command(flatten)]
    common: Common,
    /// Behaviour policies; the best one of the body is the trained agent of the queries.
    #[arg(long, value_name = "DIR")]
    policies: PathBuf,
    /// Queries of each distance.
    #[arg(long, default_value_t = 50_000)]
    queries: usize,
    /// Numbers of neighbours to search for.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10])]
    k: Vec<usize>,
    /// Index only N rows, drawn at random (to see how cost grows).
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// The distance measure.
    #[arg(long, value_parser = metric, default_value = "euclidean")]
    metric: Metric,
    /// Standardise every column first.
    #[arg(long)]
    standardise: bool,
    /// Also time the leave-one-out maximum and the yes/no search.
    #[arg(long)]
    more: bool,
    /// Write rows and queries as .npy files for other programs, and measure nothing.
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct Train {
    #[command(flatten)]
    common: Common,
    /// Algorithms to measure in turns. Memory is that of all of them together: name one to measure its own.
    #[arg(long, value_delimiter = ' ', num_args = 1.., default_values_t = ["mopo+sumo".to_string(), "mopo".into()])]
    algorithms: Vec<String>,
    /// The dataset to learn from.
    #[arg(long, default_value = "halfcheetah-medium-replay")]
    dataset: String,
    /// Its rows.
    #[arg(long, default_value_t = 1_000_000, value_parser = positive)]
    rows: usize,
    /// Gradient steps of the ensemble before it imagines; a whole run has 100,000. A model of a hundred steps imagines
    /// noise, and noise has no near neighbours: searches then take a hundred times as long.
    #[arg(long, default_value_t = 2000, value_parser = positive)]
    updates: usize,
    /// Change a setting of all algorithms, such as sac.hidden=[64,64] (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

fn metric(name: &str) -> Result<Metric, String> {
    match name {
        "euclidean" => Ok(Metric::Euclidean),
        "manhattan" => Ok(Metric::Manhattan),
        "cosine" => Ok(Metric::Cosine),
        other => Err(format!("unknown distance `{other}`; known: euclidean, manhattan, cosine")),
    }
}

pub(crate) fn run(runtime: &Runtime, command: Bench) -> Result<ExitCode> {
    let (measured, common) = match command {
        Bench::Env { common, tasks, steps, physics } => {
            (bench_env(runtime, &tasks, physics, steps, common.samples)?, common)
        }
        Bench::Data { common, file, rows, set, policies } => {
            (bench_data(runtime, file.as_deref(), (&set, rows), policies, common.samples)?, common)
        }
        Bench::Knn(args) => return knn(runtime, args),
        Bench::Sac { work, hidden } => (bench_sac(&work.shape(), &hidden)?, work.common),
        Bench::Dynamics { work, members, hidden, rows } => {
            (bench_dynamics(&work.shape(), members, &hidden, rows)?, work.common)
        }
        Bench::Uncertainty { dataset, common, rows, estimators, updates } => {
            let estimators = estimators.iter().map(|e| parse_estimator(e)).collect::<Result<Vec<_>>>()?;
            (bench_uncertainty(runtime, &dataset, &estimators, rows, updates, common.samples)?, common)
        }
        Bench::Train(Train { common, algorithms, dataset, rows, updates, set }) => {
            let bench = TrainingBench { algorithms, dataset, rows, updates, set, samples: common.samples };
            match bench.run(runtime)? {
                Some(measured) => (measured, common),
                None => return Ok(ExitCode::STOPPED),
            }
        }
    };
    finish(&measured, &common)
}

fn knn(runtime: &Runtime, args: Knn) -> Result<ExitCode> {
    let Knn { dataset, common, policies, queries, k, rows, metric, standardise, more, export } = args;
    let data = KnnBench { dataset, policies, queries, rows, standardise }.prepare(runtime)?;
    if let Some(dir) = &export {
        data.export(dir)?;
        out!("{}", dir.display());
        return Ok(ExitCode::SUCCESS);
    }
    finish(&data.measure(metric, &k, more, common.samples)?, &common)
}

fn finish(measured: &Measurements, common: &Common) -> Result<ExitCode> {
    term::print_table(&measured.table());
    common.json.write(|| measured.json())?;
    Ok(ExitCode::SUCCESS)
}
