//! A comparison in one line.

use super::{ColumnComparison, Comparison, EpisodeComparison, NeighbourDistances};

/// Means within so many standard errors agree.
const ERRORS: f64 = 2.0;
/// Beyond this share of far rows (0.01 is chance), a set reaches where the other does not.
const FAR: f64 = 0.03;

impl Comparison {
    /// What was found, in one line.
    pub fn verdict(&self) -> String {
        if self.is_copy() && self.returns.as_ref().is_none_or(|returns| returns.ks == 0.0) {
            return format!("a copy: {} and {} hold the same rows", self.a.name, self.b.name);
        }
        let parts = [self.copies(), self.episodes(), self.differing_columns(), self.distances()];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// The column that differs most.
    pub fn worst_column(&self) -> Option<&ColumnComparison> {
        let known = self.columns.iter().filter(|column| !column.ks.is_nan());
        known.reduce(|worst, column| if column.ks > worst.ks { column } else { worst })
    }

    /// Whether each set holds every row of the other, and no other rows.
    pub fn is_copy(&self) -> bool {
        let (a, b) = (&self.a, &self.b);
        a.rows == b.rows && a.in_other == 1.0 && b.in_other == 1.0
    }

    fn copies(&self) -> Option<String> {
        let (a, b) = (&self.a, &self.b);
        if self.is_copy() {
            return Some(format!("{} and {} hold the same rows in other episodes", a.name, b.name));
        }
        let (set, other) = if a.steps_in_other >= b.steps_in_other { (a, b) } else { (b, a) };
        match (set.in_other, set.steps_in_other) {
            (_, 0.0) => None,
            (rows, steps) if rows == steps => Some(format!(
                "{} of the rows of {} are in {}, bit for bit",
                percent(rows),
                set.name,
                other.name
            )),
            (rows, steps) => Some(format!(
                "{} of the steps of {} are in {}, bit for bit, but {} with their rewards",
                percent(steps),
                set.name,
                other.name,
                percent(rows)
            )),
        }
    }

    fn episodes(&self) -> Option<String> {
        let Some(returns) = &self.returns else {
            return Some("no finished episodes to compare".into());
        };
        let told = in_words("returns", returns);
        let lengths = self.lengths.as_ref().filter(|l| l.errors() > ERRORS);
        Some(lengths.map_or(told.clone(), |lengths| format!("{told}, {}", in_words("lengths", lengths))))
    }

    fn differing_columns(&self) -> Option<String> {
        let worst = self.worst_column()?;
        let differing: Vec<_> = self.columns.iter().filter(|column| column.differs()).collect();
        let most = differing.iter().copied().reduce(|most, c| if c.ks > most.ks { c } else { most });
        let itself = |c: &ColumnComparison| match c.ks_halves.is_nan() {
            true => String::new(),
            false => format!(", halves of one set {}", distance(c.ks_halves)),
        };
        Some(match (differing.len(), most) {
            (_, None) => format!(
                "no column differs by more than halves of one set do (most: {}, KS {}{})",
                worst.column,
                distance(worst.ks),
                itself(worst)
            ),
            (1, Some(c)) => format!("column {} differs (KS {}{})", c.column, distance(c.ks), itself(c)),
            (n, Some(c)) => {
                format!("{n} columns differ, {} most (KS {}{})", c.column, distance(c.ks), itself(c))
            }
        })
    }

    fn distances(&self) -> Option<String> {
        let found = self.neighbours.as_ref()?;
        let far = |distances: &NeighbourDistances| distances.beyond > FAR;
        let (a, b) = (&self.a.name, &self.b.name);
        let tell = |distances: &NeighbourDistances, set: &str, other: &str| {
            format!(
                "{} of the rows of {set} lie farther from {other} than 99 % of {other}'s own",
                percent(distances.beyond)
            )
        };
        Some(match (far(&found.a), far(&found.b)) {
            (false, false) => {
                format!("rows of {a} lie as close to {b} as to {a}'s own, and the other way")
            }
            (true, false) => tell(&found.a, a, b),
            (false, true) => tell(&found.b, b, a),
            (true, true) => {
                format!("{}, and {} the other way", tell(&found.a, a, b), percent(found.b.beyond))
            }
        })
    }
}

fn in_words(what: &str, found: &EpisodeComparison) -> String {
    let few = found.a.count.min(found.b.count);
    let few = if few < 10 {
        format!(", from {few} episode{}", if few == 1 { "" } else { "s" })
    } else {
        String::new()
    };
    let means = format!("{} against {}{few}", number(found.a.mean), number(found.b.mean));
    match (found.errors() > ERRORS, found.differs_in_shape()) {
        (true, _) => format!("{what} differ by {:.1} standard errors ({means})", found.errors()),
        (false, true) => {
            format!("mean {what} agree ({means}), their distributions do not (KS {:.2})", found.ks)
        }
        (false, false) => format!("{what} agree within {ERRORS:.0} standard errors ({means})"),
    }
}

fn number(x: f64) -> String {
    match x.abs() {
        100.0.. => format!("{x:.0}"),
        1.0.. => format!("{x:.2}"),
        _ => format!("{x:.3}"),
    }
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        100.0 => "all".into(),
        0.0 => "none".into(),
        p if p >= 99.95 => "nearly all".into(),
        p if (10.0..99.0).contains(&p) => format!("{p:.0} %"),
        p if p >= 0.1 => format!("{p:.1} %"),
        p => format!("{p:.1e} %"),
    }
}

/// A distance with digits that say something.
fn distance(ks: f64) -> String {
    if ks < 0.095 { format!("{ks:.3}") } else { format!("{ks:.2}") }
}
