//! Whether a file fits into memory, asked before it is read: a process that runs out of memory is killed without a word.

use std::fs;
use std::path::Path;

use super::options::ReadOptions;
use crate::error::{Result, bad_file};

/// Refuses a file whose header promises more than there is memory for. `needed` are the bytes that reading takes: the
/// numbers as they are kept and a copy on the way.
pub(super) fn check_fits(path: &Path, needed: u64, options: &ReadOptions) -> Result<()> {
    match options.memory_limit.or_else(available) {
        Some(free) if needed > free => Err(bad_file!(
            path,
            "wanted a file that fits into memory ({} free), found one that takes {} to read; split it, keep fewer \
             columns or take a larger machine",
            gigabytes(free),
            gigabytes(needed)
        )),
        _ => Ok(()),
    }
}

/// So many zeros, or `None` where there is no memory for them.
pub(super) fn zeroed<T: Clone + Default>(count: usize) -> Option<Vec<T>> {
    // The system gives memory that is zero, untouched until it is filled. `vec!` would abort where it gives none.
    Vec::<T>::new().try_reserve_exact(count).ok()?;
    Some(vec![T::default(); count])
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

/// Bytes that this process may still take; `None` where the system does not say (outside Linux).
fn available() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_free(&text));
    let own = fs::read_to_string("/proc/self/cgroup").ok();
    let group =
        own.as_deref().and_then(group_of).and_then(|group| group_free(Path::new("/sys/fs/cgroup"), group));
    machine.into_iter().chain(group).min()
}

/// What /proc/meminfo says is available.
fn machine_free(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The control group (version 2) of a process, from /proc/self/cgroup.
fn group_of(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// What a control group and those above it leave: containers and Slurm limit memory there. Pages that only cache files
/// can be given back, so they count as free.
fn group_free(root: &Path, group: &str) -> Option<u64> {
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let free = |dir: &Path| {
        // "max" is no number: no limit here.
        let (limit, used) = (number(&dir.join("memory.max"))?, number(&dir.join("memory.current"))?);
        let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok());
        Some(limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
    };
    let dir = root.join(group);
    dir.ancestors().take_while(|dir| dir.starts_with(root)).filter_map(free).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_in_one_line() {
        let limited = |bytes| ReadOptions { memory_limit: Some(bytes), ..ReadOptions::default() };
        let path = Path::new("big.npz");
        assert!(check_fits(path, 4_000_000_000, &limited(4_000_000_000)).is_ok());
        let error = check_fits(path, 40_000_000_000, &limited(4_000_000_000)).unwrap_err().to_string();
        assert!(error.starts_with(
            "big.npz: wanted a file that fits into memory (4.0 GB free), found one that takes 40.0 GB"
        ));
        assert!(!error.contains('\n'), "{error}");
        // No machine has this much.
        assert_eq!(check_fits(path, u64::MAX, &ReadOptions::default()).is_err(), available().is_some());
    }

    #[test]
    fn the_tightest_limit_counts() {
        assert_eq!(machine_free("MemTotal: 9 kB\nMemAvailable:   12 kB\nBuffers: 1 kB\n"), Some(12 * 1024));
        assert_eq!(machine_free("MemTotal: 9 kB\n"), None);
        assert_eq!(group_of("1:cpu:/x\n0::/slurm/job_7\n"), Some("slurm/job_7"));
        let dir = tempfile::tempdir().unwrap();
        let put = |group: &str, file: &str, text: &str| {
            fs::create_dir_all(dir.path().join(group)).unwrap();
            fs::write(dir.path().join(group).join(file), text).unwrap();
        };
        assert_eq!(group_free(dir.path(), "slurm/job_7"), None);
        put("slurm/job_7", "memory.max", "max\n");
        put("slurm/job_7", "memory.current", "100\n");
        put("slurm", "memory.max", "1000\n");
        put("slurm", "memory.current", "700\n");
        put("slurm", "memory.stat", "anon 1\ninactive_file 200\n");
        assert_eq!(
            group_free(dir.path(), "slurm/job_7"),
            Some(500),
            "1000 less the 500 that cannot be given back"
        );
    }
}
