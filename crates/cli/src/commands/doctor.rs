//! `offing doctor`: what offing finds on this machine.

use std::path::Path;

use anyhow::Result;
use offing::env::Simulators;
use offing::run::cpu_name;
use offing_experiments::{Runtime, Table};
use offing_mujoco::{Engine, TASKS, python};

use crate::exit::ExitCode;
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Fetch MuJoCo and all bodies now, where they are missing: for machines that will have no network.
    #[arg(long)]
    fetch: bool,
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    let mut facts: Vec<(&str, String)> = vec![
        ("offing", format!("{} ({})", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH)),
        ("processor", format!("{}, {} threads", cpu_name(), rayon::current_num_threads())),
        ("vector units", vector_units()),
        ("home", runtime.home().root().display().to_string()),
    ];
    for kind in ["mujoco", "datasets", "models", "index"] {
        let dir = runtime.home().root().join(kind);
        let (files, bytes) = usage(&dir);
        facts.push(("", format!("{kind}/: {files} files, {:.1} MB", bytes as f64 / 1e6)));
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
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::NEGATIVE })
}

fn vector_units() -> String {
    #[cfg(target_arch = "x86_64")]
    {
        let found = [
            ("avx2", is_x86_feature_detected!("avx2")),
            ("fma", is_x86_feature_detected!("fma")),
            ("avx512f", is_x86_feature_detected!("avx512f")),
        ];
        let names: Vec<&str> = found.iter().filter(|(_, here)| *here).map(|(name, _)| *name).collect();
        if names.is_empty() { "none: the portable path is used".into() } else { names.join(", ") }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        "not x86: the portable path is used".into()
    }
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
