//! `offing reproduce`: a table of the paper as a command, with the published numbers beside ours.

mod cells;
mod experiment;
mod published;
mod report;
mod table;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use offing::calibration::StudyConfig;
use offing::data::catalogue::{Found, Origin};
use offing::home::write_atomic;
use offing_mujoco::Physics;

use super::bench::{commit, positive};
use super::calibrate::settings;
use super::doctor::cpu_name;
use crate::context::Context;
use crate::{signals, term};
use cells::{Cell, Outcome, Work, cells, run_all};
use experiment::{Experiment, choose};
use published::Published;
use report::Report;
use table::{Table, cells_csv};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The experiment: table2, table3, table5, table9, or a TOML file like theirs; without one, all are listed.
    name: Option<String>,
    /// `quick`: 100,000 rows, at most 10 epochs, 20,000 policy steps. `paper`: the paper's own sizes.
    #[arg(long, default_value = "quick")]
    profile: String,
    /// How many seeds [default: the profile's].
    #[arg(long, value_parser = positive)]
    seeds: Option<usize>,
    /// These datasets instead of the profile's: any that can be made, D4RL ids (hopper-medium-v2), or paths.
    #[arg(long, value_name = "DATASET", value_delimiter = ',')]
    only: Vec<String>,
    /// Use about so many rows of each dataset: whole episodes, drawn at random.
    #[arg(long)]
    rows: Option<usize>,
    /// Override one value of the study, such as --set starts=50 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Which physics to replay in.
    #[arg(long, default_value_t)]
    physics: Physics,
    /// Where the cells' run directories are; shared by all tables and with `offing calibrate`.
    #[arg(long, value_name = "DIR", default_value = "runs/calibrate")]
    dir: PathBuf,
    /// Where the table is written, as NAME.csv, NAME.cells.csv, NAME.md and NAME.html [default:
    /// runs/reproduce/<NAME>-<PROFILE>].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let Some(name) = &args.name else { return list() };
    let experiment = Experiment::named(name)?;
    let profile = experiment.profile(&args.profile)?;
    let published = match &experiment.paper {
        Some(table) => Published::of(table)?,
        None => Published::default(),
    };
    let datasets = choose(&args.only, profile)?;
    let seeds = args.seeds.map_or(profile.seeds, |n| n as u64);
    let (study, rows) = settings(Some(&args.profile), &args.set)?;
    let rows = args.rows.or(rows);
    let work = Work { experiment: &experiment, study, rows, physics: args.physics, dir: args.dir.clone() };
    signals::listen();
    let Some(done) = run_all(context, &work, cells(&datasets, seeds)) else {
        context.say("stopped; the same command goes on from here");
        return Ok(ExitCode::from(130));
    };
    let table = Table::of(&experiment, &published, &datasets, &done);
    let report = Report {
        experiment: &experiment,
        table: &table,
        cells: &done,
        command: command(args, name, seeds),
        circumstances: circumstances(context, args, &datasets, &work),
        settings: toml::to_string(&work.study)?,
    };
    report.print();
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| format!("runs/reproduce/{}-{}", experiment.name, args.profile).into());
    write(&out, &experiment.name, &report, &done)?;
    let failed = done.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
    Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Names every experiment.
fn list() -> Result<ExitCode> {
    let row = |e: Experiment| -> Result<Vec<String>> {
        let size = |profile: &str| -> Result<String> {
            let profile = e.profile(profile)?;
            Ok(format!("{} datasets × {} seeds", profile.datasets.len(), profile.seeds))
        };
        Ok(vec![e.name.clone(), e.title.clone(), size("quick")?, size("paper")?])
    };
    let rows: Vec<Vec<String>> = Experiment::all()?.into_iter().map(row).collect::<Result<_>>()?;
    out!("{}", term::text_table(&["experiment", "", "--profile quick", "--profile paper"], rows));
    Ok(ExitCode::SUCCESS)
}

fn write(out: &Path, name: &str, report: &Report<'_>, done: &[(Cell, Outcome)]) -> Result<()> {
    std::fs::create_dir_all(out)
        .map_err(|e| anyhow::anyhow!("{}: cannot create: {e}; give another --out", out.display()))?;
    let text = |ending: &str, content: &str| -> Result<()> {
        let path = out.join(format!("{name}.{ending}"));
        Ok(write_atomic(&path, |f| f.write_all(content.as_bytes()))?)
    };
    text("csv", &report.table.csv())?;
    text("cells.csv", &cells_csv(done))?;
    text("md", &report.markdown())?;
    let page = out.join(format!("{name}.html"));
    report.html().write(&page)?;
    out!("{}", page.display());
    Ok(())
}

/// The command that gives these numbers again: what decides them, and nothing about this machine.
fn command(args: &Args, name: &str, seeds: u64) -> String {
    let mut words = vec![format!("offing reproduce {name} --profile {} --seeds {seeds}", args.profile)];
    if !args.only.is_empty() {
        words.push(format!("--only {}", args.only.join(",")));
    }
    words.extend(args.rows.map(|rows| format!("--rows {rows}")));
    words.extend(args.set.iter().map(|set| format!("--set '{set}'")));
    if args.physics != Physics::default() {
        words.push(format!("--physics {}", args.physics));
    }
    words.join(" ")
}

/// What a reader must know to judge the numbers, one sentence each.
fn circumstances(context: &Context, args: &Args, datasets: &[String], work: &Work<'_>) -> Vec<String> {
    let StudyConfig { model, train, .. } = &work.study;
    let rows = work.rows.map_or("all rows".into(), |n| format!("about {} rows", term::count(n)));
    let epochs =
        model.ensemble.max_epochs.map_or("as many epochs as help".into(), |n| format!("at most {n} epochs"));
    let seed = match model.seed {
        Some(seed) => format!("all seeds share the model of seed {seed}"),
        None => "every seed trains its own model".into(),
    };
    let size = format!(
        "Profile {}: {rows} of each dataset, a model trained for {epochs} ({seed}), a policy trained in it for {} steps.",
        args.profile,
        term::count(train.steps as usize)
    );
    let quick = "It shows how estimators compare, not the paper's own conditions.";
    let size = if args.profile == "quick" { format!("{size} {quick}") } else { size };
    let origin = |name: &String| match context.catalogue.find(name) {
        Ok(Found::File { origin, .. }) => origin,
        // Not there, or there several times: a name that offing makes.
        Ok(Found::ToMake(_)) | Err(_) => Origin::Made,
    };
    let origins: Vec<String> = datasets.iter().map(|d| format!("{d} ({})", origin(d))).collect();
    vec![
        size,
        format!(
            "Datasets: {}. Made sets come from offing's own simulator and built-in policies, the paper's from D4RL.",
            origins.join(", ")
        ),
        "Numbers are the mean over seeds ± the standard deviation, on all imagined steps, next states as sampled and not \
         clipped; intervals of single seeds are in the .cells.csv."
            .into(),
        format!(
            "offing {} ({}), physics {}, {} with {} threads; results do not depend on the number of threads.",
            env!("CARGO_PKG_VERSION"),
            commit(),
            args.physics,
            cpu_name(),
            rayon::current_num_threads()
        ),
    ]
}
