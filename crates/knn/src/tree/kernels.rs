//! What the walk asks of the processor, and which answer it gets.

use super::layout::{FAN, Line};

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

    /// Asks for data that will be read soon.
    fn prefetch<T>(data: &[T]);
}

/// Which inner loops an index runs. The choice never changes a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Path {
    /// AVX2 when the processor has it, else plain Rust.
    #[default]
    Auto,
    /// Plain Rust, everywhere.
    Portable,
}

impl Path {
    /// Whether the AVX2 loops will run.
    pub fn uses_avx2(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self == Path::Auto && std::arch::is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        false
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::kernels_avx2::Avx2;
    use super::super::kernels_portable::Portable;
    use super::*;
    use proptest::prelude::*;

    fn lines(count: usize) -> impl Strategy<Value = Vec<Line>> {
        prop::collection::vec(prop::array::uniform16(0u16..11_000).prop_map(Line), count)
    }

    proptest! {
        #[test]
        fn avx2_and_portable_give_the_same_numbers(
            node in lines(16),
            q in prop::collection::vec([0u16..11_000, 0u16..11_000], 1..=8),
            limit in any::<i32>(),
        ) {
            if Path::Auto.uses_avx2() {
                let q: Vec<[u16; 2]> = q;
                let node = &node[..2 * q.len()];
                // SAFETY: AVX2 was detected; `node` has two lines for each pair.
                unsafe {
                    let boxes = Avx2::boxes::<false>(node, &q);
                    prop_assert_eq!(boxes, Portable::boxes::<false>(node, &q));
                    prop_assert_eq!(Avx2::boxes::<true>(node, &q), Portable::boxes::<true>(node, &q));
                    prop_assert_eq!(Avx2::rows::<false>(node, &q), Portable::rows::<false>(node, &q));
                    prop_assert_eq!(Avx2::rows::<true>(node, &q), Portable::rows::<true>(node, &q));
                    prop_assert_eq!(Avx2::at_most(&boxes, limit), Portable::at_most(&boxes, limit));
                }
            }
        }
    }
}
