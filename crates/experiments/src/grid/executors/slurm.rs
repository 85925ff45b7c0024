//! The Slurm executor: one array job whose tasks are `offing reproduce … --cell ID`. Nothing runs between: Slurm decides when
//! and where, tasks write the states of their cells, and tables are made from these.
//!
//! Wherever the tasks run, the working directory, the datasets and offing's home must be the same, as on a shared file system.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::super::cells::file_part;
use super::super::{Cell, CellState, Grid};
use super::{grid_command, quoted, words};
use crate::files::{read_json, write_text};
use crate::{Runtime, Table};

/// What was submitted last, as `OUT/slurm/job.json` keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlurmJob {
    /// Slurm's number of the array.
    pub id: String,
    /// The cluster it is on, where Slurm serves several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The cell of each task.
    pub cells: Vec<String>,
}

/// A controller that is busy or restarts does not answer for a while: how often in a row before that ends a wait.
const SILENCES: usize = 150;

/// How an array is asked for.
pub struct Slurm<'a> {
    /// Who listens, when to stop.
    pub runtime: &'a Runtime,
    /// The grid of the cells.
    pub grid: &'a Grid,
    /// Tasks at once at most; as many as Slurm lets run when not given.
    pub jobs: Option<usize>,
    /// Cores of each.
    pub threads: usize,
    /// More options of sbatch.
    pub options: &'a [String],
}

impl Slurm<'_> {
    fn dir(&self) -> PathBuf {
        self.grid.request.out().join("slurm")
    }

    /// The last array of this grid, if there was one.
    fn last(&self) -> Option<SlurmJob> {
        read_json(&self.dir().join("job.json"))
    }

    /// Submits an array of these cells.
    pub fn submit(&self, cells: &[Cell]) -> Result<SlurmJob> {
        if let Some(job) = self.last()
            && !queue(&job)?.is_empty()
        {
            bail!(
                "job {0} of this grid is still in the queue; wait for it (--status shows its state) or end it \
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
        write_text(&path, &script)?;
        let output = tool("sbatch", &["--parsable".into(), path.display().to_string()])?;
        let (id, cluster) = number_and_cluster(&output);
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_digit()) {
            bail!("sbatch: wanted the number of the job, found `{}`", output.trim());
        }
        let job = SlurmJob { id, cluster, cells: cells.iter().map(|c| c.id.clone()).collect() };
        write_text(&dir.join("job.json"), &(serde_json::to_string(&job)? + "\n"))?;
        Ok(job)
    }

    /// The job as sbatch takes it.
    fn script(&self, cells: &[Cell]) -> Result<String> {
        let here = std::env::current_dir().context("cannot find the working directory")?;
        // Neither side by side nor beside others.
        let alone = self.grid.runs_alone();
        let at_once = self.jobs.or(alone.then_some(1)).map_or(String::new(), |n| format!("%{n}"));
        let mut lines = vec![
            "#!/bin/sh".to_string(),
            format!("#SBATCH --job-name=offing-{}", file_part(&self.grid.request.name)),
            format!("#SBATCH --array=0-{}{at_once}", cells.len().saturating_sub(1)),
            format!("#SBATCH --cpus-per-task={}", self.threads),
            format!("#SBATCH --chdir={}", quoted(&here.display().to_string())),
            format!("#SBATCH --output={}", quoted(&format!("{}/%A_%a.log", self.dir().display()))),
            // Asked a minute and a half before its time is over, a cell saves and stops; the next array resumes it.
            "#SBATCH --signal=B:TERM@90".into(),
            "#SBATCH --open-mode=append".into(),
            "#SBATCH --requeue".into(),
        ];
        lines.extend(alone.then(|| "#SBATCH --exclusive".to_string()));
        lines.extend(self.options.iter().map(|option| format!("#SBATCH {option}")));
        lines.push("set -e".into());
        // Tasks look where this process would, even where sbatch passes no environment on.
        for (name, path) in self.runtime.variables() {
            lines.push(format!("export {name}={}", quoted(&path.display().to_string())));
        }
        lines.push("case $SLURM_ARRAY_TASK_ID in".into());
        lines.extend(cells.iter().enumerate().map(|(i, cell)| format!("{i}) id={} ;;", quoted(&cell.id))));
        lines.push(r#"*) echo "no cell $SLURM_ARRAY_TASK_ID" >&2; exit 2 ;;"#.into());
        lines.push("esac".into());
        let command = grid_command(self.runtime, self.grid, Some(self.threads))?;
        let command: Vec<String> = words(&command).iter().map(|word| quoted(word)).collect();
        lines.push(format!(r#"exec {} --cell "$id""#, command.join(" ")));
        Ok(lines.join("\n") + "\n")
    }

    /// Waits until no task of the array is left in the queue; false when stopped meanwhile. The array continues.
    pub fn wait(&self, job: &SlurmJob) -> Result<bool> {
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
                        "{error:#}; the array continues: --status shows its state, --collect makes the tables"
                    )
                }
                Err(error) => {
                    silent += 1;
                    format!("{error:#}; asking again")
                }
            };
            if now != said {
                self.runtime.say(&now);
                said = now;
            }
            for _ in 0..20 {
                if (self.runtime.stop_requested)() {
                    return Ok(false);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    /// How cells and tasks stand: a table, then lines.
    ///
    /// # Errors
    /// Slurm does not answer.
    pub fn status(&self, cells: &[Cell]) -> Result<(Table, Vec<String>)> {
        let job = self.last();
        let tasks = job.as_ref().map(queue).transpose()?.unwrap_or_default();
        let task = |cell: &Cell| {
            let place = job.as_ref()?.cells.iter().position(|id| *id == cell.id)?;
            tasks.iter().find(|(task, _)| *task == place).map(|(_, state)| state.as_str())
        };
        let of = |(cell, state): (Cell, CellState)| {
            let word = match (&state, task(&cell)) {
                (CellState::Done(_) | CellState::Failed(_), _) => state.word(),
                (_, Some(word)) => word,
                // Begun, but nobody of this array is at it any more.
                (CellState::Begun(_), None) if job.is_some() => "interrupted",
                _ => state.word(),
            };
            let why = if let CellState::Failed(why) = &state { why.clone() } else { String::new() };
            vec![cell.id, word.to_string(), why]
        };
        let table = Table::new(["cell", "state", ""], self.grid.store.all(cells).into_iter().map(of));
        let states = counts(table.rows.iter().map(|row| row[1].as_str()));
        let mut lines = vec![format!("{} cells: {states}", cells.len())];
        if let Some(job) = &job {
            let left = counts(tasks.iter().map(|(_, state)| state.as_str()));
            let left = if tasks.is_empty() { "nothing left in the queue".into() } else { left };
            lines.push(format!("Slurm job {}: {left}", job.id));
        }
        Ok((table, lines))
    }
}

fn queue(job: &SlurmJob) -> Result<Vec<(usize, String)>> {
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

/// What sbatch prints of a job: its number and, where Slurm serves several clusters, a name behind a semicolon.
fn number_and_cluster(printed: &str) -> (String, Option<String>) {
    match printed.trim().split_once(';') {
        Some((id, cluster)) => (id.into(), Some(cluster.into())),
        None => (printed.trim().into(), None),
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
        let old: SlurmJob = serde_json::from_str("{\"id\":\"7\",\"cells\":[]}").unwrap();
        assert_eq!(old.cluster, None);
    }

    #[test]
    fn a_tool_that_is_not_there_is_told_in_one_line() {
        let error = tool("sbatch-of-nowhere", &[]).unwrap_err().to_string();
        assert!(error.contains("leave --executor out") && !error.contains('\n'), "{error}");
    }
}
