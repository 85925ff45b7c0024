//! Compressed matrices in chunks that are narrower than a row, as h5py cuts them unless told otherwise: a column each, or
//! a few. `rust-hdf5` puts such chunks in place number by number, which takes longer than unpacking them.
//!
//! Only what h5py writes by default is read here: groups with symbol tables, chunks listed in a version-1 B-tree. For
//! anything else, and at the first sign of damage, the answer is `None`: `rust-hdf5` then reads it or says what is wrong.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use rust_hdf5::format::FormatContext;
use rust_hdf5::format::btree_v1::{BTreeV1Config, BTreeV1Node, ChunkBTreeV1Node};
use rust_hdf5::format::local_heap::{LocalHeapHeader, local_heap_get_string};
use rust_hdf5::format::messages::MSG_DATA_LAYOUT;
use rust_hdf5::format::messages::data_layout::DataLayoutMessage;
use rust_hdf5::format::messages::filter::reverse_filters_masked_into;
use rust_hdf5::format::object_header::ObjectHeader;
use rust_hdf5::format::superblock::{SuperblockV0V1, SymbolTableEntry};
use rust_hdf5::format::symbol_table::SymbolTableNode;
use rust_hdf5::{FilterPipeline, H5Dataset};

use super::super::memory::zeroed;

/// Bytes of an address or a length.
const WORD: usize = 8;

/// No header or list of names that a writer makes is longer.
const LONGEST: u64 = 1 << 16;

/// Nodes of a tree of names that are looked at; datasets have a dozen names.
const MOST_NODES: usize = 1000;

/// Rows put in place at a time, few enough to stay in the fastest cache.
const ROWS: usize = 16;

/// The elements of the matrix at `key`, if they lie in narrow chunks. `decode` makes one of its little-endian bytes.
pub(super) fn read_tiles<T: Copy + Default, const N: usize>(
    path: &Path,
    key: &str,
    set: &H5Dataset,
    decode: fn([u8; N]) -> T,
) -> Option<Vec<T>> {
    let (&[rows, width], &[height, across]) = (set.shape().as_slice(), set.chunk_dims()?.as_slice()) else {
        return None;
    };
    let pipeline = FilterPipeline { filters: set.filters().ok()? };
    if pipeline.filters.is_empty() || height == 0 || height > rows || across == 0 || across >= width {
        return None;
    }
    let (down, beside) = (rows.div_ceil(height), width.div_ceil(across));
    let mut file = TileFile::open(path)?;
    let tiles = file.tiles(key, [height, across], [down, beside])?;
    let tile_bytes = height * across * N;
    let (mut values, mut unpacked) = (zeroed::<T>(rows * width)?, zeroed::<u8>(tile_bytes * beside)?);
    let mut packed = Vec::new();
    for (band, tiles) in values.chunks_mut(height * width).zip(tiles.chunks(beside)) {
        for (tile, image) in tiles.iter().zip(unpacked.chunks_exact_mut(tile_bytes)) {
            file.read(tile.at, tile.bytes.into(), &mut packed)?;
            if packed.len() as u64 != u64::from(tile.bytes) {
                return None;
            }
            reverse_filters_masked_into(&pipeline, &packed, tile.mask, image).ok()?;
        }
        for (i, part) in band.chunks_mut(ROWS * width).enumerate() {
            for (j, image) in unpacked.chunks_exact(tile_bytes).enumerate() {
                let image = &image.as_chunks::<N>().0[i * ROWS * across..];
                for (row, from) in part.chunks_exact_mut(width).zip(image.chunks_exact(across)) {
                    // The last chunk may reach beyond the row.
                    row[j * across..].iter_mut().zip(from).for_each(|(to, &bytes)| *to = decode(bytes));
                }
            }
        }
    }
    Some(values)
}

/// Where a packed chunk lies.
#[derive(Clone, Copy)]
struct Tile {
    at: u64,
    bytes: u32,
    /// Which filters were left out.
    mask: u32,
}

/// A file whose chunks are to be found.
struct TileFile {
    file: File,
    root: SymbolTableEntry,
    sizes: BTreeV1Config,
}

impl TileFile {
    fn open(path: &Path) -> Option<Self> {
        let mut file = File::open(path).ok()?;
        let mut head = Vec::new();
        Read::by_ref(&mut file).take(1024).read_to_end(&mut head).ok()?;
        let head = SuperblockV0V1::decode(&head).ok()?;
        if head.base_address != 0 || [head.sizeof_offsets, head.sizeof_lengths] != [WORD as u8; 2] {
            return None;
        }
        let usual = BTreeV1Config::default();
        let sizes = BTreeV1Config {
            sym_leaf_k: head.sym_leaf_k,
            snode_internal_k: head.btree_internal_k,
            chunk_internal_k: head.indexed_storage_k.unwrap_or(usual.chunk_internal_k),
        };
        Some(Self { file, root: head.root_symbol_table_entry, sizes })
    }

    /// Up to `length` bytes from `at`.
    fn read(&mut self, at: u64, length: u64, bytes: &mut Vec<u8>) -> Option<()> {
        bytes.clear();
        self.file.seek(SeekFrom::Start(at)).ok()?;
        Read::by_ref(&mut self.file).take(length).read_to_end(bytes).ok()?;
        Some(())
    }

    fn bytes(&mut self, at: u64, length: u64) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(at, length, &mut bytes)?;
        Some(bytes)
    }

    /// The chunks of the matrix at `key` row by row: of this height and width, so many down and beside each other, every
    /// one exactly once.
    fn tiles(&mut self, key: &str, chunk: [usize; 2], [down, beside]: [usize; 2]) -> Option<Vec<Tile>> {
        let entry = key.split('/').try_fold(self.root.clone(), |group, name| self.entry(&group, name))?;
        let (header, _) = ObjectHeader::decode_v1(&self.bytes(entry.obj_header_addr, LONGEST)?).ok()?;
        let layout = header.messages.iter().find(|m| m.msg_type == MSG_DATA_LAYOUT && m.flags & 2 == 0)?;
        let layout = DataLayoutMessage::decode(&layout.data, &FormatContext::default_v3()).ok()?.0;
        let DataLayoutMessage::ChunkedV3 { b_tree_address, .. } = layout else { return None };

        let (count, mut leaves) = (down * beside, Vec::new());
        let mut nodes = vec![b_tree_address];
        let size = self.sizes.chunk_btree_node_size(WORD, chunk.len());
        // A tree in which every node has something below it has fewer nodes than this; one that goes in circles has more.
        for _ in 0..2 * count {
            let Some(at) = nodes.pop() else { break };
            let bytes = self.bytes(at, size as u64)?;
            let most = self.sizes.chunk_max_entries();
            let node = ChunkBTreeV1Node::decode(&bytes, WORD, chunk.len(), most).ok()?;
            match node.level {
                0 => leaves.extend(node.keys.into_iter().zip(node.children)),
                _ => nodes.extend(node.children),
            }
            if nodes.len() + leaves.len() > count {
                return None;
            }
        }
        if leaves.len() != count {
            return None;
        }
        let mut found = vec![None; count];
        for (key, at) in leaves {
            let (&[row, column, _], [height, across]) = (key.offsets.as_slice(), chunk) else { return None };
            let (row, column) = (usize::try_from(row).ok()?, usize::try_from(column).ok()?);
            if row % height != 0 || column % across != 0 || column / across >= beside {
                return None;
            }
            let place = found.get_mut((row / height).checked_mul(beside)? + column / across)?;
            let tile = Tile { at, bytes: key.chunk_size, mask: key.filter_mask };
            if place.replace(tile).is_some() {
                return None;
            }
        }
        found.into_iter().collect()
    }

    /// The object of that name in a group.
    fn entry(&mut self, group: &SymbolTableEntry, name: &str) -> Option<SymbolTableEntry> {
        let (tree, heap) = group.cached_symbol_table()?;
        let heap = LocalHeapHeader::decode(&self.bytes(heap, 64)?, WORD, WORD).ok()?;
        let names = self.bytes(heap.data_addr, heap.data_size.min(LONGEST))?;
        let sizes = self.sizes;
        let mut nodes = vec![tree];
        for _ in 0..MOST_NODES {
            let bytes = self.bytes(nodes.pop()?, sizes.snode_btree_node_size(WORD, WORD) as u64)?;
            let node = BTreeV1Node::decode(&bytes, WORD, WORD, sizes.snode_max_entries()).ok()?;
            if node.level > 0 {
                nodes.extend(node.children);
                continue;
            }
            for at in node.children {
                let bytes = self.bytes(at, sizes.symbol_table_node_size(WORD, WORD) as u64)?;
                let node = SymbolTableNode::decode(&bytes, WORD, WORD, sizes.sym_leaf_max_entries()).ok()?;
                let is_it = |e: &SymbolTableEntry| {
                    local_heap_get_string(&names, e.name_offset).is_ok_and(|n| n == name)
                };
                if let Some(entry) = node.entries.into_iter().find(is_it) {
                    return Some(entry);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rust_hdf5::{DatatypeMessage, H5File, LibverBound};

    use super::*;

    const SHAPE: [usize; 2] = [103, 7];

    /// A matrix in chunks of that shape, as `read_tiles` and `rust-hdf5` read it.
    fn read(path: &Path) -> (Option<Vec<f32>>, Option<Vec<f32>>) {
        let file = H5File::options().no_locking().open(path).unwrap();
        let set = file.dataset("x").unwrap();
        (read_tiles(path, "x", &set, f32::from_le_bytes), set.read_raw().ok())
    }

    fn write(path: &Path, chunk: [usize; 2], libver: LibverBound) -> Vec<f32> {
        let values: Vec<f32> = (0..SHAPE[0] * SHAPE[1]).map(|i| i as f32 / 8.0).collect();
        let file = H5File::options().no_locking().libver(libver).create(path).unwrap();
        for name in ["w", "x", "y"] {
            let set = file.new_dataset::<f32>().shape(SHAPE).chunk(&chunk).shuffle_deflate(2);
            let other: Vec<f32> = values.iter().map(|v| if name == "x" { *v } else { -v }).collect();
            set.create(name).unwrap().write_raw(&other).unwrap();
        }
        file.close().unwrap();
        values
    }

    #[test]
    fn narrow_chunks_are_put_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.hdf5");
        for (chunk, libver, quick) in [
            ([20, 1], LibverBound::Earliest, true),
            ([1, 2], LibverBound::Earliest, true),
            ([103, 5], LibverBound::Earliest, true),
            ([20, 7], LibverBound::Earliest, false),
            ([20, 3], LibverBound::V110, false),
        ] {
            let values = write(&path, chunk, libver);
            let (tiles, whole) = read(&path);
            assert_eq!(whole.as_ref(), Some(&values));
            assert_eq!(tiles, quick.then_some(values), "{chunk:?} {libver:?}");
        }
    }

    #[test]
    fn whatever_is_damaged_is_left_to_the_library() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.hdf5");
        write(&path, [20, 3], LibverBound::Earliest);
        let (whole, good) = (std::fs::read(&path).unwrap(), read(&path).0);
        assert!(good.is_some());
        let mut refused = 0;
        for at in (0..whole.len()).step_by(29) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            std::fs::write(&path, bytes).unwrap();
            let Ok(file) = H5File::options().no_locking().open(&path) else { continue };
            let Ok(set) = file.dataset("x") else { continue };
            if !set.datatype().is_ok_and(|t| t == DatatypeMessage::f32_type()) {
                continue;
            }
            match read_tiles(&path, "x", &set, f32::from_le_bytes) {
                Some(values) => {
                    let whole = set.read_raw::<f32>();
                    assert!(whole.as_ref().is_ok_and(|w| *w == values), "byte {at}: {:?}", whole.err());
                }
                None => refused += 1,
            }
        }
        assert!(refused > 5, "{refused}");
        // A tree whose nodes lead to each other ends nowhere.
        let nodes = memchr::memmem::find_iter(&whole, b"TREE\x01").map(|at| at + 5).collect::<Vec<_>>();
        let mut bytes = whole.clone();
        for at in nodes {
            bytes[at] = 1;
            let own = (at as u64 - 5).to_le_bytes();
            // One entry, whose child is the node itself: after the header a key of 8 bytes and three offsets.
            bytes[at + 1..at + 3].copy_from_slice(&[1, 0]);
            bytes[at + 19 + 32..at + 19 + 40].copy_from_slice(&own);
        }
        std::fs::write(&path, bytes).unwrap();
        let file = H5File::options().no_locking().open(&path).unwrap();
        assert!(read_tiles(&path, "x", &file.dataset("x").unwrap(), f32::from_le_bytes).is_none());
    }
}
