//! Index files: one header, then every array as it lies in memory, so that loading is one read.
//!
//! The header holds the sizes from which every offset follows, the length of the file and a checksum over all of it. The
//! file is read, not mapped: another process that cuts or overwrites it in place can then neither end this one nor change
//! its answers, and what the checksum was taken of is what is searched.
//!
//! ```
//! use ndarray::array;
//! use offing_knn::{NeighborIndex, Tree, TreeConfig};
//! let dir = tempfile::tempdir()?;
//! let file = dir.path().join("rows.knn");
//! let cfg = TreeConfig::default();
//! let index = Tree::new(&cfg, array![[0.0, 0.0], [3.0, 4.0]].view())?;
//! index.save(&file)?;
//! let again = Tree::load(&cfg, &file)?;
//! assert_eq!(again.search_self(1)?, index.search_self(1)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::tree::layout::{Layout, Line, MAX_LEAF_PAIRS, MAX_NODE_PAIRS};
use crate::tree::project::Projection;
use crate::tree::quantize::Grid;
use crate::tree::store::{Plain, Store, bytes_of, huge_pages};
use crate::tree::{Loops, Parts, Tree, TreeConfig};
use crate::{Error, Metric, NeighborIndex, Result, Threads};
use memmap2::Mmap;
use std::fs::{File, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// First bytes of every index file; the line ends reveal a transfer in text mode.
const MAGIC: [u8; 8] = *b"OFKNN\r\n\x1a";
const VERSION: u64 = 1;
/// Bytes of the header; every array starts at a multiple of [`ALIGN`].
const HEADER: usize = 192;
const ALIGN: usize = 64;
/// Words of the header after the magic: version, file length, checksum, then the sizes and the grid.
const WORDS: usize = HEADER / 8 - 1;

impl Tree {
    /// Writes the index to `file`, replacing what was there in one step.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn save(&self, file: &Path) -> Result<()> {
        let io = |source| Error::Io { path: file.to_path_buf(), source };
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let (part, out) = new_partial(file, &name).map_err(io)?;
        write_parts(&self.parts, out).and_then(|_locked| std::fs::rename(&part, file)).map_err(|e| {
            std::fs::remove_file(&part).ok();
            io(e)
        })?;
        // So that the new name outlasts a loss of power; not every file system can.
        #[cfg(unix)]
        if let Some(dir) = file.parent() {
            let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            File::open(dir).and_then(|dir| dir.sync_all()).ok();
        }
        Ok(())
    }

    /// Reads the index in `file`. The metric is the file's; `cfg.metric` must agree with it.
    ///
    /// # Errors
    /// As [`Tree::open`], and when the file holds an index for another metric. The message says which.
    pub fn load(cfg: &TreeConfig, file: &Path) -> Result<Tree> {
        let tree = Tree::read(file, cfg.threads, cfg.loops)?;
        if tree.metric() != cfg.metric {
            let why = format!("holds a {:?} index, but {:?} was asked for", tree.metric(), cfg.metric);
            return Err(Error::BadFile { path: file.to_path_buf(), why });
        }
        Ok(tree)
    }

    /// Reads the index in `file`, whatever its metric.
    ///
    /// # Errors
    /// When the file cannot be read, is no index, was written by another version, or is cut short or damaged.
    pub fn open(file: &Path, threads: Threads) -> Result<Tree> {
        Tree::read(file, threads, TreeConfig::default().loops)
    }

    fn read(file: &Path, threads: Threads, loops: Loops) -> Result<Tree> {
        let io = |source| Error::Io { path: file.to_path_buf(), source };
        let bad = |why| Error::BadFile { path: file.to_path_buf(), why };
        let mut opened = File::open(file).map_err(io)?;
        let length = opened.metadata().map_err(io)?.len();
        let mut head = Vec::new();
        Read::by_ref(&mut opened).take(HEADER as u64).read_to_end(&mut head).map_err(io)?;
        check_head(&head, length).map_err(bad)?;
        // The header agrees with the file about its length, so this is no larger than what is on the disk.
        let length = usize::try_from(length).map_err(|_| bad("larger than this machine's memory".into()))?;
        let mut bytes = huge_pages(length).map_err(io)?;
        bytes[..HEADER].copy_from_slice(&head);
        opened.read_exact(&mut bytes[HEADER..]).map_err(io)?;
        let parts = read_parts(Arc::new(bytes.make_read_only().map_err(io)?)).map_err(bad)?;
        Tree::from_parts(parts, threads, loops)
    }
}

/// Creates a temporary neighbour of `file`. Nobody can foresee its name, since the keys of hash maps are random, and it is
/// new: no link is followed. It is locked, so that others can tell it from what a killed process left.
fn new_partial(file: &Path, name: &str) -> std::io::Result<(PathBuf, File)> {
    loop {
        let random = RandomState::new().build_hasher().finish();
        let path = file.with_file_name(format!(".{name}.{random:016x}.partial"));
        let mut options = File::options();
        // Whatever the umask: nobody else shall change an index.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o644);
        let out = options.write(true).create_new(true).open(&path)?;
        let taken = matches!(out.try_lock(), Err(TryLockError::WouldBlock));
        // Whoever removes what was left may have come before the lock.
        if !taken && path.exists() {
            return Ok((path, out));
        }
    }
}

fn write_parts(parts: &Parts, file: File) -> std::io::Result<File> {
    let p = &parts.projection;
    let sections: [&[u8]; 9] = [
        bytes_of(&p.center),
        bytes_of(&p.matrix),
        bytes_of(&parts.grid.low),
        bytes_of(&parts.grid.high),
        bytes_of(&parts.rows),
        bytes_of(&parts.ids),
        bytes_of(&parts.inverse),
        bytes_of(&parts.blocks),
        bytes_of(&parts.nodes),
    ];
    let length = HEADER + sections.iter().map(|s| s.len().next_multiple_of(ALIGN)).sum::<usize>();
    let l = &parts.layout;
    let sizes = [
        u64::from(parts.metric.code()),
        l.rows as u64,
        l.tame as u64,
        l.dim as u64,
        p.axes as u64,
        p.node_axes as u64,
    ];
    let grid = [parts.grid.step, parts.grid.row_error[0], parts.grid.row_error[1]].map(f64::to_bits);
    let mut words = [0u64; WORDS];
    words[0] = VERSION;
    words[1] = length as u64;
    words[3..9].copy_from_slice(&sizes);
    words[9..12].copy_from_slice(&grid);
    let mut sum = Checksum::new();
    sum.header(&words);
    for s in &sections {
        padded(s, |bytes| {
            sum.add(bytes);
            Ok(())
        })?;
    }
    words[2] = sum.value();
    let mut out = BufWriter::with_capacity(1 << 20, file);
    out.write_all(&MAGIC)?;
    for w in words {
        out.write_all(&w.to_le_bytes())?;
    }
    for s in &sections {
        padded(s, |bytes| out.write_all(bytes))?;
    }
    let file = out.into_inner()?;
    file.sync_all()?;
    Ok(file)
}

/// Hands on `bytes` and zeros up to the next multiple of [`ALIGN`].
fn padded(bytes: &[u8], mut f: impl FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let whole = bytes.len() / ALIGN * ALIGN;
    f(&bytes[..whole])?;
    if whole < bytes.len() {
        let mut tail = [0u8; ALIGN];
        tail[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
        f(&tail)?;
    }
    Ok(())
}

type Checked<T> = std::result::Result<T, String>;

fn read_parts(map: Arc<Mmap>) -> Checked<Parts> {
    if cfg!(target_endian = "big") {
        return Err("index files are little-endian and this machine is not; build the index here".into());
    }
    let words = read_header(&map)?;
    let metric = u32::try_from(words[3])
        .ok()
        .and_then(Metric::from_code)
        .ok_or("unknown metric; rebuild the index")?;
    let bad = || String::from("its header contradicts itself; rebuild the index");
    let size = |i: usize| usize::try_from(words[i]).map_err(|_| bad());
    let (rows, tame, dim, axes, node_axes) = (size(4)?, size(5)?, size(6)?, size(7)?, size(8)?);
    let sane = rows > 0
        && rows <= crate::MAX_ROWS
        && tame <= rows
        && dim > 0
        && axes > 0
        && axes <= dim
        && node_axes <= axes
        && node_axes > 0;
    if !sane {
        return Err(bad());
    }
    let mut p = Projection { metric, dim, axes, node_axes, center: Vec::new(), matrix: Vec::new() };
    if p.lanes(false) > 2 * MAX_LEAF_PAIRS || p.lanes(true) > 2 * MAX_NODE_PAIRS {
        return Err(bad());
    }
    let layout = Layout::new(tame, rows, dim, p.lanes(false).div_ceil(2), p.lanes(true).div_ceil(2));
    let mut at = Cursor { map: &map, next: HEADER };
    let product = |a: usize, b: usize| a.checked_mul(b).ok_or_else(bad);
    p.center = at.take::<f64>(dim)?.to_vec();
    p.matrix = at.take::<f64>(product(dim, axes)?)?.to_vec();
    let low = at.take::<f64>(Grid::lanes(&p))?.to_vec();
    let high = at.take::<f64>(Grid::lanes(&p))?.to_vec();
    let step = f64::from_bits(words[9]);
    let row_error = [f64::from_bits(words[10]), f64::from_bits(words[11])];
    let numbers = || p.center.iter().chain(&p.matrix).chain(&low).chain(&high).chain(&row_error);
    let ordered = low.iter().zip(&high).all(|(low, high)| low <= high);
    if !(step > 0.0 && step.is_finite() && ordered && numbers().all(|x| x.is_finite())) {
        return Err(bad());
    }
    let parts = Parts {
        metric,
        rows: at.take(product(rows, dim)?)?,
        ids: at.take(rows)?,
        inverse: at.take(if metric == Metric::Cosine { rows } else { 0 })?,
        blocks: at.take::<Line>(layout.block_lines())?,
        nodes: at.take::<Line>(layout.node_lines())?,
        layout,
        projection: p,
        grid: Grid { low, high, step, row_error },
    };
    if at.next != map.len() || !is_permutation(&parts.ids) {
        return Err(bad());
    }
    Ok(parts)
}

/// Checks what the first bytes of a file of `length` bytes say, before anything else is read: magic, version, length.
fn check_head(head: &[u8], length: u64) -> Checked<[u64; WORDS]> {
    let advice = "it is no index of offing-knn";
    if head.len() < MAGIC.len() || head[..8] != MAGIC {
        return Err(format!(
            "{advice}: it starts with {:?}",
            String::from_utf8_lossy(&head[..head.len().min(8)])
        ));
    }
    if head.len() < HEADER {
        return Err(format!("cut short: {} bytes, less than a header; copy or build it again", head.len()));
    }
    let mut words = [0u64; WORDS];
    for (w, bytes) in words.iter_mut().zip(head[8..HEADER].chunks_exact(8)) {
        *w = u64::from_le_bytes(bytes.try_into().map_err(|_| String::from(advice))?);
    }
    if words[0] != VERSION {
        return Err(format!("index format {}, this version reads {VERSION}; rebuild the index", words[0]));
    }
    if words[1] != length {
        return Err(format!("{length} bytes, its header says {}; copy or build it again", words[1]));
    }
    Ok(words)
}

/// The header of a file that was read whole, once its checksum is right.
fn read_header(map: &Mmap) -> Checked<[u64; WORDS]> {
    let mut words = check_head(&map[..HEADER], map.len() as u64)?;
    let stored = std::mem::take(&mut words[2]);
    let mut sum = Checksum::new();
    sum.header(&words);
    if !map.len().is_multiple_of(ALIGN) {
        return Err("damaged: its length is odd; copy or build it again".into());
    }
    sum.add(&map[HEADER..]);
    if sum.value() != stored {
        return Err("damaged: its checksum does not match; copy or build it again".into());
    }
    Ok(words)
}

struct Cursor<'a> {
    map: &'a Arc<Mmap>,
    next: usize,
}

impl Cursor<'_> {
    fn take<T: Plain>(&mut self, len: usize) -> Checked<Store<T>> {
        let store = Store::mapped(self.map, self.next, len)
            .ok_or("its header asks for more bytes than it has; rebuild it")?;
        self.next += (len * size_of::<T>()).next_multiple_of(ALIGN);
        Ok(store)
    }
}

fn is_permutation(ids: &[u32]) -> bool {
    let mut seen = vec![false; ids.len()];
    ids.iter().all(|&id| seen.get_mut(id as usize).is_some_and(|s| !std::mem::replace(s, true)))
}

/// A fast 64-bit checksum over blocks of 32 bytes. Each step is a bijection of each lane, so any change within
/// one word is noticed for sure, and any other with probability 1 − 2⁻⁶⁴.
struct Checksum {
    lanes: [u64; 4],
    length: u64,
}

impl Checksum {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn new() -> Checksum {
        Checksum { lanes: [1, 2, 3, 4], length: 0 }
    }

    fn header(&mut self, words: &[u64; WORDS]) {
        let mut bytes = [0u8; HEADER];
        words.iter().zip(bytes.chunks_exact_mut(8)).for_each(|(w, b)| b.copy_from_slice(&w.to_le_bytes()));
        self.add(&bytes);
    }

    /// Takes in whole blocks.
    fn add(&mut self, bytes: &[u8]) {
        debug_assert_eq!(bytes.len() % 32, 0);
        self.length += bytes.len() as u64;
        for block in bytes.chunks_exact(32) {
            for (lane, word) in self.lanes.iter_mut().zip(block.chunks_exact(8)) {
                let word = word.iter().rev().fold(0u64, |w, b| (w << 8) | u64::from(*b));
                *lane = (*lane ^ word).wrapping_mul(Self::FACTOR).rotate_left(29);
            }
        }
    }

    fn value(&self) -> u64 {
        self.lanes.iter().fold(self.length, |h, lane| (h ^ lane).wrapping_mul(Self::FACTOR).rotate_left(31))
    }
}
