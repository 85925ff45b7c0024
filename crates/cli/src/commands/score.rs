//! `offing score`: SUMO's u for any file of transitions, the dataset rows behind it, and the run-time alarm.
//!
//! With `--alpha` or `--threshold` it is an out-of-distribution alarm: rows beyond it are marked and the exit code is 3
//! when there is one. An index saved once with `--index` stands in for the dataset from then on.

use crate::exit::ExitCode;
use std::io::{BufRead, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use ndarray::{Array1, Array2};
use offing::uncertainty::{
    ColumnScale, Distance, Neighbors, SearchVector, Sumo, SumoConfig, Threshold, Uncertainty, locate,
};
use offing::{Batch, stats};
use serde_json::json;

use super::data::{load, write_json};
use crate::context::Context;
use crate::term;

/// Exit code when a row lies beyond the threshold.
const ALARM: u8 = 3;

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
    /// Also write every score with its support as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A value by its name in configuration files.
fn named<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(serde_json::Value::String(text.into())).map_err(|e| e.to_string())
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let (sumo, episodes) = open(context, args)?;
    let (obs, act) = sumo.widths();
    context.say(&format!(
        "{} rows of {obs} observations and {act} actions, {:.0} MB",
        term::count(sumo.rows()),
        sumo.bytes() as f64 / 1e6
    ));
    let constant = sumo.constant_columns();
    if !constant.is_empty() {
        context.say(&format!("constant in the dataset, so left on their own scale: {}", constant.join(", ")));
    }
    if let Some(file) = &args.index {
        sumo.save(file, &episodes)?;
        context.say(&format!("saved {} and {}.json", file.display(), file.display()));
    }
    let alarm = threshold(&sumo, args)?;
    if args.transitions == "-" {
        if args.json.is_some() {
            bail!("--json needs a file of transitions; on standard input the scores go to standard output");
        }
        return stream(context, &sumo, alarm);
    }
    let (rows, _) = load(context, &args.transitions, offing::data::ReadOptions::default())?;
    let started = Instant::now();
    let (scores, near) = sumo.score_with_support(&rows.rows, args.support)?;
    let seconds = started.elapsed().as_secs_f64();
    let scored =
        Scored { sumo: &sumo, alarm, scores, near, episodes, own: rows.episodes, support: args.support };
    scored.print(&args.transitions, args.top, seconds);
    if let Some(path) = &args.json {
        write_json(path, &scored.json(args, seconds))?;
    }
    let alarms = scored.alarms();
    Ok(if alarms > 0 { ExitCode::from(ALARM) } else { ExitCode::SUCCESS })
}

/// The index: loaded when `data` is one, made from the dataset otherwise.
fn open(context: &Context, args: &Args) -> Result<(Sumo, Vec<Range<usize>>)> {
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
    let (data, _) = load(context, &args.data, offing::data::ReadOptions::default())?;
    let sumo = Sumo::new(&config, &data.rows, threads).with_context(|| args.data.clone())?;
    Ok((sumo, data.episodes))
}

fn threshold(sumo: &Sumo, args: &Args) -> Result<Option<Threshold>> {
    if let Some(bad) = [args.alpha, args.threshold].into_iter().flatten().find(|x| !x.is_finite() || *x < 0.0)
    {
        bail!("--alpha and --threshold: wanted a number of at least 0, found {bad}");
    }
    Ok(match (args.alpha, args.threshold) {
        (Some(alpha), _) => Some(sumo.threshold(alpha)),
        (None, Some(score)) => {
            let distance = sumo.distance_of(score).unwrap_or(f32::NAN);
            Some(Threshold { alpha: score / sumo.max_loo_score(), score, distance })
        }
        (None, None) => None,
    })
}

/// Scores with everything that is told about them.
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
        out!(
            "{name}: {} transitions, {:.4} ms each",
            term::count(u.len()),
            1e3 * seconds / u.len().max(1) as f64
        );
        let baseline = self.sumo.threshold(1.0);
        let number = |x: f64| format!("{x:.4}");
        let mut facts = vec![
            vec![
                "median u".to_string(),
                number(stats::quantile(&u, 0.5)),
                self.distance(stats::quantile(&u, 0.5)),
            ],
            vec![
                "largest u".into(),
                number(stats::quantile(&u, 1.0)),
                self.distance(stats::quantile(&u, 1.0)),
            ],
            vec![
                "largest u of the dataset".into(),
                number(baseline.score.into()),
                number(baseline.distance.into()),
            ],
        ];
        if let Some(t) = &self.alarm {
            facts.push(vec![
                format!("threshold (α = {:.3})", t.alpha),
                number(t.score.into()),
                number(t.distance.into()),
            ]);
        }
        out!("{}", term::table(&["", "u", "as a distance"], facts));
        let mut order: Vec<usize> = (0..u.len()).collect();
        order.sort_by(|&a, &b| u[b].total_cmp(&u[a]));
        let place = |at: Option<(usize, usize)>| at.map_or("-".into(), |(e, s)| format!("{e} / {s}"));
        let rows = order.iter().take(top).map(|&row| {
            let support: Vec<String> = self
                .support(row)
                .map(|(id, at, d)| match at {
                    Some((e, s)) => format!("{e} / {s} at {d:.3}"),
                    None => format!("row {id} at {d:.3}"),
                })
                .collect();
            let mark = if self.is_alarm(row) { "alarm" } else { "" };
            vec![
                row.to_string(),
                place(locate(&self.own, row)),
                number(u[row]),
                mark.into(),
                support.join(", "),
            ]
        });
        out!(
            "{}",
            term::table(&["row", "episode / step", "u", "", "supported by episode / step at distance"], rows)
        );
        if let Some(t) = &self.alarm {
            let alarms = self.alarms();
            let share = 100.0 * alarms as f64 / u.len().max(1) as f64;
            out!(
                "{} of {} rows beyond u = {:.4} ({share:.1} %)",
                term::count(alarms),
                term::count(u.len()),
                t.score
            );
        }
    }

    fn distance(&self, u: f64) -> String {
        self.sumo.distance_of(u as f32).map_or("-".into(), |d| format!("{d:.4}"))
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
                "row": row,
                "at": place(locate(&self.own, row)),
                "u": self.scores[row],
                "alarm": self.alarm.map(|_| self.is_alarm(row)),
                "support": support.collect::<Vec<_>>(),
            })
        });
        json!({
            "data": args.data,
            "transitions": args.transitions,
            "config": self.sumo.config(),
            "dataset_rows": self.sumo.rows(),
            "largest_u_of_dataset": self.sumo.threshold(1.0),
            "threshold": self.alarm,
            "alarms": self.alarm.map(|_| self.alarms()),
            "seconds": seconds,
            "rows": rows.collect::<Vec<_>>(),
        })
    }
}

/// One search vector a line in, `u` (and `alarm` or `ok`) a line out, as they come. A line of names at the start is passed
/// over, and so is one that cannot be read, which is told: a monitor that stops at it would watch no longer.
fn stream(context: &Context, sumo: &Sumo, alarm: Option<Threshold>) -> Result<ExitCode> {
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
            Ok((sumo.score_rows(&row)?[0], started.elapsed().as_secs_f64()))
        });
        let u = match scored {
            Ok((u, seconds)) => {
                times.push(seconds);
                u
            }
            Err(error) => {
                eprintln!("error: standard input, line {}: {error:#}; passed over", number + 1);
                bad += 1;
                continue;
            }
        };
        let beyond = alarm.is_some_and(|t| u > t.score);
        alarms += usize::from(beyond);
        let word = match (alarm, beyond) {
            (None, _) => "",
            (Some(_), true) => " alarm",
            (Some(_), false) => " ok",
        };
        writeln!(out, "{u}{word}").and_then(|()| out.flush()).context("standard output")?;
    }
    if !times.is_empty() {
        let ms = |q: f64| 1e3 * stats::quantile(&times, q);
        context.say(&format!(
            "{} rows, {alarms} alarms, {bad} bad lines; a row took {:.3} ms (median), {:.3} ms (worst 1 %), {:.3} ms (worst)",
            term::count(times.len()),
            ms(0.5),
            ms(0.99),
            ms(1.0)
        ));
    }
    Ok(match (alarms, bad) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(2),
        _ => ExitCode::from(ALARM),
    })
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
    let has = |v: &[SearchVector]| v.contains(&vector);
    let mut at = 0;
    let mut take = |n: usize, there: bool| -> Vec<f32> {
        let from = at;
        at += if there { n } else { 0 };
        if there { x[from..at].to_vec() } else { vec![0.0; n] }
    };
    let obs = take(s, true);
    let act = take(a, !has(&[SearchVector::ObsNext]));
    let rew = take(1, has(&[SearchVector::ObsActRewNext]));
    let next = take(s, !has(&[SearchVector::ObsAct]));
    let row = |x: Vec<f32>| {
        let width = x.len();
        Array2::from_shape_vec((1, width), x).expect("one row of its own width")
    };
    Ok(Batch { obs: row(obs), act: row(act), rew: rew.into(), next_obs: row(next), done: vec![false].into() })
}
