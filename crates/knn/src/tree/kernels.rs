//! What the walk asks of the processor, and which answer it gets.

use super::layout::{FAN, Line};

/// Nodes and leaves still to be looked at, with their distances.
///
/// A walk keeps at most seven siblings a level, of at most twelve levels, and a push writes eight at once.
#[derive(Debug, Clone)]
pub(crate) struct Stack {
    pub(crate) len: usize,
    pub(crate) distances: [i32; Stack::ROOM],
    pub(crate) numbers: [u32; Stack::ROOM],
}

impl Stack {
    pub(crate) const ROOM: usize = 7 * 12 + 2 * FAN;

    pub(crate) fn new() -> Stack {
        Stack { len: 0, distances: [0; Stack::ROOM], numbers: [0; Stack::ROOM] }
    }
}

/// Lower bounds of eight boxes or distances of eight rows at once, in quantised units.
///
/// Values stay below 2¹⁵ in every lane and their squares sum to less than 2³¹ (see `quantize.rs`), so no
/// implementation can overflow and all give the same numbers.
pub(crate) trait Kernel: Copy {
    /// Distance (sum of gaps, or of squared gaps) from the query to each of eight boxes.
    ///
    /// # Safety
    /// The processor must have the features of the implementation, and `node` two lines for each pair.
    unsafe fn boxes<const L1: bool>(node: &[Line], query: &[[u16; 2]]) -> [i32; FAN];

    /// Distance from the query to each of eight rows.
    ///
    /// # Safety
    /// As for `boxes`, with one line for each pair.
    unsafe fn rows<const L1: bool>(block: &[Line], query: &[[u16; 2]]) -> [i32; FAN];

    /// Bit i is set when value i is at most `limit`.
    ///
    /// # Safety
    /// The processor must have the features of the implementation.
    unsafe fn at_most(values: &[i32; FAN], limit: i32) -> u32;

    /// The set bit of `mask` whose value is (nearly) the smallest; all those values are at most `limit`.
    ///
    /// # Safety
    /// As for `at_most`. `mask` must have a bit set.
    unsafe fn nearest(values: &[i32; FAN], mask: u32, limit: i32) -> u32;

    /// Appends value i and number `base + i` for every set bit i of `mask`.
    ///
    /// # Safety
    /// As for `at_most`.
    unsafe fn push(stack: &mut Stack, values: &[i32; FAN], base: u32, mask: u32);

    /// Writes `item` to the end of every list and lengthens those of the values that are at most `limit`: no
    /// branch to guess wrong.
    ///
    /// # Safety
    /// As for `at_most`. Every list must be longer than its entry in `lens`.
    unsafe fn hand_out(
        lists: &[*mut u16; FAN],
        lens: &mut [u32; FAN],
        values: &[i32; FAN],
        limit: i32,
        item: u16,
    );

    /// Asks for data that will be read soon.
    fn prefetch<T>(data: &[T]);
}

/// Which inner loops an index runs. The choice never changes a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Loops {
    /// The widest that the processor has: AVX-512, AVX2 or plain Rust.
    #[default]
    Auto,
    /// AVX2 when the processor has it, else plain Rust.
    Avx2,
    /// Plain Rust, everywhere.
    Portable,
}

/// The loops that will run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Width {
    Portable,
    /// The processor has AVX2, BMI and POPCNT.
    Avx2,
    /// … and AVX-512 (F, BW, VL, VNNI).
    Avx512,
}

impl Loops {
    /// What runs on this processor, by name.
    pub fn name(self) -> &'static str {
        match self.width() {
            Width::Portable => "plain Rust",
            Width::Avx2 => "AVX2",
            Width::Avx512 => "AVX-512",
        }
    }

    pub(crate) fn width(self) -> Width {
        match self {
            Loops::Auto => widest(),
            Loops::Avx2 => widest().min(Width::Avx2),
            Loops::Portable => Width::Portable,
        }
    }
}

/// The widest loops this processor can run.
fn widest() -> Width {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx2") && has!("bmi1") && has!("bmi2") && has!("popcnt") {
            let wide = has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512vnni");
            return if wide { Width::Avx512 } else { Width::Avx2 };
        }
    }
    Width::Portable
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use super::super::kernels_avx2::Avx2;
    use super::super::kernels_avx512::Avx512;
    use super::super::kernels_portable::Portable;
    use super::*;
    use proptest::prelude::*;

    fn lines(count: usize) -> impl Strategy<Value = Vec<Line>> {
        prop::collection::vec(prop::array::uniform16(0u16..8_000).prop_map(Line), count)
    }

    /// # Safety
    /// The processor must have what `K` needs; `node` must have two lines for each pair of `q`.
    unsafe fn check<K: Kernel>(node: &[Line], q: &[[u16; 2]], limit: i32) -> Result<(), TestCaseError> {
        // SAFETY: as the caller promises.
        unsafe {
            let boxes = K::boxes::<false>(node, q);
            prop_assert_eq!(boxes, Portable::boxes::<false>(node, q));
            prop_assert_eq!(K::boxes::<true>(node, q), Portable::boxes::<true>(node, q));
            prop_assert_eq!(K::rows::<false>(node, q), Portable::rows::<false>(node, q));
            prop_assert_eq!(K::rows::<true>(node, q), Portable::rows::<true>(node, q));
            let mask = K::at_most(&boxes, limit);
            prop_assert_eq!(mask, Portable::at_most(&boxes, limit));
            let (mut a, mut b) = (Stack::new(), Stack::new());
            K::push(&mut a, &boxes, 40, mask);
            Portable::push(&mut b, &boxes, 40, mask);
            prop_assert_eq!(a.len, b.len);
            prop_assert_eq!(&a.distances[..a.len], &b.distances[..b.len]);
            prop_assert_eq!(&a.numbers[..a.len], &b.numbers[..b.len]);
            if mask != 0 {
                // The vector kernels' choice compares the leading 16 bits only.
                let (x, y) = (K::nearest(&boxes, mask, limit), Portable::nearest(&boxes, mask, limit));
                let gap = boxes[x as usize] - boxes[y as usize];
                prop_assert!(mask & (1 << x) != 0 && gap >= 0 && gap <= limit >> 14);
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn vector_kernels_and_portable_give_the_same_numbers(
            node in lines(32),
            q in prop::collection::vec([0u16..8_000, 0u16..8_000], 1..=16),
            limit in any::<i32>(),
        ) {
            // Boxes have at most eight pairs, rows sixteen.
            let few = &q[..q.len().min(8)];
            // SAFETY: the features were detected; there are two lines for each pair.
            unsafe {
                if widest() >= Width::Avx2 {
                    check::<Avx2>(&node[..2 * few.len()], few, limit)?;
                    prop_assert_eq!(Avx2::rows::<false>(&node, &q), Portable::rows::<false>(&node, &q));
                }
                if widest() >= Width::Avx512 {
                    check::<Avx512>(&node[..2 * few.len()], few, limit)?;
                    prop_assert_eq!(Avx512::rows::<false>(&node, &q), Portable::rows::<false>(&node, &q));
                    prop_assert_eq!(Avx512::rows::<true>(&node, &q), Portable::rows::<true>(&node, &q));
                }
            }
        }
    }
}
