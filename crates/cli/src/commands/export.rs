//! `offing export` and `offing act`: a policy for other runtimes, and its own answers to compare them with.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use offing::data::{read_npy, write_npy};
use offing::export::onnx;
use offing::home::write_atomic;
use offing::nn::ThreadPool;
use offing::{Mat, Rng};
use offing_experiments::Table;
use offing_experiments::files::write_text;
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
    /// Observations, one a row, as a .npy matrix.
    obs: PathBuf,
    /// Where to write the actions, one a row; the ending says the format: .npy or .csv.
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
    let actor = load_actor(&policy_file(&args.policy)?)?;
    let bytes = onnx(&actor)?;
    write_atomic(&args.out, |file| file.write_all(&bytes))?;
    let (out, obs, act, size) = (args.out.display(), actor.obs_dim(), actor.act_dim(), count(bytes.len()));
    out!("{out}: obs [batch, {obs}] → action, mean, log_std [batch, {act}], {size} bytes");
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn act(args: &Act) -> Result<ExitCode> {
    let as_csv = match args.out.extension().and_then(|e| e.to_str()) {
        Some("npy") => false,
        Some("csv") => true,
        _ => bail!("{}: wanted a name that ends in .npy or .csv", args.out.display()),
    };
    let actor = load_actor(&policy_file(&args.policy)?)?;
    let obs = read_npy(&args.obs)?;
    let (file, policy) = (args.obs.display(), args.policy.display());
    let (wanted, found) = (actor.obs_dim(), obs.ncols());
    if found != wanted {
        bail!(
            "{file}: wanted {wanted} columns, as {policy} takes them, found {found}; give one observation a row"
        );
    }
    if let Some(((row, column), value)) = obs.indexed_iter().find(|(_, v)| !v.is_finite()) {
        bail!(
            "{file}: wanted finite numbers, found {value} in row {row}, column {column}; leave the row out"
        );
    }
    let pool = ThreadPool::new(rayon::current_num_threads());
    let mut actions = if args.stochastic {
        actor.act_batch(&pool, &obs, &mut Rng::stream(args.seed, "act", 0))
    } else {
        actor.mean_batch(&pool, &obs)
    };
    if let Some(range) = actor.action_range() {
        range.outward(actions.view_mut());
    }
    match as_csv {
        true => write_text(&args.out, &csv(&actions))?,
        false => write_npy(&actions, &args.out)?,
    }
    out!("{}: {} actions", args.out.display(), count(actions.nrows()));
    Ok(ExitCode::SUCCESS)
}

/// Actions as CSV, under the names that datasets have for them.
fn csv(actions: &Mat) -> String {
    let rows = actions.rows().into_iter().map(|row| row.iter().map(f32::to_string).collect());
    Table::new((0..actions.ncols()).map(|i| format!("act_{i}")), rows).csv()
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
    fn actions_are_written_as_datasets_name_them() {
        let actions = Mat::from_shape_vec((2, 2), vec![0.5, -1.0, 0.25, 0.1]).unwrap();
        assert_eq!(csv(&actions), "act_0,act_1\n0.5,-1\n0.25,0.1\n");
    }

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
