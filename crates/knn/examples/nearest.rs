//! The shortest useful program: index some rows, find the nearest, ask for the farthest gap.
//!
//! ```console
//! cargo run --release -p offing-knn --example nearest
//! ```

use ndarray::Array2;
use offing_knn::{NeighborIndex, Tree, TreeConfig};

fn main() -> Result<(), offing_knn::Error> {
    // A helix in ten dimensions: one-dimensional data in a wide space, which is what the tree is good at.
    let rows = Array2::from_shape_fn((100_000, 10), |(i, j)| (i as f32 * 1e-3 * (1.0 + j as f32)).sin());
    let index = Tree::new(&TreeConfig::default(), rows.view())?;
    let queries = &rows.slice(ndarray::s![..5, ..]) + 0.001;
    let found = index.search(queries.view(), 3)?;
    for (ids, distances) in found.ids.outer_iter().zip(found.distances.outer_iter()) {
        println!("rows {ids} at {distances:.5}");
    }
    println!("no row is farther than {} from its nearest other", index.max_self(1)?);
    println!("within 0.002: {:?}", index.within(queries.view(), 0.002, 1)?);
    Ok(())
}
