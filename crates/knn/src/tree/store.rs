//! Arrays that are either owned or a window of memory that several arrays share (huge pages, a file that was read).

use memmap2::{Mmap, MmapMut};
use std::ops::Deref;
use std::sync::Arc;

/// Plain old data: any bytes are a valid value and there is no padding.
///
/// # Safety
/// Implementors must have both properties.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}

// SAFETY: numbers, and an array of numbers whose size (32) is a multiple of its alignment.
unsafe impl Plain for f32 {}
// SAFETY: as above.
unsafe impl Plain for f64 {}
// SAFETY: as above.
unsafe impl Plain for u32 {}
// SAFETY: as above.
unsafe impl Plain for super::layout::Line {}

/// A read-only array.
#[derive(Debug)]
pub(crate) enum Store<T> {
    Owned(Vec<T>),
    Mapped { map: Arc<Mmap>, start: usize, len: usize },
}

/// Arrays of at least this many bytes are kept in huge pages where the system has them: a search touches many
/// places, and the table of small pages would not fit the processor.
const HUGE: usize = 4 << 20;

impl<T: Plain> Store<T> {
    /// Makes room for `len` values and lets `fill` write them (they start as zeros).
    pub(crate) fn filled(len: usize, zero: T, fill: impl FnOnce(&mut [T])) -> Store<T> {
        if len * size_of::<T>() >= HUGE
            && let Ok(mut map) = huge_pages(len * size_of::<T>())
        {
            // SAFETY: the map is as long as `len` values, page-aligned, zeroed and ours alone; zeros are valid.
            fill(unsafe { std::slice::from_raw_parts_mut(map.as_mut_ptr().cast(), len) });
            let map = map.make_read_only().expect("a private map can be made read-only");
            return Store::mapped(&Arc::new(map), 0, len).expect("the map has this length and alignment");
        }
        let mut values = vec![zero; len];
        fill(&mut values);
        Store::Owned(values)
    }

    /// Keeps `values`, in huge pages if they are many.
    pub(crate) fn new(values: Vec<T>) -> Store<T> {
        match values.first() {
            Some(&zero) if size_of_val(&*values) >= HUGE => {
                Store::filled(values.len(), zero, |to| to.copy_from_slice(&values))
            }
            _ => Store::Owned(values),
        }
    }

    /// The `len` values that start at byte `start` of the memory, if they lie inside it and are aligned.
    pub(crate) fn mapped(map: &Arc<Mmap>, start: usize, len: usize) -> Option<Store<T>> {
        let end = len.checked_mul(size_of::<T>())?.checked_add(start)?;
        let aligned = (map.as_ptr() as usize).checked_add(start)?.is_multiple_of(align_of::<T>());
        (end <= map.len() && aligned).then(|| Store::Mapped { map: Arc::clone(map), start, len })
    }
}

/// Zeroed memory in huge pages where the system has them.
pub(crate) fn huge_pages(bytes: usize) -> std::io::Result<MmapMut> {
    let map = MmapMut::map_anon(bytes)?;
    #[cfg(target_os = "linux")]
    map.advise(memmap2::Advice::HugePage).ok();
    Ok(map)
}

impl<T: Plain> Deref for Store<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Store::Owned(v) => v,
            // SAFETY: `mapped` checked bounds and alignment, the type takes any bytes, and the map lives as
            // long as `self`. It is private memory, never a file: nobody else can change it.
            Store::Mapped { map, start, len } => unsafe {
                std::slice::from_raw_parts(map.as_ptr().add(*start).cast(), *len)
            },
        }
    }
}

/// The bytes of an array, for writing.
pub(crate) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: plain data has no padding, so every byte is initialised.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}
