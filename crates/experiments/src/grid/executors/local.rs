//! The local executor: cells as processes of their own, so many at once, each with its share of the cores.
//!
//! A cell's process holds the other end of a pipe. When this process stops, or is killed, the pipe ends, and the cell saves
//! and stops as if it had been asked to: nothing is left behind, and the same command resumes.

use std::fs::File;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use offing::home::refuse_link;

use super::super::{Cell, CellState, Grid};
use super::grid_command;
use crate::Runtime;
use crate::format::duration;

/// How cells are run here.
pub struct Local<'a> {
    /// Who listens, when to stop.
    pub runtime: &'a Runtime,
    /// The grid of the cells.
    pub grid: &'a Grid,
    /// Cells at once.
    pub jobs: usize,
    /// Threads of each.
    pub threads: usize,
}

/// A cell at work.
struct RunningCell {
    cell: Cell,
    place: usize,
    child: Child,
    started: Instant,
}

impl Local<'_> {
    /// Runs these cells; false when it was stopped before all had ended.
    ///
    /// # Errors
    /// A process that cannot be started.
    pub fn run(&self, cells: Vec<Cell>) -> Result<bool> {
        let total = cells.len();
        let mut waiting: Vec<(usize, Cell)> = cells.into_iter().enumerate().collect();
        let mut running: Vec<RunningCell> = Vec::new();
        loop {
            if (self.runtime.stop_requested)() {
                return self.stop(running);
            }
            let mut still = Vec::new();
            for mut one in running {
                match one.child.try_wait()? {
                    None => still.push(one),
                    Some(status) => self.ended(&one, total, status)?,
                }
            }
            running = still;
            while running.len() < self.jobs && !waiting.is_empty() {
                // Cells of one dataset may need the same model: two at once would wait for each other.
                let free =
                    waiting.iter().position(|(_, c)| running.iter().all(|r| r.cell.dataset != c.dataset));
                let (place, cell) = waiting.remove(free.unwrap_or(0));
                self.runtime.say(&format!("cell {} of {total}: {}", place + 1, cell.label()));
                running.push(self.start(place, cell)?);
            }
            if running.is_empty() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn start(&self, place: usize, cell: Cell) -> Result<RunningCell> {
        let path = self.grid.store.log(&cell);
        let parent = path.parent().unwrap_or(&path);
        refuse_link(&path)?;
        std::fs::create_dir_all(parent)
            .and_then(|()| File::options().create(true).append(true).open(&path))
            .and_then(|log| Ok((log.try_clone()?, log)))
            .with_context(|| format!("{}: cannot write", path.display()))
            .and_then(|(out, log)| {
                let mut command = grid_command(self.runtime, self.grid, Some(self.threads))?;
                command.args(["--cell", &cell.id, "--tied"]);
                command.stdin(Stdio::piped()).stdout(out).stderr(log);
                // Ctrl-C at the terminal is for this process alone, which then stops its cells.
                #[cfg(unix)]
                std::os::unix::process::CommandExt::process_group(&mut command, 0);
                let child = command.spawn().context("cannot start a process for a cell")?;
                Ok(RunningCell { cell, place, child, started: Instant::now() })
            })
    }

    fn ended(&self, one: &RunningCell, total: usize, status: ExitStatus) -> Result<()> {
        let state = match (self.grid.store.read(&one.cell), status.success()) {
            (done @ CellState::Done(_), true) => done,
            (CellState::Failed(why), false) => CellState::Failed(why),
            _ => {
                let log = self.grid.store.log(&one.cell);
                let failed =
                    CellState::Failed(format!("its process ended with {status}; see {}", log.display()));
                self.grid.store.write(&one.cell, &failed)?;
                failed
            }
        };
        let took = duration(one.started.elapsed().as_secs_f64());
        let words = match &state {
            CellState::Failed(why) => format!("failed: {why}"),
            _ => format!("done in {took}"),
        };
        self.runtime.say(&format!("cell {} of {total}: {}: {words}", one.place + 1, one.cell.label()));
        Ok(())
    }

    fn stop(&self, running: Vec<RunningCell>) -> Result<bool> {
        let mut children: Vec<Child> = running.into_iter().map(|one| one.child).collect();
        // All get the request before any is waited for.
        children.iter_mut().for_each(|child| drop(child.stdin.take()));
        for child in &mut children {
            child.wait()?;
        }
        Ok(false)
    }
}
