//! HDF5 files may say that their data lie in other files: external storage, virtual datasets, external links. A stranger's file
//! must not choose which other files are read, or a pipe to wait for, so all three are refused.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use memchr::memmem::Finder;
use rust_hdf5::format::FormatContext;
use rust_hdf5::format::global_heap::GlobalHeapCollection;
use rust_hdf5::format::messages::virtual_mapping::VirtualMappingList;
use rust_hdf5::{H5Dataset, StorageLayout};

use super::super::messages::{damaged, escaped};
use crate::error::{Error, Result};

/// Bytes looked at at once: few enough to stay in the cache.
const BLOCK: usize = 1 << 17;

/// Refuses a dataset whose data are not in its file.
pub(super) fn check_inside(path: &Path, key: &str, set: &H5Dataset) -> Result<()> {
    let external = set.external_files().is_ok_and(|files| files.is_empty());
    let layout = set.storage_layout();
    match (external, layout) {
        (false, _) => Err(elsewhere(path, key, "external storage")),
        (_, Ok(StorageLayout::Compact | StorageLayout::Contiguous | StorageLayout::Chunked)) => Ok(()),
        _ => Err(elsewhere(path, key, "a virtual dataset")),
    }
}

/// The error about data in other files.
pub(super) fn elsewhere(path: &Path, key: &str, found: &str) -> Error {
    let (wanted, hint) = ("data inside this file", "copy the data into one file, as h5py or h5repack do");
    Error::key(path, escaped(key), wanted, format!("{found}, which reads other files"), hint)
}

/// Refuses a file with virtual datasets before `rust-hdf5` opens it: opening already opens their sources, and a pipe among
/// them would be waited for. Their lists lie in global heaps, each with a checksum, so nothing else is taken for one.
pub(super) fn check_no_virtual(path: &Path) -> Result<()> {
    let io = |e| Error::io(path, "read", e);
    let mut file = File::open(path).map_err(io)?;
    // Heaps do not overlap; a file in which they do could keep a reader busy for hours.
    let mut budget = 2 * file.metadata().map_err(io)?.len();
    let (heap, mut block, mut kept) = (Finder::new(b"GCOL"), vec![0; BLOCK], 0);
    let mut start = 0u64;
    loop {
        let read = file.read(&mut block[kept..]).map_err(io)?;
        let filled = kept + read;
        for at in heap.find_iter(&block[..filled]) {
            if holds_virtual(path, start + at as u64, &mut budget)? {
                return Err(elsewhere(path, "virtual dataset", "one"));
            }
        }
        if read == 0 {
            return Ok(());
        }
        // A signature may lie across two blocks.
        kept = filled.min(3);
        block.copy_within(filled - kept..filled, 0);
        start += (filled - kept) as u64;
    }
}

/// Whether the collection at this place holds the list of a virtual dataset.
fn holds_virtual(path: &Path, at: u64, budget: &mut u64) -> Result<bool> {
    let io = |e| Error::io(path, "read", e);
    let mut file = File::open(path).map_err(io)?;
    let rest = file.metadata().map_err(io)?.len().saturating_sub(at);
    file.seek(SeekFrom::Start(at)).map_err(io)?;
    let mut bytes = Vec::new();
    Read::by_ref(&mut file).take(16).read_to_end(&mut bytes).map_err(io)?;
    let Some(length) = bytes.get(8..16).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes) else {
        return Ok(false);
    };
    if bytes[4] != 1 || !(16..=rest).contains(&length) {
        return Ok(false);
    }
    *budget =
        budget.checked_sub(length).ok_or_else(|| damaged(path, "HDF5 file", "heaps inside each other"))?;
    file.take(length - 16).read_to_end(&mut bytes).map_err(io)?;
    let context = FormatContext::default_v3();
    let Ok((heap, _)) = GlobalHeapCollection::decode(&bytes, &context) else { return Ok(false) };
    let is_list =
        |data: &[u8]| VirtualMappingList::decode(data, &context).is_ok_and(|list| !list.mappings.is_empty());
    Ok(heap.objects.iter().any(|object| is_list(&object.data)))
}
