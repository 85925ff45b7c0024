//! Times an index on .npy files, for `scripts/bench_knn_peers.py`:
//!
//! ```console
//! cargo run --release -p offing-knn --example bench -- --rows rows.npy --queries in=in.npy,mild=mild.npy --k 1,10
//! ```
//! Options: `--metric euclidean|manhattan|cosine`, `--zscore`, `--threads N`, `--repeat N`, `--self` (also time
//! max_self), `--epsilon E`, `--within`, `--avx2`, `--portable`, `--json FILE`, `--distances DIR` (k-th distances as .npy);
//! `--serve`: builds both indexes, then times one search for each line `tree|flat NAME K COUNT FILE.npy` of the
//! standard input and answers with its seconds, so that peers can be timed in turns.

use ndarray::{Array2, Axis};
use offing_knn::{Flat, FlatConfig, Loops, Metric, NeighborIndex, Threads, Tree, TreeConfig};
use std::collections::HashMap;
use std::error::Error;
use std::io::Write;
use std::time::Instant;

/// name, unit, samples.
type Row = (String, &'static str, Vec<f64>);

fn main() -> Result<(), Box<dyn Error>> {
    let args = parse()?;
    let get = |key: &str, default: &str| args.get(key).cloned().unwrap_or_else(|| default.into());
    let mut rows = read_npy(&get("rows", "rows.npy"))?;
    let mut sets = Vec::new();
    for item in get("queries", "").split(',').filter(|s| !s.is_empty()) {
        let (name, file) = item.split_once('=').ok_or("--queries wants name=file,name=file")?;
        sets.push((name.to_string(), read_npy(file)?));
    }
    if args.contains_key("zscore") {
        zscore(&mut rows, sets.iter_mut().map(|s| &mut s.1));
    }
    let metric = match get("metric", "euclidean").as_str() {
        "euclidean" => Metric::Euclidean,
        "manhattan" => Metric::Manhattan,
        "cosine" => Metric::Cosine,
        other => return Err(format!("unknown metric {other}").into()),
    };
    let threads: usize = get("threads", "2").parse()?;
    let loops = match (args.contains_key("portable"), args.contains_key("avx2")) {
        (true, _) => Loops::Portable,
        (false, true) => Loops::Avx2,
        (false, false) => Loops::Auto,
    };
    let cfg = TreeConfig { metric, threads: Threads::Exactly(threads), loops };
    let repeat: usize = get("repeat", "3").parse()?;
    let mut results: Vec<Row> = Vec::new();

    let clock = Instant::now();
    let index = Tree::new(&cfg, rows.view())?;
    note(&mut results, "build", "s", vec![clock.elapsed().as_secs_f64()]);
    note(
        &mut results,
        "memory",
        "bytes per byte of rows",
        vec![index.bytes() as f64 / (rows.len() * 4) as f64],
    );
    if args.contains_key("serve") {
        let flat = Flat::new(&FlatConfig { metric, threads: cfg.threads }, rows.view())?;
        return serve(&index, &flat, &sets);
    }
    for k in get("k", "1").split(',') {
        let k: usize = k.parse()?;
        for (name, queries) in &sets {
            let mut samples = Vec::new();
            for _ in 0..repeat {
                let clock = Instant::now();
                let found = index.search(queries.view(), k)?;
                samples.push(queries.nrows() as f64 / clock.elapsed().as_secs_f64());
                if let Some(dir) = args.get("distances") {
                    write_npy(&format!("{dir}/{name}_{k}.npy"), &found.kth())?;
                }
            }
            note(&mut results, &format!("search {name} k={k}"), "queries/s", samples);
            if let Some(e) = args.get("epsilon") {
                let clock = Instant::now();
                index.search_approx(queries.view(), k, e.parse()?)?;
                let rate = queries.nrows() as f64 / clock.elapsed().as_secs_f64();
                note(&mut results, &format!("approx {e} {name} k={k}"), "queries/s", vec![rate]);
            }
            if args.contains_key("within") {
                let mut kth = index.search(queries.view(), k)?.kth();
                kth.sort_by(f32::total_cmp);
                for (label, radius) in [("median", kth[kth.len() / 2]), ("far", kth[kth.len() - 1])] {
                    let clock = Instant::now();
                    index.within(queries.view(), radius, k)?;
                    let rate = queries.nrows() as f64 / clock.elapsed().as_secs_f64();
                    note(&mut results, &format!("within {label} {name} k={k}"), "queries/s", vec![rate]);
                }
            }
            let mut alone: Vec<f64> = (0..300.min(queries.nrows()))
                .map(|i| {
                    let one = queries.slice(ndarray::s![i..i + 1, ..]);
                    let clock = Instant::now();
                    index.search(one, k).map(|_| clock.elapsed().as_secs_f64() * 1e6)
                })
                .collect::<Result<_, _>>()?;
            alone.sort_by(f64::total_cmp);
            note(&mut results, &format!("one query {name} k={k}"), "µs", vec![alone[alone.len() / 2]]);
        }
    }
    if args.contains_key("self") {
        let clock = Instant::now();
        let most = index.max_self(1)?;
        note(&mut results, "max_self", "s", vec![clock.elapsed().as_secs_f64()]);
        eprintln!("max_self = {most}");
    }
    match args.get("json") {
        Some(file) => Ok(std::fs::write(file, json(&results, threads))?),
        None => Ok(()),
    }
}

/// Answers requests, see above, until the input ends.
fn serve(tree: &Tree, flat: &Flat, sets: &[(String, Array2<f32>)]) -> Result<(), Box<dyn Error>> {
    println!("ready");
    for line in std::io::stdin().lines() {
        let line = line?;
        let [index, name, k, count, file] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(format!("wanted `tree|flat NAME K COUNT FILE`, found `{line}`").into());
        };
        let queries = &sets.iter().find(|s| s.0 == name).ok_or(format!("no queries `{name}`"))?.1;
        let queries = queries.slice(ndarray::s![..count.parse::<usize>()?.min(queries.nrows()), ..]);
        let index: &dyn NeighborIndex = if index == "flat" { flat } else { tree };
        let clock = Instant::now();
        let found = index.search(queries, k.parse()?)?;
        let seconds = clock.elapsed().as_secs_f64();
        write_npy(file, &found.kth())?;
        println!("{seconds}");
    }
    Ok(())
}

fn parse() -> Result<HashMap<String, String>, Box<dyn Error>> {
    let mut out = HashMap::new();
    let mut args = std::env::args().skip(1).peekable();
    while let Some(flag) = args.next() {
        let key = flag.strip_prefix("--").ok_or(format!("expected an option, found {flag}"))?;
        let value = args.next_if(|v| !v.starts_with("--")).unwrap_or_default();
        out.insert(key.to_string(), value);
    }
    Ok(out)
}

fn note(results: &mut Vec<Row>, name: &str, unit: &'static str, samples: Vec<f64>) {
    eprintln!("{name:32} {:>12.3} {unit}", median(&samples));
    results.push((name.into(), unit, samples));
}

fn median(samples: &[f64]) -> f64 {
    let mut s = samples.to_vec();
    s.sort_by(f64::total_cmp);
    s[s.len() / 2]
}

fn zscore<'a>(rows: &mut Array2<f32>, sets: impl Iterator<Item = &'a mut Array2<f32>>) {
    let mean = rows.map(|v| f64::from(*v)).mean_axis(Axis(0)).expect("there are rows");
    let std = rows.map(|v| f64::from(*v)).std_axis(Axis(0), 0.0).map(|s| s.max(1e-9));
    let apply = |m: &mut Array2<f32>| {
        for mut row in m.outer_iter_mut() {
            for ((v, m), s) in row.iter_mut().zip(&mean).zip(&std) {
                *v = ((f64::from(*v) - m) / s) as f32;
            }
        }
    };
    apply(rows);
    sets.for_each(apply);
}

fn json(results: &[Row], threads: usize) -> String {
    let line = |(name, unit, samples): &Row| {
        format!(
            "{{\"name\":{name:?},\"unit\":{unit:?},\"median\":{},\"samples\":{samples:?}}}",
            median(samples)
        )
    };
    let lines: Vec<String> = results.iter().map(line).collect();
    format!("{{\"bench\":\"knn\",\"threads\":{threads},\"results\":[\n{}\n]}}\n", lines.join(",\n"))
}

/// Reads a C-order float32 matrix as NumPy writes it.
fn read_npy(path: &str) -> Result<Array2<f32>, Box<dyn Error>> {
    let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    if bytes.len() < 12 || &bytes[..6] != b"\x93NUMPY" {
        return Err(format!("{path}: not a .npy file").into());
    }
    let (start, len) = match bytes[6] {
        1 => (10, u16::from_le_bytes([bytes[8], bytes[9]]) as usize),
        _ => (12, u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize),
    };
    let header = std::str::from_utf8(bytes.get(start..start + len).ok_or("short header")?)?;
    if !header.contains("'<f4'") || !header.contains("'fortran_order': False") {
        return Err(format!("{path}: wanted C-order float32, found {header}").into());
    }
    let shape = header.split_once("'shape': (").and_then(|s| s.1.split_once(')')).ok_or("no shape")?.0;
    let shape: Vec<usize> = shape.split(',').filter_map(|s| s.trim().parse().ok()).collect();
    let values = bytes[start + len..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    match shape[..] {
        [n, d] => Ok(Array2::from_shape_vec((n, d), values.collect())?),
        _ => Err(format!("{path}: wanted two dimensions, found {shape:?}").into()),
    }
}

fn write_npy(path: &str, values: &[f32]) -> std::io::Result<()> {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
    header.push_str(&" ".repeat(64 - (10 + header.len() + 1) % 64));
    header.push('\n');
    let mut out = std::fs::File::create(path)?;
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&(header.len() as u16).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    out.write_all(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())
}
