//! The k smallest of many numbers, sorted out now and then and not at every number: a sorted list of fifty would cost more than
//! all else that is done for a row.

/// The k smallest of many numbers.
#[derive(Debug)]
pub(super) struct Smallest {
    k: usize,
    /// Numbers kept before they are sorted out.
    room: usize,
    /// All that were below `kth` when they came; the k smallest first, after a selection.
    values: Vec<f64>,
    /// The k-th smallest at the last selection; infinite before there are k.
    pub(super) kth: f64,
}

impl Smallest {
    pub(super) fn new(k: usize) -> Smallest {
        // More room means fewer selections, and a bound that lags behind.
        let room = k.saturating_add(k / 4 + 2);
        Smallest { k, room, values: Vec::with_capacity(k), kth: f64::INFINITY }
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.kth = f64::INFINITY;
    }

    /// Starts over with at most k numbers, whose k-th is `kth`, or infinite.
    #[inline(always)]
    pub(super) fn restart(&mut self, values: impl Iterator<Item = f64>, kth: f64) {
        self.values.clear();
        self.values.extend(values);
        self.kth = kth;
    }

    /// Takes a number; whether `kth` was found anew.
    #[inline(always)]
    pub(super) fn offer(&mut self, value: f64) -> bool {
        if value >= self.kth {
            return false;
        }
        if self.k == 1 {
            self.kth = value;
            return true;
        }
        self.values.push(value);
        let count = self.values.len();
        let due = count >= self.room || (count == self.k && self.kth == f64::INFINITY);
        if due {
            self.select();
        }
        due
    }

    /// Finds the k-th smallest and forgets those above it.
    #[inline(always)]
    pub(super) fn select(&mut self) {
        if self.values.len() > self.k || (self.values.len() == self.k && self.kth == f64::INFINITY) {
            self.kth = *self.values.select_nth_unstable_by(self.k - 1, f64::total_cmp).1;
            self.values.truncate(self.k);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Smallest;

    #[test]
    fn the_kth_is_never_too_small_and_exact_after_a_selection() {
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 50) as f64
        };
        for k in [1, 2, 10, 50] {
            let mut smallest = Smallest::new(k);
            let mut all: Vec<f64> = Vec::new();
            for count in 1..=400 {
                let value = random();
                smallest.offer(value);
                all.push(value);
                all.sort_by(f64::total_cmp);
                let exact = all.get(k - 1).copied().unwrap_or(f64::INFINITY);
                assert!(smallest.kth >= exact, "k = {k}, {count} numbers");
                if count % 7 == 0 {
                    smallest.select();
                    assert_eq!(smallest.kth, exact, "k = {k}, {count} numbers");
                }
            }
        }
    }
}
