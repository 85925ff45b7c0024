//! Runs every unsafe path once on small data and compares it with brute force; made to be run under valgrind:
//! `scripts/valgrind.sh knn`.

use ndarray::Array2;
use offing_knn::{Flat, FlatConfig, Loops, Metric, NeighborIndex, Threads, Tree, TreeConfig};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("offing-knn-selfcheck-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let file = dir.join("index.knn");
    let mut checks = 0;
    for metric in [Metric::Euclidean, Metric::Manhattan, Metric::Cosine] {
        for (n, d) in [(1, 1), (9, 2), (700, 17), (1500, 40), (300, 70)] {
            let rows = matrix(n, d, 1);
            let queries = matrix(80, d, 2);
            let k = n.min(5);
            let wanted = Flat::new(&FlatConfig { metric, threads: Threads::Exactly(1) }, rows.view())?;
            let answer = wanted.search(queries.view(), k)?;
            for loops in [Loops::Auto, Loops::Avx2, Loops::Portable] {
                let cfg = TreeConfig { metric, loops, threads: Threads::Exactly(1) };
                Tree::new(&cfg, rows.view())?.save(&file)?;
                let tree = Tree::load(&cfg, &file)?;
                let same = tree.search(queries.view(), k)? == answer
                    && tree.search_approx(queries.view(), k, 0.0)?.neighbors == answer
                    && tree.within(queries.view(), 3.0, k)? == wanted.within(queries.view(), 3.0, k)?
                    && (n == 1 || tree.max_self(1)? == wanted.max_self(1)?)
                    && (n == 1 || tree.search_self(1)? == wanted.search_self(1)?);
                if !same {
                    return Err(format!("{metric:?} {n}×{d} {loops:?} differs from brute force").into());
                }
                checks += 1;
            }
        }
    }
    std::fs::remove_dir_all(&dir)?;
    println!("{checks} indexes agree with brute force; loops used: {}", Loops::Auto.name());
    Ok(())
}

/// Smooth pseudo-random values, columns of different width.
fn matrix(n: usize, d: usize, seed: u64) -> Array2<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Array2::from_shape_fn((n, d), |(_, j)| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f32 / (1u64 << 24) as f32 - 0.4) * 4.0 * 0.9f32.powi(j as i32)
    })
}
