//! Bad input is an error value with one line that names the numbers, never a panic and never an answer.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as loudly as tests")]

use ndarray::{Array2, array};
use offing_knn::{Flat, FlatConfig, Metric, NeighborIndex, Tree, TreeConfig};

fn indexes(metric: Metric, rows: &Array2<f32>) -> [Box<dyn NeighborIndex>; 2] {
    [
        Box::new(Flat::new(&FlatConfig { metric, ..Default::default() }, rows.view()).unwrap()),
        Box::new(Tree::new(&TreeConfig { metric, ..Default::default() }, rows.view()).unwrap()),
    ]
}

fn build_error(metric: Metric, rows: &Array2<f32>) -> String {
    let tree = Tree::new(&TreeConfig { metric, ..Default::default() }, rows.view()).unwrap_err().to_string();
    let flat = Flat::new(&FlatConfig { metric, ..Default::default() }, rows.view()).unwrap_err().to_string();
    assert_eq!(tree, flat);
    assert!(!tree.contains('\n'));
    tree
}

#[test]
fn rows_that_cannot_be_indexed_are_named() {
    let bad = array![[0.0, 1.0], [2.0, f32::NAN], [f32::INFINITY, 0.0]];
    assert!(build_error(Metric::Euclidean, &bad).starts_with("row 1 column 1 is NaN"));
    let bad = array![[0.0, 1.0], [2.0, 0.0], [f32::NEG_INFINITY, 0.0]];
    assert!(build_error(Metric::Manhattan, &bad).starts_with("row 2 column 0 is -inf"));
    let zero = array![[0.0, 1.0], [0.0, 0.0]];
    assert!(build_error(Metric::Cosine, &zero).starts_with("row 1 is a zero vector"));
    assert!(
        build_error(Metric::Euclidean, &Array2::zeros((0, 3)))
            .starts_with("cannot index 0 rows of 3 columns")
    );
    assert!(
        build_error(Metric::Euclidean, &Array2::zeros((3, 0)))
            .starts_with("cannot index 3 rows of 0 columns")
    );
}

#[test]
fn searches_that_cannot_be_answered_say_why() {
    let rows = array![[1.0, 1.0], [2.0, 3.0], [4.0, -1.0]];
    for index in indexes(Metric::Cosine, &rows) {
        let q = array![[1.0, 2.0]];
        let message = |e: offing_knn::Error| e.to_string();
        assert_eq!(
            message(index.search(q.view(), 0).unwrap_err()),
            "k = 0 is out of range: this search can return 1 to 3 neighbours of 3 rows"
        );
        assert!(message(index.search(q.view(), 4).unwrap_err()).starts_with("k = 4 is out of range"));
        assert!(message(index.search_self(3).unwrap_err()).contains("1 to 2 neighbours of 3 rows"));
        assert!(message(index.max_self(3).unwrap_err()).contains("1 to 2 neighbours of 3 rows"));
        assert!(message(index.within(q.view(), 1.0, 9).unwrap_err()).starts_with("k = 9"));
        assert!(message(index.within(q.view(), f32::NAN, 1).unwrap_err()).starts_with("radius NaN"));
        assert!(message(index.within(q.view(), -1.0, 1).unwrap_err()).starts_with("radius -1"));
        let wide = array![[1.0, 2.0, 3.0]];
        assert_eq!(
            message(index.search(wide.view(), 1).unwrap_err()),
            "queries have 3 columns, the index has 2"
        );
        let bad = array![[1.0, 2.0], [0.5, f32::NAN]];
        assert!(message(index.search(bad.view(), 1).unwrap_err()).starts_with("query 1 column 1 is NaN"));
        assert!(
            message(index.within(bad.view(), 1.0, 1).unwrap_err()).starts_with("query 1 column 1 is NaN")
        );
        let zero = array![[1.0, 2.0], [0.0, -0.0]];
        assert!(message(index.search(zero.view(), 1).unwrap_err()).starts_with("query 1 is a zero vector"));
    }
    let tree = Tree::new(&TreeConfig::default(), rows.view()).unwrap();
    for epsilon in [-0.1, f32::NAN, f32::INFINITY] {
        assert!(tree.search_approx(rows.view(), 1, epsilon).unwrap_err().to_string().starts_with("epsilon"));
    }
}

#[test]
fn one_row_has_no_other_neighbour() {
    for index in indexes(Metric::Euclidean, &array![[1.0, 2.0]]) {
        assert!(index.search_self(1).is_err());
        assert!(index.max_self(1).is_err());
        assert_eq!(index.search(array![[1.0, 2.0]].view(), 1).unwrap().distances[[0, 0]], 0.0);
    }
}

#[test]
fn no_queries_give_no_answers() {
    for index in indexes(Metric::Euclidean, &array![[1.0, 2.0], [3.0, 4.0]]) {
        let none = Array2::<f32>::zeros((0, 2));
        assert_eq!(index.search(none.view(), 2).unwrap().ids.dim(), (0, 2));
        assert!(index.within(none.view(), 1.0, 1).unwrap().is_empty());
    }
}

#[test]
fn transposed_and_strided_views_are_read_as_they_look() {
    let wide = array![[0.0f32, 5.0, 9.0], [0.0, 5.0, 9.0]];
    for index in indexes(Metric::Euclidean, &wide.t().to_owned()) {
        let found = index.search(wide.t(), 1).unwrap();
        assert_eq!(found.ids.column(0).to_vec(), [0, 1, 2]);
        assert_eq!(found.distances.column(0).to_vec(), [0.0, 0.0, 0.0]);
        let every_other = index.search(wide.t().slice(ndarray::s![..;2, ..]), 1).unwrap();
        assert_eq!(every_other.ids.column(0).to_vec(), [0, 2]);
    }
}
