//! `offing doctor`: what offing finds on this machine.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use offing::env::Simulators;
use offing::home::Home;
use offing::nn::Simd;
use offing::run::cpu_name;
use offing_experiments::format::counted;
use offing_experiments::{Runtime, Table};
use offing_knn::Loops;
use offing_mujoco::{Engine, TASKS, python};

use crate::exit::ExitCode;
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fetch MuJoCo and all bodies now, where they are missing: for machines that will have no network.
    #[arg(long)]
    fetch: bool,
    /// Delete what offing makes again when it is needed; without KIND: models and index. What a process is making stays.
    #[arg(long, value_enum, value_name = "KIND", value_delimiter = ',', num_args = 0.., default_missing_values = ["models", "index"])]
    clean: Vec<Kind>,
    /// With --clean: only what was not written to for so many days.
    #[arg(long, value_name = "DAYS", requires = "clean", default_value_t = 0)]
    older_than: u64,
}

/// What can be made again: the same seed gives the same bytes. Simulators and fetched files need a network, and stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Fitted dynamics models.
    Models,
    /// Search indexes.
    Index,
    /// Generated datasets.
    Datasets,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Models => "models",
            Self::Index => "index",
            Self::Datasets => "datasets",
        }
    }
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    if !args.clean.is_empty() {
        for kind in &args.clean {
            let age = Duration::from_secs(args.older_than.saturating_mul(24 * 3600));
            let cleaned = clean(runtime.home(), kind.name(), age)?;
            out!("{}/: {cleaned}", kind.name());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut facts: Vec<(&str, String)> = vec![
        ("offing", format!("{} ({})", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)),
        ("processor", format!("{}, {} threads", cpu_name(), rayon::current_num_threads())),
        ("vector units", vector_units()),
        ("home", runtime.home().root().display().to_string()),
    ];
    let mut can_be_cleaned = 0;
    for kind in ["mujoco", "datasets", "models", "index"] {
        let dir = runtime.home().root().join(kind);
        let (files, bytes) = usage(&dir);
        can_be_cleaned += if ["models", "index"].contains(&kind) { bytes } else { 0 };
        facts.push(("", format!("{kind}/: {}, {}", counted(files, "file"), bytes_of(bytes))));
    }
    facts.push(("D4RL files", present(&runtime.catalogue.d4rl)));
    facts.push(("Minari datasets", present(&runtime.catalogue.minari)));
    facts.push(("python", first_line(&["--version"])));
    facts.push(("pip", first_line(&["-m", "pip", "--version"])));
    let engine = if args.fetch {
        TASKS
            .iter()
            .try_for_each(|task| runtime.mujoco.prepare(task, &mut |line| runtime.say(line)))
            .and_then(|()| Ok(Some(runtime.mujoco.engine(&mut |_| ())?.clone())))
    } else {
        Engine::find(runtime.home(), runtime.mujoco.library())
    };
    let healthy = matches!(engine, Ok(Some(_)));
    let found = match engine {
        Ok(Some(engine)) => format!("{} from {}", engine.version(), engine.library().display()),
        Ok(None) => {
            "not here yet; offing fetches it on first use, or now with `offing doctor --fetch`".into()
        }
        Err(error) => format!("{error:#}"),
    };
    facts.push(("MuJoCo", found));
    let rows = facts.into_iter().map(|(k, v)| vec![k.to_string(), v]);
    term::print_text_table(&Table::new(["", "found"], rows));
    out!("{}", if healthy { "all well" } else { "something is missing; see MuJoCo above" });
    let mut next = Vec::new();
    if !healthy {
        next.push(("offing doctor --fetch".to_string(), "fetch the simulator and all bodies"));
    }
    if can_be_cleaned > 0 {
        next.push((
            "offing doctor --clean".into(),
            "delete models and indexes; offing makes them again when needed",
        ));
    }
    if !next.is_empty() {
        term::print_next(&next);
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::NEGATIVE })
}

/// What was deleted.
#[derive(Default)]
struct Cleaned {
    items: usize,
    bytes: u64,
    /// Items that a process holds.
    held: usize,
}

impl std::fmt::Display for Cleaned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "deleted {}, {}", counted(self.items, "item"), bytes_of(self.bytes))?;
        match self.held {
            0 => Ok(()),
            held => write!(f, "; {held} in use, left alone"),
        }
    }
}

/// Deletes the items of one kind that nobody holds and that are older than `age`. Lock files stay: another process may be about
/// to take one. Subdirectories of datasets hold fetched files and stay too.
fn clean(home: &Home, kind: &str, age: Duration) -> Result<Cleaned> {
    let dir = home.root().join(kind);
    let mut cleaned = Cleaned::default();
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stem = name.split('.').next().unwrap_or_default().to_string();
        let is_dir = path.is_dir() && !path.is_symlink();
        if name.starts_with('.') || (is_dir && kind == "datasets") || !is_older(&path, age) {
            continue;
        }
        // Makers lock an item by its name, with or without its endings.
        let (Some(_by_name), Some(_by_stem)) =
            (home.try_lock(kind, &name)?, try_other(home, kind, &stem, &name)?)
        else {
            cleaned.held += 1;
            continue;
        };
        let (_, bytes) = if is_dir { usage(&path) } else { (1, path.metadata().map_or(0, |m| m.len())) };
        let removed = if is_dir { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.with_context(|| format!("cannot delete {}", path.display()))?;
        cleaned = Cleaned { items: cleaned.items + 1, bytes: cleaned.bytes + bytes, ..cleaned };
    }
    Ok(cleaned)
}

/// The lock by `name`, unless `taken` is the same one: no process locks a file twice.
fn try_other(home: &Home, kind: &str, name: &str, taken: &str) -> Result<Option<Option<offing::home::Lock>>> {
    if name == taken {
        return Ok(Some(None));
    }
    Ok(home.try_lock(kind, name)?.map(Some))
}

/// Whether nothing in a file or directory was written to for so long.
fn is_older(path: &Path, age: Duration) -> bool {
    let newest = |path: &Path| path.metadata().and_then(|m| m.modified()).unwrap_or(SystemTime::now());
    let inside = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| newest(&entry.path()));
    let last = inside.fold(newest(path), SystemTime::max);
    last.elapsed().is_ok_and(|since| since >= age)
}

fn bytes_of(bytes: u64) -> String {
    match bytes {
        0..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn vector_units() -> String {
    let search = Loops::Auto.name();
    format!("networks use {}, the search {search}; all give the same results", Simd::detect().name())
}

fn usage(dir: &Path) -> (usize, u64) {
    let paths = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    paths.fold((0, 0), |(files, bytes), path| {
        let size = || (1, path.metadata().map_or(0, |m| m.len()));
        let (f, b) = if path.is_dir() && !path.is_symlink() { usage(&path) } else { size() };
        (files + f, bytes + b)
    })
}

fn present(dir: &Path) -> String {
    if dir.is_dir() { dir.display().to_string() } else { format!("none ({} does not exist)", dir.display()) }
}

fn first_line(args: &[&str]) -> String {
    let output = python("python3").args(args).output();
    let text =
        output.ok().filter(|o| o.status.success()).map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    text.and_then(|t| t.lines().next().map(str::to_string)).unwrap_or_else(|| "not found".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleaning_deletes_what_nobody_holds_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::new(root.path());
        let models = home.dir("models").unwrap();
        for name in ["old", "held"] {
            std::fs::create_dir(models.join(name)).unwrap();
            std::fs::write(models.join(name).join("weights"), [0; 1000]).unwrap();
        }
        let sets = home.dir("datasets").unwrap();
        std::fs::create_dir(sets.join("neorl2")).unwrap();
        for file in ["hopper-s0.hdf5", "busy-s0.hdf5", "neorl2/fetched.npz"] {
            std::fs::write(sets.join(file), "x").unwrap();
        }
        let _lock = home.lock("models", "held").unwrap();
        let _busy = home.lock("datasets", "busy-s0").unwrap();
        assert_eq!(clean(&home, "models", Duration::from_secs(60)).unwrap().items, 0, "all is new");
        let cleaned = clean(&home, "models", Duration::ZERO).unwrap();
        assert_eq!(cleaned.to_string(), "deleted 1 item, 0.0 MB; 1 in use, left alone");
        assert!(!models.join("old").exists() && models.join("held/weights").exists());
        assert_eq!(clean(&home, "datasets", Duration::ZERO).unwrap().items, 1);
        assert!(sets.join("neorl2/fetched.npz").exists() && sets.join("busy-s0.hdf5").exists());
        assert_eq!(clean(&home, "index", Duration::ZERO).unwrap().to_string(), "deleted 0 items, 0.0 MB");
    }
}
