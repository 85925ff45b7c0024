//! Distances, each summed in f64 in one fixed order, so that every path returns the same bits.

/// How far apart two rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Metric {
    /// √Σ(x−y)².
    #[default]
    Euclidean,
    /// Σ|x−y|.
    Manhattan,
    /// 1 − cos(x, y), from 0 to 2; a zero vector has no direction and is refused.
    Cosine,
}

impl Metric {
    /// Number used in index files: the place of the variant, which never changes.
    pub(crate) fn code(self) -> u32 {
        self as u32
    }

    /// Inverse of [`Metric::code`].
    pub(crate) fn from_code(code: u32) -> Option<Metric> {
        [Metric::Euclidean, Metric::Manhattan, Metric::Cosine].into_iter().find(|m| m.code() == code)
    }

    /// The *key* of a pair: what rows are ranked by. Squared distance for Euclidean and for the unit
    /// vectors of cosine, the distance itself for Manhattan.
    #[inline(always)]
    pub(crate) fn key(self, query: &[f32], row: &[f32], scales: Scales) -> f64 {
        match self {
            Metric::Euclidean => sum(query, row, |a, b| square(f64::from(a) - f64::from(b))),
            Metric::Manhattan => sum(query, row, |a, b| (f64::from(a) - f64::from(b)).abs()),
            Metric::Cosine => {
                sum(query, row, |a, b| square(f64::from(a) * scales.query - f64::from(b) * scales.row))
            }
        }
    }

    /// The distance that belongs to a key, as the caller sees it.
    #[inline]
    pub(crate) fn distance(self, key: f64) -> f32 {
        match self {
            Metric::Euclidean => key.sqrt() as f32,
            Metric::Manhattan => key as f32,
            // |x̂−ŷ|² = 2 − 2cos, without the cancellation of 1 − cos.
            Metric::Cosine => (0.5 * key) as f32,
        }
    }

    /// The length in the space the tree works in: Euclidean for the first and last metric.
    #[inline]
    pub(crate) fn length(self, key: f64) -> f64 {
        match self {
            Metric::Manhattan => key,
            Metric::Euclidean | Metric::Cosine => key.sqrt(),
        }
    }

    /// A key that no distance up to `radius` exceeds, and one that no larger distance reaches. Between the two
    /// lies the rounding of `distance`.
    pub(crate) fn keys_around(self, radius: f32) -> (f64, f64) {
        let key = |r: f64| match self {
            Metric::Euclidean => r * r,
            Metric::Manhattan => r,
            Metric::Cosine => 2.0 * r,
        };
        let r = f64::from(radius);
        (key(r * (1.0 + 1e-6) + 1e-44), if r > 1e-37 { key(r * (1.0 - 1e-6)) } else { f64::NEG_INFINITY })
    }
}

/// Inverse lengths of the two vectors; only cosine reads them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scales {
    pub(crate) query: f64,
    pub(crate) row: f64,
}

impl Scales {
    pub(crate) const ONE: Scales = Scales { query: 1.0, row: 1.0 };
}

/// 1/|x|, infinite for a zero vector.
pub(crate) fn inverse_length(x: &[f32]) -> f64 {
    1.0 / sum(x, x, |a, _| square(f64::from(a))).sqrt()
}

#[inline(always)]
fn square(x: f64) -> f64 {
    x * x
}

/// Sum over columns with eight partial sums. Rust never fuses or reorders floating-point operations, so
/// this gives the same bits whichever instructions it is compiled to.
#[inline(always)]
fn sum(a: &[f32], b: &[f32], f: impl Fn(f32, f32) -> f64) -> f64 {
    let mut part = [0f64; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    for ((p, &x), &y) in part.iter_mut().zip(a8.remainder()).zip(b8.remainder()) {
        *p += f(x, y);
    }
    for (x, y) in a8.zip(b8) {
        for i in 0..8 {
            part[i] += f(x[i], y[i]);
        }
    }
    ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_match_the_textbook() {
        let (x, y) = ([3.0f32, 0.0, 1.0], [0.0f32, 4.0, 1.0]);
        assert_eq!(Metric::Euclidean.distance(Metric::Euclidean.key(&x, &y, Scales::ONE)), 5.0);
        assert_eq!(Metric::Manhattan.distance(Metric::Manhattan.key(&x, &y, Scales::ONE)), 7.0);
        let s = Scales { query: inverse_length(&x), row: inverse_length(&y) };
        let cos = 1.0 / (10f64.sqrt() * 17f64.sqrt());
        assert!(
            (f64::from(Metric::Cosine.distance(Metric::Cosine.key(&x, &y, s))) - (1.0 - cos)).abs() < 1e-7
        );
    }

    #[test]
    fn neither_overflow_nor_underflow_spoils_a_distance() {
        let (x, y) = ([f32::MAX, 0.0], [f32::MAX / 2.0, 0.0]);
        assert_eq!(Metric::Euclidean.distance(Metric::Euclidean.key(&x, &y, Scales::ONE)), f32::MAX / 2.0);
        let (x, y) = ([1e-45f32, 0.0], [0.0f32, 0.0]);
        assert_eq!(Metric::Euclidean.distance(Metric::Euclidean.key(&x, &y, Scales::ONE)), 1e-45);
    }

    #[test]
    fn codes_round_trip() {
        for m in [Metric::Euclidean, Metric::Manhattan, Metric::Cosine] {
            assert_eq!(Metric::from_code(m.code()), Some(m));
        }
        assert_eq!(Metric::from_code(9), None);
    }
}
