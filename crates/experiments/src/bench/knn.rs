//! Exact neighbour search on imagined transitions.

use std::path::{Path, PathBuf};

use anyhow::Result;
use ndarray::Axis;
use offing::data::catalogue::GeneratedName;
use offing::data::policy_set::{PolicySet, SnapshotChoice};
use offing::data::{ReadOptions, write_npy};
use offing::env::Physics;
use offing::{Mat, Rng};
use offing_knn::{Metric, NeighborIndex, Tree, TreeConfig};

use super::knn_queries::{QueryDistance, queries, search_rows};
use super::{Measurements, seconds};
use crate::Runtime;
use crate::dynamics::draw_rows;

/// What to search, and for what.
#[derive(clap::Args)]
pub struct KnnBench {
    /// A generated dataset: it must hold simulator states, from which the queries roll out.
    dataset: String,
    /// Behaviour policies; the best one of the body is the trained agent of the queries (in a maze, the data's own
    /// actions stand in for it).
    #[arg(long, value_name = "DIR")]
    policies: PathBuf,
    /// Queries of each distance.
    #[arg(long, default_value_t = 50_000)]
    queries: usize,
    /// Numbers of neighbours to search for.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10])]
    k: Vec<usize>,
    /// Index only N rows, drawn at random (to see how cost grows).
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
}

fn metric(name: &str) -> Result<Metric, String> {
    match name {
        "euclidean" => Ok(Metric::Euclidean),
        "manhattan" => Ok(Metric::Manhattan),
        "cosine" => Ok(Metric::Cosine),
        other => Err(format!("unknown distance `{other}`; known: euclidean, manhattan, cosine")),
    }
}

/// Rows to index, and queries.
pub struct KnnData {
    set: String,
    rows: Mat,
    queries: Vec<(QueryDistance, Mat)>,
}

impl KnnBench {
    /// Rolls the queries out.
    ///
    /// # Errors
    /// A dataset without simulator states, or no policies for it.
    pub fn prepare(&self, runtime: &Runtime) -> Result<KnnData> {
        let (data, _) = runtime.read_data(&self.dataset, ReadOptions::default())?;
        let set = data.meta.get("set").unwrap_or(&self.dataset);
        let recipe = GeneratedName::parse(set)?;
        let best = GeneratedName { flavour: "expert".into(), ..recipe.clone() };
        // The ant of a maze has a goal beside its observation, and no snapshots.
        let agent = if recipe.task.starts_with("antmaze") {
            None
        } else {
            let snapshots = PolicySet::open(&self.policies)?;
            Some(snapshots.policies_for(&best, SnapshotChoice::default())?.remove(0).policy)
        };
        let envs = runtime.envs(&recipe.task, Physics::default())?;
        runtime.say("rolling out queries");
        let of = |distance| Ok((distance, queries(&data, &envs, agent.as_ref(), distance, self.queries, 0)?));
        let mut queries = QueryDistance::ALL.into_iter().map(of).collect::<Result<Vec<_>>>()?;
        let mut rows = search_rows(&data);
        if let Some(n) = self.rows {
            let chosen = draw_rows(n, rows.nrows(), &mut Rng::stream(0, "bench-rows", 0));
            rows = rows.select(Axis(0), &chosen);
        }
        if self.standardise {
            let mean = rows.map_axis(Axis(0), |c| c.mapv(f64::from).mean().unwrap_or(0.0));
            let std = rows.map_axis(Axis(0), |c| c.mapv(f64::from).std(0.0));
            for matrix in queries.iter_mut().map(|(_, queries)| queries).chain([&mut rows]) {
                for (j, mut column) in matrix.columns_mut().into_iter().enumerate() {
                    let scale = if std[j] > 1e-12 { std[j] } else { 1.0 };
                    column.mapv_inplace(|v| ((f64::from(v) - mean[j]) / scale) as f32);
                }
            }
        }
        Ok(KnnData { set: recipe.name, rows, queries })
    }
}

impl KnnData {
    /// Writes rows and queries as .npy files, for other programs.
    ///
    /// # Errors
    /// A directory that cannot be written.
    pub fn export(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir)?;
        write_npy(&self.rows, &dir.join("rows.npy"))?;
        for (distance, queries) in &self.queries {
            write_npy(queries, &dir.join(format!("queries_{}.npy", distance.name())))?;
        }
        Ok(())
    }

    /// Builds an index and searches it.
    ///
    /// # Errors
    /// Rows that cannot be indexed.
    pub fn measure(&self, bench: &KnnBench, samples: usize) -> Result<Measurements> {
        let mut measured = Measurements::new("knn", rayon::current_num_threads());
        let rows = &self.rows;
        let label = format!("{} {}×{}", self.set, rows.nrows(), rows.ncols());
        let config = TreeConfig { metric: bench.metric, ..TreeConfig::default() };
        let tree = measured.time(&format!("{label} build"), || Ok(Tree::new(&config, rows.view())?))?;
        measured.add(&format!("{label} memory"), "× rows", tree.bytes() as f64 / (rows.len() * 4) as f64);
        for _ in 0..samples {
            for (distance, queries) in &self.queries {
                for &k in &bench.k {
                    let wall = seconds(|| Ok(tree.search(queries.view(), k)?))?;
                    let name = format!("{label} k={k} {}", distance.name());
                    measured.add(&name, "queries/s", queries.nrows() as f64 / wall);
                }
            }
            let mild = self.queries.iter().find(|(distance, _)| *distance == QueryDistance::Mild);
            if let Some((_, mild)) = mild.filter(|_| bench.more) {
                measure_more(&tree, mild, &label, &mut measured)?;
            }
        }
        Ok(measured)
    }
}

/// The leave-one-out maximum, the yes/no search at its radius, and single queries.
fn measure_more(tree: &Tree, mild: &Mat, label: &str, measured: &mut Measurements) -> Result<()> {
    let radius = measured.time(&format!("{label} max_self"), || Ok(tree.max_self(1)?))?;
    let wall = seconds(|| Ok(tree.within(mild.view(), radius, 1)?))?;
    measured.add(&format!("{label} within, mild"), "queries/s", mild.nrows() as f64 / wall);
    let single = 1000.min(mild.nrows());
    let wall = seconds(|| {
        for query in mild.axis_chunks_iter(Axis(0), 1).take(single) {
            tree.search(query, 1)?;
        }
        Ok(())
    })?;
    measured.add(&format!("{label} one query at a time, mild"), "µs", 1e6 * wall / single as f64);
    Ok(())
}
