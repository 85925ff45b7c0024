//! `offing calibrate`: which estimator knows where the model is wrong, on any dataset.

use std::path::PathBuf;

use anyhow::Result;
use offing::env::Physics;
use offing_experiments::Runtime;
use offing_experiments::calibrate::{
    StudyRequest, StudySummary, parse_estimators, run_study, study_settings,
};
use offing_experiments::files::write_text;

use crate::args::{JsonFile, positive};
use crate::exit::ExitCode;
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A path, a D4RL or Minari id, or the name of a generated dataset.
    dataset: String,
    /// Estimators to compare, by id or as JSON settings such as {"kind":"sumo","k":5}, with blanks or commas between them
    /// [default: all].
    #[arg(long, num_args = 1.., value_name = "ID")]
    estimators: Vec<String>,
    /// How many seeds to study.
    #[arg(long, default_value_t = 5, value_parser = positive)]
    seeds: usize,
    /// `quick`: 100,000 rows, a small ensemble, 20,000 policy steps.
    #[arg(long)]
    profile: Option<String>,
    /// Use about this many rows: whole episodes, drawn at random.
    #[arg(long, value_parser = positive)]
    rows: Option<usize>,
    /// Override one value, such as --set starts=50 (may be repeated).
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Which physics to replay in.
    #[arg(long, default_value_t)]
    physics: Physics,
    /// Where to keep models in training and results; the same command resumes where it stopped.
    #[arg(long, value_name = "DIR", default_value = "runs/calibrate")]
    dir: PathBuf,
    #[command(flatten)]
    json: JsonFile,
    /// Also write the results as CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Also write a page with tables and figures.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

pub(crate) fn run(runtime: &Runtime, args: Args) -> Result<ExitCode> {
    let (config, rows) = study_settings(args.profile.as_deref(), &args.set)?;
    let mut request = StudyRequest {
        dataset: args.dataset.clone(),
        rows: args.rows.or(rows),
        generated_rows: None,
        seed: 0,
        physics: args.physics,
        config,
        estimators: parse_estimators(&args.estimators)?,
        dir: args.dir,
    };
    let mut summary = StudySummary { dataset: args.dataset, studies: Vec::new() };
    for seed in 0..args.seeds as u64 {
        request.seed = seed;
        let Some(found) = run_study(runtime, &request)? else {
            runtime.say("stopped; the same command resumes from here");
            return Ok(ExitCode::STOPPED);
        };
        summary.studies.push((seed, found.study));
    }
    out!("{}", summary.dataset);
    summary.row_counts().iter().for_each(|line| out!("{line}"));
    summary.tables().iter().for_each(|(_, table)| term::print_table(table));
    let json = summary.json()?;
    args.json.write(|| json)?;
    if let Some(path) = &args.csv {
        write_text(path, &summary.csv())?;
    }
    if let Some(path) = &args.report {
        summary.document().write_html(path)?;
        out!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
