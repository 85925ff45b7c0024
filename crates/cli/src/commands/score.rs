//! `offing score`: SUMO's u for any file of transitions, the dataset rows behind it, and the run-time alarm.
//!
//! With `--alpha` or `--threshold` it is an out-of-distribution alarm: rows beyond it are marked and the exit code is 3
//! when there is one. An index saved once with `--index` stands in for the dataset from then on.

use std::io::{BufRead, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use ndarray::Array1;
use offing::uncertainty::{
    ColumnScale, Distance, Neighbors, SearchVector, Sumo, SumoConfig, Threshold, Uncertainty, locate,
};
use offing::{Batch, Mat, stats};
use offing_experiments::format::{count, or_dash};
use offing_experiments::{Runtime, Table};
use serde_json::json;

use super::data::Reading;
use crate::args::{JsonFile, named};
use crate::exit::ExitCode;
use crate::term;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The dataset to compare with (path, id or name), or an index saved with --index.
    data: String,
    /// The transitions to score: a dataset of any format, or `-` for one search vector a line on standard input.
    transitions: String,
    /// Which neighbour's distance counts [default: 1].
    #[arg(long)]
    k: Option<usize>,
    /// What is compared: s+a+s', s+a, s+s' or s+a+r+s' [default: s+a+s'].
    #[arg(long, value_parser = named::<SearchVector>)]
    vector: Option<SearchVector>,
    /// euclidean, manhattan or cosine [default: euclidean].
    #[arg(long, value_parser = named::<Distance>)]
    metric: Option<Distance>,
    /// Scale every column to mean 0 and deviation 1 over the dataset.
    #[arg(long)]
    standardise: bool,
    /// Alarm beyond α times the largest score the dataset's own rows get (Eq. 7).
    #[arg(long, value_name = "ALPHA", allow_negative_numbers = true, conflicts_with = "threshold")]
    alpha: Option<f32>,
    /// Alarm beyond this u.
    #[arg(long, value_name = "U", allow_negative_numbers = true)]
    threshold: Option<f32>,
    /// Dataset rows to name behind each score.
    #[arg(long, default_value_t = 1)]
    support: usize,
    /// Highest scores to print.
    #[arg(long, default_value_t = 10)]
    top: usize,
    /// Save the index here (and its card as FILE.json), for later use in place of the dataset.
    #[arg(long, value_name = "FILE")]
    index: Option<PathBuf>,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    json: JsonFile,
}

pub(crate) fn run(runtime: &Runtime, args: &Args) -> Result<ExitCode> {
    let (sumo, episodes) = open(runtime, args)?;
    let (obs, act) = sumo.widths();
    let (rows, megabytes) = (count(sumo.rows()), sumo.bytes() as f64 / 1e6);
    runtime.say(&format!("{rows} rows of {obs} observations and {act} actions, {megabytes:.0} MB"));
    let constant = sumo.constant_columns();
    if !constant.is_empty() {
        runtime.say(&format!("constant in the dataset, so left on their own scale: {}", constant.join(", ")));
    }
    if let Some(file) = &args.index {
        sumo.save(file, &episodes)?;
        runtime.say(&format!("saved {} and {}.json", file.display(), file.display()));
    }
    let alarm = threshold(&sumo, args)?;
    if args.transitions == "-" {
        if args.json.json.is_some() {
            bail!("--json needs a file of transitions; on standard input the scores go to standard output");
        }
        return stream(runtime, &sumo, alarm);
    }
    let (rows, _) = runtime.read_data(&args.transitions, args.reading.options()?)?;
    let started = Instant::now();
    let (scores, near) = sumo.score_with_support(&rows.rows, args.support)?;
    let seconds = started.elapsed().as_secs_f64();
    let scored =
        Scored { sumo: &sumo, alarm, scores, near, episodes, own: rows.episodes, support: args.support };
    scored.print(&args.transitions, args.top, seconds);
    args.json.write(|| scored.json(args, seconds))?;
    Ok(if scored.alarms() > 0 { ExitCode::ALARM } else { ExitCode::SUCCESS })
}

/// The index: loaded when `data` is one, made from the dataset otherwise.
fn open(runtime: &Runtime, args: &Args) -> Result<(Sumo, Vec<Range<usize>>)> {
    let threads = rayon::current_num_threads();
    let path = Path::new(&args.data);
    if Sumo::is_saved(path) {
        if args.k.is_some() || args.vector.is_some() || args.metric.is_some() || args.standardise {
            bail!(
                "{}: a saved index has its own settings; leave out --k, --vector, --metric and --standardise, or give \
                 the dataset",
                args.data
            );
        }
        return Ok(Sumo::load(path, threads)?);
    }
    let config = SumoConfig {
        k: args.k.unwrap_or(1),
        vector: args.vector.unwrap_or_default(),
        metric: args.metric.unwrap_or_default(),
        columns: if args.standardise { ColumnScale::Standardised } else { ColumnScale::Raw },
        ..SumoConfig::default()
    };
    let (data, _) = runtime.read_data(&args.data, args.reading.options()?)?;
    let sumo = Sumo::new(&config, &data.rows, threads).with_context(|| args.data.clone())?;
    Ok((sumo, data.episodes))
}

fn threshold(sumo: &Sumo, args: &Args) -> Result<Option<Threshold>> {
    if let Some(bad) = [args.alpha, args.threshold].into_iter().flatten().find(|x| !x.is_finite() || *x < 0.0)
    {
        bail!("--alpha and --threshold: wanted a number of at least 0, found {bad}");
    }
    let at_score = |score: f32| {
        let distance = sumo.distance_of(score).unwrap_or(f32::NAN);
        Threshold { alpha: score / sumo.max_loo_score(), score, distance }
    };
    Ok(args.alpha.map(|alpha| sumo.threshold(alpha)).or_else(|| args.threshold.map(at_score)))
}

/// Scores with everything to show about them.
struct Scored<'a> {
    sumo: &'a Sumo,
    alarm: Option<Threshold>,
    scores: Array1<f32>,
    near: Neighbors,
    /// Of the dataset.
    episodes: Vec<Range<usize>>,
    /// Of the transitions.
    own: Vec<Range<usize>>,
    support: usize,
}

impl Scored<'_> {
    fn is_alarm(&self, row: usize) -> bool {
        self.alarm.is_some_and(|t| self.scores[row] > t.score)
    }

    fn alarms(&self) -> usize {
        (0..self.scores.len()).filter(|&row| self.is_alarm(row)).count()
    }

    fn print(&self, name: &str, top: usize, seconds: f64) {
        let u: Vec<f64> = self.scores.iter().map(|&u| f64::from(u)).collect();
        out!("{name}: {} transitions, {:.4} ms each", count(u.len()), 1e3 * seconds / u.len().max(1) as f64);
        let number = |x: f64| format!("{x:.4}");
        let distance = |u: f64| or_dash(self.sumo.distance_of(u as f32), |d| number(d.into()));
        let scored = |name: &str, u: f64| vec![name.to_string(), number(u), distance(u)];
        let known =
            |name: String, t: &Threshold| vec![name, number(t.score.into()), number(t.distance.into())];
        let mut facts = vec![
            scored("median u", stats::quantile(&u, 0.5)),
            scored("largest u", stats::quantile(&u, 1.0)),
            known("largest u of the dataset".into(), &self.sumo.threshold(1.0)),
        ];
        facts.extend(self.alarm.iter().map(|t| known(format!("threshold (α = {:.3})", t.alpha), t)));
        term::print_table(&Table::new(["", "u", "as a distance"], facts));
        let mut order: Vec<usize> = (0..u.len()).collect();
        order.sort_by(|&a, &b| u[b].total_cmp(&u[a]));
        let place = |(episode, step): (usize, usize)| format!("{episode} / {step}");
        let rows = order.iter().take(top).map(|&row| {
            let support: Vec<String> = self
                .support(row)
                .map(|(id, at, d)| format!("{} at {d:.3}", at.map_or(format!("row {id}"), place)))
                .collect();
            let mark = if self.is_alarm(row) { "alarm" } else { "" };
            let at = or_dash(locate(&self.own, row), place);
            vec![row.to_string(), at, number(u[row]), mark.into(), support.join(", ")]
        });
        let header = ["row", "episode / step", "u", "", "supported by episode / step at distance"];
        term::print_table(&Table::new(header, rows));
        if let Some(t) = &self.alarm {
            let alarms = self.alarms();
            let share = 100.0 * alarms as f64 / u.len().max(1) as f64;
            out!("{} of {} rows beyond u = {:.4} ({share:.1} %)", count(alarms), count(u.len()), t.score);
        }
    }

    /// Dataset row, its place and its distance, nearest first.
    fn support(&self, row: usize) -> impl Iterator<Item = (u32, Option<(usize, usize)>, f32)> {
        let ids = self.near.ids.row(row).into_iter().zip(self.near.distances.row(row)).take(self.support);
        ids.map(|(&id, &d)| (id, locate(&self.episodes, id as usize), d))
    }

    fn json(&self, args: &Args, seconds: f64) -> serde_json::Value {
        let place = |at: Option<(usize, usize)>| {
            at.map(|(episode, step)| json!({ "episode": episode, "step": step }))
        };
        let rows = (0..self.scores.len()).map(|row| {
            let support = self.support(row);
            let support = support.map(|(id, at, d)| json!({ "row": id, "at": place(at), "distance": d }));
            json!({
                "row": row, "at": place(locate(&self.own, row)), "u": self.scores[row],
                "alarm": self.alarm.map(|_| self.is_alarm(row)), "support": support.collect::<Vec<_>>(),
            })
        });
        json!({
            "data": args.data, "transitions": args.transitions, "config": self.sumo.config(),
            "dataset_rows": self.sumo.rows(), "largest_u_of_dataset": self.sumo.threshold(1.0),
            "threshold": self.alarm, "alarms": self.alarm.map(|_| self.alarms()), "seconds": seconds,
            "rows": rows.collect::<Vec<_>>(),
        })
    }
}

/// One search vector a line in, `u` (and `alarm` or `ok`) a line out, as they come. offing skips a line of
/// names at the start, and reports and skips one it cannot read: a monitor that stops there would watch no longer.
fn stream(runtime: &Runtime, sumo: &Sumo, alarm: Option<Threshold>) -> Result<ExitCode> {
    let (mut times, mut alarms, mut bad, mut first) = (Vec::new(), 0usize, 0usize, true);
    let mut out = std::io::stdout().lock();
    for (number, line) in std::io::stdin().lock().split(b'\n').enumerate() {
        let line = line.context("standard input")?;
        let line = String::from_utf8_lossy(&line);
        if line.trim().is_empty() || (std::mem::take(&mut first) && is_header(&line)) {
            continue;
        }
        let scored = parse(&line, sumo).and_then(|row| {
            let started = Instant::now();
            let u = match sumo.score_rows(&row) {
                Ok(scores) => scores[0],
                // Numbers whose distance no f32 can hold are as far away as a row can be.
                Err(_) if is_finite(&row) => f32::INFINITY,
                Err(error) => return Err(error.into()),
            };
            Ok((u, started.elapsed().as_secs_f64()))
        });
        let (u, seconds) = match scored {
            Ok(scored) => scored,
            Err(error) => {
                term::complain(&format!("standard input, line {}: {error:#}; passed over", number + 1));
                bad += 1;
                continue;
            }
        };
        times.push(seconds);
        let beyond = alarm.map(|t| u > t.score);
        alarms += usize::from(beyond == Some(true));
        let word = beyond.map_or("", |beyond| if beyond { " alarm" } else { " ok" });
        writeln!(out, "{u}{word}").and_then(|()| out.flush()).context("standard output")?;
    }
    if !times.is_empty() {
        let [median, slow, worst] =
            [0.5, 0.99, 1.0].map(|q| format!("{:.3} ms", 1e3 * stats::quantile(&times, q)));
        let took = format!("a row took {median} (median), {slow} (worst 1 %), {worst} (worst)");
        runtime.say(&format!("{} rows, {alarms} alarms, {bad} bad lines; {took}", count(times.len())));
    }
    Ok(match (alarms, bad) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::ERROR,
        _ => ExitCode::ALARM,
    })
}

fn is_finite(row: &Batch) -> bool {
    let parts = [&row.obs, &row.act, &row.next_obs].into_iter().flatten();
    parts.chain(&row.rew).all(|x| x.is_finite())
}

/// The words of a line, between commas or blanks.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty())
}

/// Whether a line names columns: none of its words is a number.
fn is_header(line: &str) -> bool {
    words(line).all(|word| word.parse::<f32>().is_err())
}

/// A line of numbers (separated by commas or blanks) as one transition, in the order of the search vector.
fn parse(line: &str, sumo: &Sumo) -> Result<Batch> {
    let ((s, a), vector) = (sumo.widths(), sumo.config().vector);
    let numbers =
        words(line).map(|w| w.parse::<f32>().with_context(|| format!("wanted a number, found `{w}`")));
    let x = numbers.collect::<Result<Vec<f32>>>()?;
    let wanted = vector.width(s, a);
    if x.len() != wanted {
        let name = serde_json::to_value(vector)?;
        bail!("wanted {wanted} numbers ({} of {s} observations and {a} actions), found {}", name, x.len());
    }
    let mut rest = x.into_iter();
    // What the vector lacks is not compared: zeros stand in for it.
    let mut take = |n: usize, there: bool| -> Mat {
        Mat::from_shape_fn((1, n), |_| if there { rest.next().unwrap_or(0.0) } else { 0.0 })
    };
    Ok(Batch {
        obs: take(s, true),
        act: take(a, vector != SearchVector::ObsNext),
        rew: take(1, vector == SearchVector::ObsActRewNext).column(0).to_owned(),
        next_obs: take(s, vector != SearchVector::ObsAct),
        done: vec![false].into(),
    })
}
