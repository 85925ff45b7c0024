//! `offing bench knn`: exact neighbour search on imagined transitions.

mod queries;

use crate::exit::ExitCode;
use std::path::PathBuf;

use anyhow::{Result, bail};
use ndarray::Axis;
use offing::Mat;
use offing::data::catalogue::GeneratedName;
use offing::data::policy_set::{PolicySet, SnapshotChoice};
use offing::data::{ReadOptions, write_npy};
use offing::env::EnvPool;
use offing_knn::{Metric, NeighborIndex, Tree, TreeConfig};
use offing_mujoco::{Physics, make};

use super::super::data::load;
use super::{Common, Recorder, seconds};
use crate::context::Context;
use queries::Distance;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A made set (it must hold simulator states, from which the queries roll out).
    dataset: String,
    #[command(flatten)]
    common: Common,
    /// Behaviour policies; the best one of the body is the trained agent of the queries.
    #[arg(long, value_name = "DIR")]
    policies: PathBuf,
    /// Queries of each distance.
    #[arg(long, default_value_t = 50_000)]
    queries: usize,
    /// Numbers of neighbours to search for.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10])]
    k: Vec<usize>,
    /// Index only the first N rows of a random order (to see how cost grows).
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
    /// The distance measure.
    #[arg(long, value_parser = metric, default_value = "euclidean")]
    metric: Metric,
    /// Standardise every column first.
    #[arg(long)]
    standardise: bool,
    /// Also time the leave-one-out maximum and the yes/no search.
    #[arg(long)]
    more: bool,
    /// Write rows and queries as .npy files for other programs, and measure nothing.
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

fn metric(name: &str) -> std::result::Result<Metric, String> {
    match name {
        "euclidean" => Ok(Metric::Euclidean),
        "manhattan" => Ok(Metric::Manhattan),
        "cosine" => Ok(Metric::Cosine),
        other => Err(format!("unknown distance `{other}`; known: euclidean, manhattan, cosine")),
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> Result<ExitCode> {
    let (set, rows, queries) = prepare(context, args)?;
    if let Some(dir) = &args.export {
        std::fs::create_dir_all(dir)?;
        write_npy(&rows, &dir.join("rows.npy"))?;
        for (distance, queries) in Distance::ALL.iter().zip(&queries) {
            write_npy(queries, &dir.join(format!("queries_{}.npy", distance.name())))?;
        }
        out!("{}", dir.display());
        return Ok(ExitCode::SUCCESS);
    }
    let mut recorder = Recorder::new("knn", rayon::current_num_threads());
    let mut tree = None;
    let config = TreeConfig { metric: args.metric, ..TreeConfig::default() };
    let build = seconds(|| {
        tree = Some(Tree::new(&config, rows.view())?);
        Ok(())
    })?;
    let Some(tree) = tree else { bail!("no index was built") };
    let label = format!("{set} {}×{}", rows.nrows(), rows.ncols());
    recorder.add(&format!("{label} build"), "s", build);
    recorder.add(&format!("{label} memory"), "× rows", tree.bytes() as f64 / (rows.len() * 4) as f64);
    for _ in 0..args.common.samples {
        for (distance, queries) in Distance::ALL.iter().zip(&queries) {
            for &k in &args.k {
                let wall = seconds(|| Ok(tree.search(queries.view(), k)?))?;
                let name = format!("{label} k={k} {}", distance.name());
                recorder.add(&name, "queries/s", queries.nrows() as f64 / wall);
            }
        }
        if args.more {
            more(&tree, &queries[1], &label, &mut recorder)?;
        }
    }
    recorder.finish(&args.common)
}

/// The leave-one-out maximum, the yes/no search at its radius, and single queries.
fn more(tree: &Tree, mild: &Mat, label: &str, recorder: &mut Recorder) -> Result<()> {
    let mut radius = 0.0;
    let wall = seconds(|| {
        radius = tree.max_self(1)?;
        Ok(())
    })?;
    recorder.add(&format!("{label} max_self"), "s", wall);
    let wall = seconds(|| Ok(tree.within(mild.view(), radius, 1)?))?;
    recorder.add(&format!("{label} within, mild"), "queries/s", mild.nrows() as f64 / wall);
    let single = 1000.min(mild.nrows());
    let wall = seconds(|| {
        for query in mild.axis_chunks_iter(Axis(0), 1).take(single) {
            tree.search(query, 1)?;
        }
        Ok(())
    })?;
    recorder.add(&format!("{label} one query at a time, mild"), "µs", 1e6 * wall / single as f64);
    Ok(())
}

/// The set's name, the rows to index and the queries of the three distances.
fn prepare(context: &Context, args: &Args) -> Result<(String, Mat, [Mat; 3])> {
    let (data, _) = load(context, &args.dataset, ReadOptions::default())?;
    let set = data.meta.get("set").unwrap_or(&args.dataset);
    let recipe = GeneratedName::parse(set)?;
    let best = GeneratedName { flavour: "expert".into(), ..recipe.clone() };
    let agent =
        PolicySet::open(&args.policies)?.policies_for(&best, SnapshotChoice::default())?.remove(0).policy;
    let engine = context.engine()?;
    let make_env = || make(engine, &recipe.task, Physics::default());
    let envs = EnvPool::new(&make_env);
    context.say("rolling out queries");
    let mut queries = Vec::new();
    for distance in Distance::ALL {
        queries.push(queries::queries(&data, &envs, &agent, distance, args.queries, 0)?);
    }
    let mut rows = queries::rows(&data);
    if let Some(n) = args.rows {
        let mut order: Vec<usize> = (0..rows.nrows()).collect();
        let mut rng = offing::Rng::stream(0, "bench-rows", 0);
        for i in 0..n.min(order.len()) {
            let j = i + rng.below(order.len() - i);
            order.swap(i, j);
        }
        order.truncate(n);
        rows = rows.select(Axis(0), &order);
    }
    if args.standardise {
        let mean = rows.map_axis(Axis(0), |c| c.mapv(f64::from).mean().unwrap_or(0.0));
        let std = rows.map_axis(Axis(0), |c| c.mapv(f64::from).std(0.0));
        for matrix in queries.iter_mut().chain([&mut rows]) {
            for (j, mut column) in matrix.columns_mut().into_iter().enumerate() {
                let scale = if std[j] > 1e-12 { std[j] } else { 1.0 };
                column.mapv_inplace(|v| ((f64::from(v) - mean[j]) / scale) as f32);
            }
        }
    }
    let [a, b, c]: [Mat; 3] =
        queries.try_into().map_err(|_| anyhow::anyhow!("three distances give three sets"))?;
    Ok((recipe.name, rows, [a, b, c]))
}
