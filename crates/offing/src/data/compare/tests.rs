//! Sets of one distribution agree; a shifted column, a copy, other rewards and other widths are found.

use super::*;
use crate::data::ColumnNames;
use crate::data::generate::{BehaviourBlock, generate};
use crate::env::{Env, EnvPool, point_mass::PointMass};
use crate::policy::UniformPolicy;

fn set(name: &str, rows: usize, seed: u64) -> Dataset {
    let make_env = || Ok(Box::new(PointMass::new()) as Box<dyn Env>);
    let blocks = [BehaviourBlock { rows, behaviour: &UniformPolicy }];
    generate(name, &EnvPool::new(make_env), &blocks, seed, &mut |_| ()).unwrap()
}

fn found(a: &Dataset, b: &Dataset) -> Comparison {
    compare(a, b, &CompareConfig { sample: 500, ..CompareConfig::default() }).unwrap()
}

#[test]
fn sets_of_one_distribution_agree_and_the_same_numbers_come_again() {
    let (a, b) = (set("monday", 6000, 1), set("friday", 6000, 2));
    let both = found(&a, &b);
    let verdict = both.verdict();
    assert!(verdict.starts_with("returns agree within 2 standard errors"), "{verdict}");
    assert!(verdict.contains("no column differs by more than halves of one set do"), "{verdict}");
    assert!(
        verdict.ends_with("rows of monday lie as close to friday as to monday's own, and the other way"),
        "{verdict}"
    );
    assert!(!verdict.contains('\n') && both.a.in_other < 0.01, "{verdict}");
    let json = |c: &Comparison| serde_json::to_string(c).unwrap();
    assert_eq!(json(&both), json(&found(&a, &b)));
    let neighbours = both.neighbours.unwrap();
    assert!(neighbours.a.beyond < 0.03 && neighbours.searched_rows >= 2900);
}

#[test]
fn a_shifted_column_is_found_by_name() {
    let (mut a, b) = (set("monday", 6000, 1), set("friday", 6000, 2));
    a.names =
        ColumnNames { obs: (0..a.rows.obs_dim()).map(|i| format!("sensor_{i}")).collect(), act: vec![] };
    let spread = b.rows.obs.column(1).std(0.0);
    a.rows.obs.column_mut(1).mapv_inplace(|x| x + 3.0 * spread);
    a.rows.next_obs.column_mut(1).mapv_inplace(|x| x + 3.0 * spread);
    let both = found(&a, &b);
    assert!(both.verdict().contains("column obs[1] (sensor_1) differs (KS "), "{}", both.verdict());
    let column = &both.columns[1];
    assert!((column.shift - 3.0).abs() < 1.0 && column.ks > 0.5 && column.differs(), "{column:?}");
    assert_eq!(both.columns.iter().filter(|c| c.differs()).count(), 1);
}

#[test]
fn a_copy_a_part_and_other_rewards_are_told_apart() {
    let whole = set("log", 3000, 1);
    let both = found(&whole, &whole.clone());
    assert!(
        both.verdict().starts_with("a copy: log (first) and log (second) hold the same rows"),
        "{}",
        both.verdict()
    );
    let part = Dataset { name: "part".into(), ..whole.subsampled(600, 0) };
    let both = found(&part, &whole);
    assert!(
        both.verdict().starts_with("all of the rows of part are in log, bit for bit"),
        "{}",
        both.verdict()
    );
    assert!((both.b.in_other - 0.2).abs() < 0.01, "{}", both.b.in_other);
    let mut relabelled = Dataset { name: "relabelled".into(), ..whole.clone() };
    relabelled.rows.rew += 1.0;
    let words = "all of the steps of relabelled are in log, bit for bit, but none with their rewards";
    assert!(
        found(&relabelled, &whole).verdict().starts_with(words),
        "{}",
        found(&relabelled, &whole).verdict()
    );
}

#[test]
fn a_set_that_reaches_farther_is_told_in_its_direction() {
    let (mut a, b) = (set("wide", 6000, 1), set("narrow", 6000, 2));
    for part in [&mut a.rows.obs, &mut a.rows.next_obs] {
        part.column_mut(0).mapv_inplace(|x| 4.0 * x);
    }
    let both = found(&a, &b);
    let neighbours = both.neighbours.as_ref().unwrap();
    assert!(
        neighbours.a.beyond > 0.2 && neighbours.a.other.median > neighbours.b.own.median,
        "{}",
        both.verdict()
    );
    assert!(both.verdict().contains("of the rows of wide lie farther from narrow than 99 % of narrow's own"));
}

#[test]
fn other_widths_are_refused_in_one_line() {
    let (a, mut b) = (set("monday", 300, 1), set("friday", 300, 2));
    b.rows.act = b.rows.act.slice(ndarray::s![.., ..1]).to_owned();
    let error = compare(&a, &b, &CompareConfig::default()).unwrap_err().to_string();
    assert!(
        error.starts_with("monday and friday: wanted two sets of one shape, found observations"),
        "{error}"
    );
    assert!(error.contains("actions 2 and 1 wide") && !error.contains('\n'), "{error}");
}

#[test]
fn tiny_and_spoilt_sets_are_compared_as_far_as_they_go() {
    let (mut a, b) = (set("a", 300, 1), set("b", 300, 2));
    a.rows.obs.row_mut(3).fill(f32::NAN);
    a.rows.act.column_mut(0).fill(f32::INFINITY);
    let both = found(&a, &b);
    assert!(both.columns[b.rows.obs_dim()].a.is_none() && both.neighbours.is_none());
    assert!(serde_json::to_string(&both).unwrap().contains("\"ks\":null"));
    let one = |data: &Dataset| data.subsampled(1, 0);
    let both = found(&one(&b), &one(&set("c", 300, 3)));
    assert!(
        both.neighbours.is_none() && both.verdict().starts_with("no finished episodes"),
        "{}",
        both.verdict()
    );
}
