//! `offing export` and `offing act`: a policy for other runtimes, and its own answers to compare them with.

use crate::exit::ExitCode;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use offing::Rng;
use offing::data::{read_npy, write_npy};
use offing::export::onnx;
use offing::home::write_atomic;
use offing::nn::{Team, Tensors};
use offing::sac::Actor;

use crate::term;

#[derive(clap::Args)]
pub(crate) struct Export {
    /// A policy file (safetensors).
    policy: PathBuf,
    /// Where to write; the ending says the format: .onnx.
    out: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct Act {
    /// A policy file (safetensors).
    policy: PathBuf,
    /// Observations, one a row, as a .npy matrix.
    obs: PathBuf,
    /// Where to write the actions, one a row, as .npy.
    out: PathBuf,
    /// Sample actions instead of taking the mean.
    #[arg(long)]
    stochastic: bool,
    /// Seed of the samples.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub(crate) fn export(args: &Export) -> Result<ExitCode> {
    if args.out.extension().is_none_or(|e| e != "onnx") {
        bail!("{}: wanted a name that ends in .onnx, the one format there is", args.out.display());
    }
    let actor = load(&args.policy)?;
    let bytes = onnx(&actor)?;
    write_atomic(&args.out, |file| file.write_all(&bytes))?;
    out!(
        "{}: obs [batch, {}] → action, mean, log_std [batch, {}], {} bytes",
        args.out.display(),
        actor.obs_dim(),
        actor.act_dim(),
        term::count(bytes.len())
    );
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn act(args: &Act) -> Result<ExitCode> {
    let actor = load(&args.policy)?;
    let obs = read_npy(&args.obs)?;
    if obs.ncols() != actor.obs_dim() {
        bail!(
            "{}: wanted {} columns, as {} takes them, found {}; give one observation a row",
            args.obs.display(),
            actor.obs_dim(),
            args.policy.display(),
            obs.ncols()
        );
    }
    if let Some(((row, column), value)) = obs.indexed_iter().find(|(_, v)| !v.is_finite()) {
        bail!(
            "{}: wanted finite numbers, found {value} in row {row}, column {column}; leave the row out",
            args.obs.display()
        );
    }
    let team = Team::new(rayon::current_num_threads());
    let actions = if args.stochastic {
        actor.act_batch(&team, &obs, &mut Rng::stream(args.seed, "act", 0))
    } else {
        actor.mean_batch(&team, &obs)
    };
    write_npy(&actions, &args.out)?;
    out!("{}: {} actions", args.out.display(), term::count(actions.nrows()));
    Ok(ExitCode::SUCCESS)
}

/// Reads a policy file.
fn load(path: &Path) -> Result<Actor> {
    let bytes = std::fs::read(path).with_context(|| format!("{}: cannot read", path.display()))?;
    Tensors::from_bytes(&bytes)
        .and_then(|tensors| Actor::from_policy(&tensors))
        .with_context(|| path.display().to_string())
}
