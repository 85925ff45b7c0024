//! `offing bench …`: speed, measured. Every bench prints a table and writes the same JSON.

use std::path::PathBuf;

use anyhow::Result;
use clap::Subcommand;
use offing::env::Physics;
use offing::sac::SacConfig;
use offing_experiments::Runtime;
use offing_experiments::bench::{
    KnnBench, NetworkBench, TrainingBench, bench_data, bench_dynamics, bench_env, bench_sac, bench_scaling,
    bench_uncertainty,
};
use offing_experiments::calibrate::parse_estimator;

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
    Knn {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        work: KnnBench,
        /// Write rows and queries as .npy files for other programs, and measure nothing.
        #[arg(long, value_name = "DIR")]
        export: Option<PathBuf>,
    },
    /// One gradient step of actor, critics and temperature.
    Sac {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        work: NetworkBench,
        /// Hidden widths of actor and critics.
        #[arg(long, value_delimiter = ',', default_values_t = [256, 256, 256])]
        hidden: Vec<usize>,
        /// Number of critics.
        #[arg(long, default_value_t = 2, value_parser = positive)]
        critics: usize,
        /// Normalise the critics' hidden layers.
        #[arg(long)]
        layer_norm: bool,
    },
    /// One gradient step of the model ensemble, and its predictions.
    Dynamics {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        work: NetworkBench,
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
    /// What more cores would bring to a gradient step: measured here, modelled beyond.
    Scaling {
        #[command(flatten)]
        common: Common,
        /// Rows of one gradient step.
        #[arg(long, default_value_t = 256, value_parser = positive)]
        batch: usize,
        /// Cores of the machine to think of.
        #[arg(long, default_value_t = 16, value_parser = positive)]
        cores: usize,
    },
    /// Whole trainings: seconds of a thousand gradient steps by phase, the projected run, memory.
    Train {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        work: TrainingBench,
    },
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

pub(crate) fn run(runtime: &Runtime, command: Bench) -> Result<ExitCode> {
    let (measured, common) = match command {
        Bench::Env { common, tasks, steps, physics } => {
            (bench_env(runtime, &tasks, physics, steps, common.samples)?, common)
        }
        Bench::Data { common, file, rows, set, policies } => {
            (bench_data(runtime, file.as_deref(), (&set, rows), policies, common.samples)?, common)
        }
        Bench::Knn { common, work, export } => {
            let data = work.prepare(runtime)?;
            if let Some(dir) = &export {
                data.export(dir)?;
                out!("{}", dir.display());
                return Ok(ExitCode::SUCCESS);
            }
            (data.measure(&work, common.samples)?, common)
        }
        Bench::Sac { common, work, hidden, critics, layer_norm } => {
            let cfg = SacConfig { hidden, critics, critic_layer_norm: layer_norm, ..SacConfig::default() };
            (bench_sac(&work, &cfg, common.samples)?, common)
        }
        Bench::Dynamics { common, work, members, hidden, rows } => {
            (bench_dynamics(&work, members, &hidden, rows, common.samples)?, common)
        }
        Bench::Uncertainty { dataset, common, rows, estimators, updates } => {
            let estimators = estimators.iter().map(|e| parse_estimator(e)).collect::<Result<Vec<_>>>()?;
            (bench_uncertainty(runtime, &dataset, &estimators, rows, updates, common.samples)?, common)
        }
        Bench::Scaling { common, batch, cores } => (bench_scaling(batch, cores, common.samples)?, common),
        Bench::Train { common, work } => match work.run(runtime, common.samples)? {
            Some(measured) => (measured, common),
            None => return Ok(ExitCode::STOPPED),
        },
    };
    term::print_table(&measured.table());
    common.json.write(|| measured.json())?;
    Ok(ExitCode::SUCCESS)
}
