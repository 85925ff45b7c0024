//! Who runs the cells of a grid: processes on this machine, or an array job of Slurm.

mod local;
mod slurm;

use std::ffi::OsString;
use std::process::Command;

use anyhow::Result;

use super::{Cell, Grid};
use crate::Runtime;
pub use local::Local;
pub use slurm::{Slurm, SlurmJob};

/// How many processes run at once, and the threads of each: as asked, but no more at once than cores, which would only take
/// turns. Unasked, each of the `cells` that are left has a core of its own while there are enough of them: threads of
/// one training wait for each other, trainings do not (`offing bench scaling`).
pub fn shares(cores: usize, cells: usize, jobs: Option<usize>, threads: Option<usize>) -> (usize, usize) {
    let threads = threads.filter(|&n| n > 0); // 0: as many as there are
    let jobs = jobs.unwrap_or(cells).clamp(1, (cores / threads.unwrap_or(1)).max(1));
    (jobs, threads.unwrap_or(cores / jobs).max(1))
}

/// The command that gives a grid again; a cell's own arguments go behind its own.
fn grid_command(runtime: &Runtime, grid: &Grid, threads: Option<usize>) -> Result<Command> {
    let mut command = runtime.command()?;
    if let Some(threads) = threads {
        command.args(["--threads", &threads.to_string()]);
    }
    command.args(grid.request.arguments());
    Ok(command)
}

/// The words of the command that runs one cell.
///
/// # Errors
/// This program's own file cannot be found.
pub fn cell_command(runtime: &Runtime, grid: &Grid, cell: &Cell) -> Result<Vec<String>> {
    let mut command = grid_command(runtime, grid, None)?;
    command.args(["--cell", &cell.id]);
    Ok(words(&command))
}

/// The words of a command, for scripts and lists.
fn words(command: &Command) -> Vec<String> {
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
    fn cells_never_ask_for_more_threads_than_there_are_cores() {
        assert_eq!(shares(8, 20, Some(3), None), (3, 2));
        assert_eq!(shares(2, 20, Some(8), None), (2, 1));
        assert_eq!(shares(8, 20, Some(4), Some(4)), (2, 4));
        assert_eq!(shares(2, 20, Some(4), Some(4)), (1, 4), "threads are as asked");
        assert_eq!(shares(8, 20, Some(2), Some(0)), (2, 4));
    }

    #[test]
    fn many_cells_have_a_core_each_and_few_share_them() {
        assert_eq!(shares(8, 20, None, None), (8, 1));
        assert_eq!(shares(8, 3, None, None), (3, 2));
        assert_eq!(shares(8, 1, None, None), (1, 8));
        assert_eq!(shares(8, 20, None, Some(4)), (2, 4));
        assert_eq!(shares(8, 0, None, None), (1, 8));
    }

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
