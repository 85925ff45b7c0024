//! The local executor: cells as processes of their own, so many at once, each with its share of the cores.
//!
//! A cell's process holds the other end of a pipe. When this process stops, or is killed, the pipe ends, and the cell saves
//! and stops as if it had been asked to: nothing is left behind, and the same command goes on.

use std::ffi::OsString;
use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::cells::{Cell, Ledger, Outcome};
use crate::context::Context;
use crate::{invocation, signals, term};

/// How cells are run here.
pub(super) struct Local<'a> {
    pub(super) context: &'a Context,
    pub(super) ledger: &'a Ledger,
    /// Arguments that give the same grid again; a cell's own are put behind them.
    pub(super) grid: Vec<String>,
    /// Cells at once.
    pub(super) jobs: usize,
    /// Threads of each.
    pub(super) threads: usize,
}

/// A cell at work.
struct Running {
    cell: Cell,
    place: usize,
    child: Child,
    started: Instant,
}

impl Local<'_> {
    /// Runs these cells; false when it was stopped before all had ended.
    pub(super) fn run(&self, cells: Vec<Cell>) -> Result<bool> {
        let total = cells.len();
        let mut waiting: Vec<(usize, Cell)> = cells.into_iter().enumerate().collect();
        let mut running: Vec<Running> = Vec::new();
        loop {
            if signals::asked_to_stop() {
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
                self.context.say(&format!("cell {} of {total}: {}", place + 1, cell.label()));
                running.push(self.start(place, cell)?);
            }
            if running.is_empty() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn start(&self, place: usize, cell: Cell) -> Result<Running> {
        let path = self.ledger.log(&cell);
        let parent = path.parent().unwrap_or(&path);
        std::fs::create_dir_all(parent)
            .and_then(|()| File::options().create(true).append(true).open(&path))
            .and_then(|log| Ok((log.try_clone()?, log)))
            .with_context(|| format!("{}: cannot write", path.display()))
            .and_then(|(out, log)| {
                let mut command = invocation::command()?;
                command.args(["--threads", &self.threads.to_string()]).args(&self.grid);
                command.args(["--cell", &cell.id, "--tied"]);
                command.stdin(Stdio::piped()).stdout(out).stderr(log);
                // Ctrl-C at the terminal is for this process alone, which then tells its cells.
                #[cfg(unix)]
                std::os::unix::process::CommandExt::process_group(&mut command, 0);
                let child = command.spawn().context("cannot start a process for a cell")?;
                Ok(Running { cell, place, child, started: Instant::now() })
            })
    }

    fn ended(&self, one: &Running, total: usize, status: ExitStatus) -> Result<()> {
        let outcome = match (self.ledger.read(&one.cell), status.success()) {
            (done @ Outcome::Done(_), true) => done,
            (Outcome::Failed(why), false) => Outcome::Failed(why),
            _ => {
                let log = self.ledger.log(&one.cell);
                let failed =
                    Outcome::Failed(format!("its process ended with {status}; see {}", log.display()));
                self.ledger.write(&one.cell, &failed)?;
                failed
            }
        };
        let took = term::duration(one.started.elapsed().as_secs_f64());
        let words = match &outcome {
            Outcome::Failed(why) => format!("failed: {why}"),
            _ => format!("done in {took}"),
        };
        self.context.say(&format!("cell {} of {total}: {}: {words}", one.place + 1, one.cell.label()));
        Ok(())
    }

    fn stop(&self, running: Vec<Running>) -> Result<bool> {
        let mut children: Vec<Child> = running.into_iter().map(|one| one.child).collect();
        // All are told before any is waited for.
        children.iter_mut().for_each(|child| drop(child.stdin.take()));
        for child in &mut children {
            child.wait()?;
        }
        Ok(false)
    }
}

/// The words of a command, for scripts and lists.
pub(super) fn words(command: &Command) -> Vec<String> {
    let all = [command.get_program().to_owned()].into_iter().chain(command.get_args().map(OsString::from));
    all.map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A word as a shell takes it.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+,:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_quoted_words_as_they_are() {
        let words = ["plain=1.5", "", "two words", "s+a+r+s'", "$HOME `x` \"y\" \\", "η=[0.5]"];
        let line: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        assert_eq!(line[0], "plain=1.5");
        if cfg!(unix) {
            let script = format!("printf '%s\\n' {}", line.join(" "));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}\n", words.join("\n")));
        }
    }
}
