//! Signed sums of columns for Manhattan distance: |Δa| + |Δb| ≥ |Δa ± Δb|, with equality when both differences
//! have the matching sign. Columns that move together (a state and the next state) merge with almost no loss,
//! so that a few sums carry most of the distance.

/// Groups as rows of a matrix with entries −1, 0, 1, at most `most` of them, widest first.
///
/// Greedy: as long as there are too many groups, merge the two that lose least on differences of sample rows.
pub(crate) fn signed_groups(columns: &[Vec<f64>], most: usize) -> Vec<Vec<f64>> {
    let d = columns.len();
    let pairs = columns[0].len().min(1024);
    // Differences of rows far apart in the sample stand for differences of a query and a row.
    let difference =
        |c: &Vec<f64>| (0..pairs).map(|i| c[i] - c[(i + (c.len() / 2).max(1)) % c.len()]).collect();
    let mut groups: Vec<Group> = columns
        .iter()
        .enumerate()
        .map(|(j, c)| Group {
            signs: (0..d).map(|i| f64::from(u8::from(i == j))).collect(),
            diff: difference(c),
        })
        .collect();
    let mut loss = vec![(f64::INFINITY, 1.0); d * d];
    for i in 0..d {
        for j in 0..i {
            loss[i * d + j] = merge_loss(&groups[i].diff, &groups[j].diff);
        }
    }
    let mut alive: Vec<usize> = (0..d).collect();
    while alive.len() > most.max(1) {
        let (i, j) = cheapest(&alive, &loss, d);
        let sign = loss[i * d + j].1;
        let other = groups[i].clone();
        groups[j].add(&other, sign);
        alive.retain(|&a| a != i);
        for &a in &alive {
            if a != j {
                loss[a.max(j) * d + a.min(j)] = merge_loss(&groups[a].diff, &groups[j].diff);
            }
        }
    }
    let width = |g: &Group| g.diff.iter().map(|x| x.abs()).sum::<f64>();
    alive.sort_by(|&a, &b| width(&groups[b]).total_cmp(&width(&groups[a])));
    alive.into_iter().map(|a| groups[a].signs.clone()).collect()
}

#[derive(Clone)]
struct Group {
    signs: Vec<f64>,
    diff: Vec<f64>,
}

impl Group {
    fn add(&mut self, other: &Group, sign: f64) {
        self.signs.iter_mut().zip(&other.signs).for_each(|(a, b)| *a += sign * b);
        self.diff.iter_mut().zip(&other.diff).for_each(|(a, b)| *a += sign * b);
    }
}

/// What the sum of absolute differences loses by merging, and with which sign it loses less.
fn merge_loss(a: &[f64], b: &[f64]) -> (f64, f64) {
    let (mut plus, mut minus) = (0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let sum = x.abs() + y.abs();
        plus += sum - (x + y).abs();
        minus += sum - (x - y).abs();
    }
    if plus <= minus { (plus, 1.0) } else { (minus, -1.0) }
}

fn cheapest(alive: &[usize], loss: &[(f64, f64)], d: usize) -> (usize, usize) {
    let mut best = (alive[1].max(alive[0]), alive[1].min(alive[0]));
    for &i in alive {
        for &j in alive.iter().filter(|&&j| j < i) {
            if loss[i * d + j].0 < loss[best.0 * d + best.1].0 {
                best = (i, j);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_move_together_merge_first() {
        let a: Vec<f64> = (0..500).map(|i| f64::from(i * 37 % 101)).collect();
        let b: Vec<f64> = a.iter().map(|x| -x + 0.1).collect();
        let c: Vec<f64> = (0..500).map(|i| f64::from(i * 53 % 97)).collect();
        let groups = signed_groups(&[a, c, b], 2);
        assert_eq!(groups.len(), 2);
        assert!(groups.iter().any(|g| g[0] * g[2] == -1.0 && g[1] == 0.0), "{groups:?}");
        assert!(groups.iter().all(|g| g.iter().all(|x| x.abs() <= 1.0)));
    }

    #[test]
    fn few_columns_stay_as_they_are() {
        let groups = signed_groups(&[vec![1.0, 2.0], vec![5.0, 9.0]], 16);
        assert_eq!(groups, [[0.0, 1.0], [1.0, 0.0]]);
    }
}
