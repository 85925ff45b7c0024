//! `offing export` and `offing act`: a policy for other runtimes, and its own answers to compare them with.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use offing::data::{ActionFile, ColumnMap, Observations};
use offing::export::onnx;
use offing::home::write_atomic;
use offing::nn::ThreadPool;
use offing::sac::Actor;
use offing::{Error, Mat, Rng};
use offing_experiments::Runtime;
use offing_experiments::format::count;
use offing_experiments::run_record::{POLICIES, load_actor};

use crate::exit::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Export {
    /// A policy file (safetensors), or a run directory for its last policy.
    #[arg(value_name = "RUN|POLICY")]
    policy: PathBuf,
    /// Where to write; the ending says the format: .onnx.
    out: PathBuf,
}

#[derive(clap::Args)]
pub(crate) struct Act {
    /// A policy file (safetensors), or a run directory for its last policy.
    #[arg(value_name = "RUN|POLICY")]
    policy: PathBuf,
    /// Observations, one a row, in the log's units: a .npy matrix, or a CSV or Parquet table with columns obs_0, obs_1 and
    /// on. Other columns are not used.
    obs: PathBuf,
    /// Where to write the actions, one a row in the same order; the ending says the format: .npy, .csv, .tsv or .parquet.
    #[arg(required_unless_present = "output")]
    out: Option<PathBuf>,
    /// The same as OUT.
    #[arg(short = 'o', long = "out", value_name = "FILE", conflicts_with = "out")]
    output: Option<PathBuf>,
    /// A TOML file whose key obs lists the columns of the observation, as for `offing data convert`.
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
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
    let actor = load_actor(&policy_file(&args.policy)?)?;
    let bytes = onnx(&actor)?;
    write_atomic(&args.out, |file| file.write_all(&bytes))?;
    let (out, obs, act, size) = (args.out.display(), actor.obs_dim(), actor.act_dim(), count(bytes.len()));
    out!("{out}: obs [batch, {obs}] → action, mean, log_std [batch, {act}], {size} bytes");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn act(runtime: &Runtime, args: &Act) -> Result<ExitCode> {
    let out =
        args.out.as_ref().or(args.output.as_ref()).context("wanted a file for the actions, found none")?;
    let target = ActionFile::new(out)?;
    let actor = load_actor(&policy_file(&args.policy)?)?;
    let map = args.columns.as_deref().map(ColumnMap::from_file).transpose()?;
    let mut observations = Observations::open(&args.obs, map.as_ref().map(|map| &map.obs[..]))?;
    let pool = ThreadPool::new(rayon::current_num_threads());
    let mut rng = Rng::stream(args.seed, "act", 0);
    let rows = target.write(actor.act_dim(), || {
        let Some(obs) = observations.next_rows()? else { return Ok(None) };
        if obs.ncols() != actor.obs_dim() {
            return Err(Error::file(&args.obs, wrong_width(&observations, &obs, &actor, &args.policy)));
        }
        let mut actions = match args.stochastic {
            true => actor.act_batch(&pool, &obs, &mut rng),
            false => actor.mean_batch(&pool, &obs),
        };
        if let Some(range) = actor.action_range() {
            range.outward(actions.view_mut());
        }
        Ok(Some(actions))
    })?;
    for note in observations.notes() {
        runtime.say(&format!("{}: {note}", args.obs.display()));
    }
    out!("{}: {} actions", out.display(), count(rows));
    Ok(ExitCode::SUCCESS)
}

/// What to say of observations that are not as wide as the policy takes them.
fn wrong_width(observations: &Observations, obs: &Mat, actor: &Actor, policy: &Path) -> String {
    let names = match observations.columns() {
        [] => String::new(),
        [first, .., last] => format!(" ({first} … {last})"),
        [list] => format!(" ({list})"),
    };
    format!(
        "wanted observations of {} columns, as {} takes them, found {}{names}; give all entries of an observation in each row",
        actor.obs_dim(),
        policy.display(),
        obs.ncols()
    )
}

/// The file of a policy: the one given, or a run's last one.
fn policy_file(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_path_buf());
    }
    let [last, _, best] = POLICIES.map(|(_, file)| path.join(file));
    if last.is_file() {
        return Ok(last);
    }
    let way = match best.is_file() {
        true => format!("give {}, the best so far, or finish the run", best.display()),
        false => "finish the run, or give a policy file".into(),
    };
    let path = path.display();
    bail!("{path}: wanted a run with its last policy, which is written at its end, found none; {way}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stands_for_its_last_policy() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        assert_eq!(policy_file(&file("x.safetensors")).unwrap(), file("x.safetensors"));
        let error = policy_file(dir.path()).unwrap_err().to_string();
        assert!(error.contains("finish the run"), "{error}");
        std::fs::write(file("best.safetensors"), "").unwrap();
        let error = policy_file(dir.path()).unwrap_err().to_string();
        assert!(error.contains("best.safetensors, the best so far"), "{error}");
        std::fs::write(file("policy.safetensors"), "").unwrap();
        assert_eq!(policy_file(dir.path()).unwrap(), file("policy.safetensors"));
    }
}
