//! The Slurm executor: one array job whose tasks are `offing reproduce … --cell ID`. Nothing runs between: Slurm decides when
//! and where, tasks write down what became of their cells, and tables are made from that.
//!
//! Wherever the tasks run, the working directory, the datasets and offing's home must be the same, as on a shared file system.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use offing::home::write_atomic;
use serde::{Deserialize, Serialize};

use super::cells::{Cell, Ledger, Outcome, file_part};
use super::local::{quoted, words};
use crate::context::Context;
use crate::{invocation, signals, term};

/// What was submitted last, as `OUT/slurm/job.json` keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Job {
    /// Slurm's number of the array.
    pub(super) id: String,
    /// The cluster it is on, where Slurm serves several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cluster: Option<String>,
    /// The cell of each task.
    pub(super) cells: Vec<String>,
}

/// A controller that is busy or restarts does not answer for a while: how often in a row before that ends a wait.
const SILENCES: usize = 150;

/// How an array is asked for.
pub(super) struct Slurm<'a> {
    pub(super) context: &'a Context,
    pub(super) ledger: &'a Ledger,
    pub(super) out: PathBuf,
    /// The experiment's name.
    pub(super) name: &'a str,
    /// Arguments that give the same grid again; a cell's own are put behind them.
    pub(super) grid: Vec<String>,
    /// Tasks at once at most; as many as Slurm lets run when not given.
    pub(super) jobs: Option<usize>,
    /// Cores of each.
    pub(super) threads: usize,
    /// Whether tasks must not run side by side, nor beside others.
    pub(super) alone: bool,
    /// More options of sbatch.
    pub(super) options: &'a [String],
}

impl Slurm<'_> {
    fn dir(&self) -> PathBuf {
        self.out.join("slurm")
    }

    /// The last array of this grid, if there was one.
    fn last(&self) -> Option<Job> {
        let text = std::fs::read(self.dir().join("job.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Submits an array of these cells.
    pub(super) fn submit(&self, cells: &[Cell]) -> Result<Job> {
        if let Some(job) = self.last()
            && !queue(&job)?.is_empty()
        {
            bail!(
                "job {0} of this grid is still in the queue; wait for it (--status tells how it stands) or end it \
                 (scancel {1}{0})",
                job.id,
                job.cluster.as_ref().map_or(String::new(), |name| format!("-M {name} "))
            );
        }
        let dir = self.dir();
        std::fs::create_dir_all(&dir)
            .map_err(|e| anyhow!("{}: cannot create: {e}; give another --out", dir.display()))?;
        let path = dir.join("job.sh");
        let script = self.script(cells)?;
        write(&path, &script)?;
        let output = tool("sbatch", &["--parsable".into(), path.display().to_string()])?;
        let (id, cluster) = number_and_cluster(&output);
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_digit()) {
            bail!("sbatch: wanted the number of the job, found `{}`", output.trim());
        }
        let job = Job { id, cluster, cells: cells.iter().map(|c| c.id.clone()).collect() };
        write(&dir.join("job.json"), &(serde_json::to_string(&job)? + "\n"))?;
        Ok(job)
    }

    /// The job as sbatch takes it.
    fn script(&self, cells: &[Cell]) -> Result<String> {
        let here = std::env::current_dir().context("cannot find the working directory")?;
        let at_once = self.jobs.or(self.alone.then_some(1)).map_or(String::new(), |n| format!("%{n}"));
        let mut lines = vec![
            "#!/bin/sh".to_string(),
            format!("#SBATCH --job-name=offing-{}", file_part(self.name)),
            format!("#SBATCH --array=0-{}{at_once}", cells.len().saturating_sub(1)),
            format!("#SBATCH --cpus-per-task={}", self.threads),
            format!("#SBATCH --chdir={}", quoted(&here.display().to_string())),
            format!("#SBATCH --output={}", quoted(&format!("{}/%A_%a.log", self.dir().display()))),
            // Asked a minute and a half before its time is over, a cell saves and stops; the next array goes on with it.
            "#SBATCH --signal=B:TERM@90".into(),
            "#SBATCH --open-mode=append".into(),
            "#SBATCH --requeue".into(),
        ];
        lines.extend(self.alone.then(|| "#SBATCH --exclusive".to_string()));
        lines.extend(self.options.iter().map(|option| format!("#SBATCH {option}")));
        lines.push("set -e".into());
        // Tasks look where this process would, even where sbatch passes no environment on.
        for (name, path) in self.context.places() {
            lines.push(format!("export {name}={}", quoted(&path.display().to_string())));
        }
        lines.push("case $SLURM_ARRAY_TASK_ID in".into());
        lines.extend(cells.iter().enumerate().map(|(i, cell)| format!("{i}) id={} ;;", quoted(&cell.id))));
        lines.push("*) echo \"no cell $SLURM_ARRAY_TASK_ID\" >&2; exit 2 ;;".into());
        lines.push("esac".into());
        let mut command = invocation::command()?;
        command.args(["--threads", &self.threads.to_string()]).args(&self.grid);
        let command: Vec<String> = words(&command).iter().map(|word| quoted(word)).collect();
        lines.push(format!("exec {} --cell \"$id\"", command.join(" ")));
        Ok(lines.join("\n") + "\n")
    }

    /// Waits until no task of the array is left in the queue; false when stopped meanwhile. The array goes on.
    pub(super) fn wait(&self, job: &Job) -> Result<bool> {
        let (mut said, mut silent) = (String::new(), 0);
        loop {
            let now = match queue(job) {
                Ok(tasks) if tasks.is_empty() => return Ok(true),
                Ok(tasks) => {
                    silent = 0;
                    format!("job {}: {}", job.id, counts(tasks.iter().map(|(_, state)| state.as_str())))
                }
                Err(error) if silent >= SILENCES => {
                    bail!(
                        "{error:#}; the array goes on: --status tells how it stands, --collect makes the tables"
                    )
                }
                Err(error) => {
                    silent += 1;
                    format!("{error:#}; asking again")
                }
            };
            if now != said {
                self.context.say(&now);
                said = now;
            }
            for _ in 0..20 {
                if signals::asked_to_stop() {
                    return Ok(false);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// Tells how cells and tasks stand.
    pub(super) fn status(&self, cells: &[Cell]) -> Result<()> {
        let job = self.last();
        let tasks = job.as_ref().map(queue).transpose()?.unwrap_or_default();
        let task = |cell: &Cell| {
            let place = job.as_ref()?.cells.iter().position(|id| *id == cell.id)?;
            tasks.iter().find(|(task, _)| *task == place).map(|(_, state)| state.clone())
        };
        let (mut rows, mut all) = (Vec::new(), Vec::new());
        for (cell, outcome) in self.ledger.all(cells) {
            let task = task(&cell);
            let state = match (&outcome, &task) {
                (Outcome::Done(_) | Outcome::Failed(_), _) => outcome.word().to_string(),
                (_, Some(state)) => state.clone(),
                // Begun, but nobody of this array is at it any more.
                (Outcome::Begun(_), None) if job.is_some() => "interrupted".into(),
                _ => outcome.word().to_string(),
            };
            let why = if let Outcome::Failed(why) = &outcome { why.clone() } else { String::new() };
            rows.push(vec![cell.id.clone(), state.clone(), why]);
            all.push(state);
        }
        out!("{}", term::text_table(&["cell", "state", ""], rows));
        out!("{} cells: {}", cells.len(), counts(all.iter().map(String::as_str)));
        if let Some(job) = job {
            let left = counts(tasks.iter().map(|(_, state)| state.as_str()));
            let left = if tasks.is_empty() { "nothing left in the queue".into() } else { left };
            out!("Slurm job {}: {left}", job.id);
        }
        Ok(())
    }
}

/// The tasks of an array that are still in the queue, with their states in small letters.
fn queue(job: &Job) -> Result<Vec<(usize, String)>> {
    let mut args = ["-h", "-r", "-o", "%K %T", "-j", &job.id].map(String::from).to_vec();
    args.extend(job.cluster.iter().flat_map(|name| ["-M".to_string(), name.clone()]));
    let text = match tool("squeue", &args) {
        Ok(text) => text,
        // A job that ended a while ago is forgotten.
        Err(error) if error.to_string().contains("Invalid job id") => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let task = |line: &str| {
        let (place, state) = line.trim().split_once(' ')?;
        Some((place.parse().ok()?, state.trim().to_lowercase()))
    };
    Ok(text.lines().filter_map(task).collect())
}

/// What sbatch tells of a job: its number and, where Slurm serves several clusters, a name behind a semicolon.
fn number_and_cluster(told: &str) -> (String, Option<String>) {
    match told.trim().split_once(';') {
        Some((id, cluster)) => (id.into(), Some(cluster.into())),
        None => (told.trim().into(), None),
    }
}

/// How many of each, in the order they come: `2 running, 4 pending`.
fn counts<'s>(states: impl Iterator<Item = &'s str>) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for state in states {
        match counts.iter_mut().find(|(known, _)| *known == state) {
            Some((_, n)) => *n += 1,
            None => counts.push((state, 1)),
        }
    }
    let words: Vec<String> = counts.iter().map(|(state, n)| format!("{n} {state}")).collect();
    words.join(", ")
}

/// What a tool of Slurm prints.
fn tool(name: &str, args: &[String]) -> Result<String> {
    let output = Command::new(name).args(args).output().map_err(|e| {
        anyhow!("{name}: cannot run: {e}; run this where Slurm's commands are, or leave --executor out")
    })?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{name}: {}", error.trim().lines().next().unwrap_or("failed without a word"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn write(path: &Path, text: &str) -> Result<()> {
    Ok(write_atomic(path, |f| std::io::Write::write_all(f, text.as_bytes()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_counted_in_the_order_they_come() {
        assert_eq!(counts(["done", "running", "done"].into_iter()), "2 done, 1 running");
        assert_eq!(counts([].into_iter()), "");
    }

    #[test]
    fn the_cluster_of_a_job_is_kept() {
        assert_eq!(number_and_cluster("123\n"), ("123".into(), None));
        assert_eq!(number_and_cluster("123;north\n"), ("123".into(), Some("north".into())));
        let old: Job = serde_json::from_str("{\"id\":\"7\",\"cells\":[]}").unwrap();
        assert_eq!(old.cluster, None);
    }

    #[test]
    fn a_tool_that_is_not_there_is_told_in_one_line() {
        let error = tool("sbatch-of-nowhere", &[]).unwrap_err().to_string();
        assert!(error.contains("leave --executor out") && !error.contains('\n'), "{error}");
    }
}
