//! Arrow IPC files (Feather version 2), as Minari's arrow storage has them: numbers, booleans, lists of them with one
//! length, and structures of these, uncompressed.
//!
//! The layout is fixed by Arrow's `File.fbs`, `Message.fbs` and `Schema.fbs`. The few tables needed are read here; every
//! offset is checked, and `None` stands for a file that points outside itself.

use std::path::Path;

use super::super::messages::{damaged, damaged_key, float16};
use super::arrays::{StoredArray, StoredValues};
use crate::error::{Error, Result, bad_file};

/// The first and last bytes of every file.
const MAGIC: &[u8] = b"ARROW1";

/// Structures inside structures, more than any space has.
const MAX_DEPTH: usize = 16;

/// An Arrow file in memory, with the place of its columns.
pub(super) struct ArrowFile<'a> {
    path: &'a Path,
    bytes: Vec<u8>,
    /// Record batches: where their message begins, and where their buffers do.
    batches: Vec<(usize, usize)>,
    columns: Vec<ArrowColumn>,
}

/// One column of numbers or lists.
struct ArrowColumn {
    /// The names on its way joined by `/`.
    key: String,
    kind: Kind,
    /// Entries of a list in each row; `None` for plain numbers.
    width: Option<usize>,
    /// Places of the entries in a batch's lists of nodes and buffers.
    node: usize,
    buffer: usize,
}

/// What the entries of a column are.
#[derive(Clone, Copy)]
enum Kind {
    Bool,
    Int {
        bits: i32,
        signed: bool,
    },
    Float {
        precision: i16,
    },
    /// Anything else: it can be left alone, but not read.
    Other,
}

impl<'a> ArrowFile<'a> {
    /// Reads the file and finds its columns.
    pub(super) fn open(path: &'a Path) -> Result<Self> {
        Self::parse(path, std::fs::read(path).map_err(|e| Error::io(path, "read", e))?)
    }

    /// Finds the columns of a file that has been read.
    pub(super) fn parse(path: &'a Path, bytes: Vec<u8>) -> Result<Self> {
        if !bytes.starts_with(MAGIC) || !bytes.ends_with(MAGIC) {
            return Err(bad_file!(
                path,
                "wanted an Arrow file, found another or a truncated one; get it again"
            ));
        }
        let mut file = Self { path, bytes, batches: Vec::new(), columns: Vec::new() };
        file.read_footer().ok_or_else(|| damaged(path, "Arrow file", "its footer makes no sense"))?;
        Ok(file)
    }

    /// The keys of the columns.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.key.as_str())
    }

    /// The column at `key`: (rows,) of numbers, (rows, width) of lists.
    pub(super) fn array<'k>(&self, key: &'k str) -> Result<StoredArray<'k>>
    where
        'a: 'k,
    {
        let Some(column) = self.columns.iter().find(|column| column.key == key) else {
            return Err(damaged_key(self.path, key, "this column in every file", "none"));
        };
        match column.kind {
            Kind::Float { precision: 0 } => return Err(float16(self.path, key)),
            Kind::Other => {
                return Err(damaged_key(self.path, key, "numbers or lists of one length", "others"));
            }
            _ => (),
        }
        let mut values = Vec::new();
        for &(message, body) in &self.batches {
            let batch = Batch::at(&self.bytes, message, body)
                .ok_or_else(|| damaged_key(self.path, key, "readable data", "a batch that makes no sense"))?;
            if batch.is_compressed {
                let hint = "write it without compression";
                return Err(Error::key(self.path, key, "uncompressed data", "compressed data", hint));
            }
            batch.append(column, &mut values).ok_or_else(|| {
                damaged_key(
                    self.path,
                    key,
                    "a value in every row",
                    "missing values, or data outside the file",
                )
            })?;
        }
        let shape = match column.width {
            Some(width) => vec![values.len() / width.max(1), width],
            None => vec![values.len()],
        };
        Ok(StoredArray { path: self.path, key, shape, values: StoredValues::F64(values) })
    }

    fn read_footer(&mut self) -> Option<()> {
        let end = self.bytes.len().checked_sub(MAGIC.len() + 4)?;
        let length = usize::try_from(int(&self.bytes, end)?).ok()?;
        let footer = Table::root(self.bytes.get(..end)?, end.checked_sub(length)?)?;
        let mut columns = Columns::default();
        for field in footer.table(1)?.tables(1)? {
            columns.add(&field?, "", 0)?;
        }
        let mut batches = Vec::new();
        for block in footer.structs(3, 24)? {
            let offset = usize::try_from(long(block, 0)?).ok()?;
            let body = offset.checked_add(usize::try_from(int(block, 8)?).ok()?)?;
            batches.push((offset, body));
        }
        (self.columns, self.batches) = (columns.found, batches);
        Some(())
    }
}

/// Counts nodes and buffers while it walks through the fields of a schema, depth first.
#[derive(Default)]
struct Columns {
    found: Vec<ArrowColumn>,
    nodes: usize,
    buffers: usize,
}

impl Columns {
    fn add(&mut self, field: &Table, above: &str, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        let key = format!("{above}{}", field.text(0)?);
        let (node, buffer) = (self.nodes, self.buffers);
        let kind = field.kind()?;
        let children: Vec<Table> = match field.tables(5) {
            Some(children) => children.collect::<Option<_>>()?,
            None => Vec::new(),
        };
        self.nodes += 1;
        const STRUCT: u8 = 13;
        const FIXED_SIZE_LIST: u8 = 16;
        match (field.byte(2)?, kind) {
            (STRUCT, _) => {
                self.buffers += 1;
                return children.iter().try_for_each(|child| self.add(child, &format!("{key}/"), depth + 1));
            }
            (FIXED_SIZE_LIST, _) => {
                self.buffers += 1;
                let width = usize::try_from(field.table(3)?.int(0)?).ok()?;
                let [item] = children.as_slice() else { return None };
                let first = self.found.len();
                self.add(item, "", depth + 1)?;
                // A list of structures or of lists is several columns or one with a width already.
                let kind = match self.found.get(first..) {
                    Some([inner]) if inner.width.is_none() => inner.kind,
                    _ => Kind::Other,
                };
                self.found.truncate(first);
                let column =
                    ArrowColumn { key, kind, width: Some(width), node: node + 1, buffer: buffer + 1 };
                self.found.push(column);
                return Some(());
            }
            (_, Kind::Other) => {
                self.buffers += buffers_of(field.byte(2)?)?;
                children.iter().try_for_each(|child| {
                    let known = self.found.len();
                    self.add(child, "", depth + 1)?;
                    self.found.truncate(known);
                    Some(())
                })?;
            }
            _ => self.buffers += 2,
        }
        self.found.push(ArrowColumn { key, kind, width: None, node, buffer });
        Some(())
    }
}

/// How many buffers a column of a type has that is not read itself; `None` for types with other rules.
fn buffers_of(kind: u8) -> Option<usize> {
    match kind {
        1 => Some(0),                // null
        4 | 5 | 19 | 20 => Some(3),  // binary and texts: validity, offsets, bytes
        7..=11 | 15 | 18 => Some(2), // decimals, times, fixed-size binary
        12 | 17 | 21 => Some(2),     // lists and maps: validity, offsets
        _ => None,
    }
}

/// One record batch.
struct Batch<'b> {
    bytes: &'b [u8],
    /// Where its buffers begin.
    body: usize,
    nodes: Vec<&'b [u8]>,
    buffers: Vec<&'b [u8]>,
    is_compressed: bool,
}

impl<'b> Batch<'b> {
    fn at(bytes: &'b [u8], message: usize, body: usize) -> Option<Self> {
        // Newer files have four bytes of ones before the length.
        let start =
            if int(bytes, message)? == -1 { message.checked_add(8)? } else { message.checked_add(4)? };
        let batch = Table::root(bytes, start)?.table(2)?;
        let nodes = batch.structs(1, 16)?.collect();
        let buffers = batch.structs(2, 16)?.collect();
        Some(Self { bytes, body, nodes, buffers, is_compressed: batch.table(3).is_some() })
    }

    /// Adds the entries of a column; `None` where one is missing.
    fn append(&self, column: &ArrowColumn, values: &mut Vec<f64>) -> Option<()> {
        let node = self.nodes.get(column.node)?;
        let (count, mut nulls) = (usize::try_from(long(node, 0)?).ok()?, long(node, 8)?);
        if column.width.is_some() {
            // A missing list has entries all the same: the node before theirs counts it.
            nulls |= long(self.nodes.get(column.node - 1)?, 8)?;
        }
        let buffer = self.buffers.get(column.buffer + 1)?;
        let start = self.body.checked_add(usize::try_from(long(buffer, 0)?).ok()?)?;
        let length = usize::try_from(long(buffer, 8)?).ok()?;
        let data = self.bytes.get(start..start.checked_add(length)?)?;
        if nulls != 0 {
            return None;
        }
        let fits = match column.kind {
            Kind::Bool => count.div_ceil(8) <= data.len(),
            Kind::Int { bits, .. } => count.checked_mul(bits as usize / 8)? <= data.len(),
            Kind::Float { precision } => count.checked_mul(4 * precision as usize)? <= data.len(),
            Kind::Other => false,
        };
        fits.then_some(())?;
        values.reserve(count);
        for i in 0..count {
            values.push(column.kind.decode(data, i)?);
        }
        Some(())
    }
}

impl Kind {
    fn decode(self, data: &[u8], i: usize) -> Option<f64> {
        let bytes = |size: usize| data.get(i * size..(i + 1) * size);
        Some(match self {
            Self::Bool => f64::from(data.get(i / 8)? >> (i % 8) & 1),
            Self::Float { precision: 1 } => f32::from_le_bytes(bytes(4)?.try_into().ok()?).into(),
            Self::Float { .. } => f64::from_le_bytes(bytes(8)?.try_into().ok()?),
            Self::Int { bits, signed } => {
                let mut word = [0u8; 8];
                let size = bits as usize / 8;
                word[..size].copy_from_slice(bytes(size)?);
                let unused = 64 - bits as u32;
                match signed {
                    true => (i64::from_le_bytes(word) << unused >> unused) as f64,
                    false => u64::from_le_bytes(word) as f64,
                }
            }
            Self::Other => return None,
        })
    }
}

/// A table of a flatbuffer: fields found through a list of offsets before it.
struct Table<'b> {
    buffer: &'b [u8],
    at: usize,
}

impl<'b> Table<'b> {
    /// The table that the first word of a flatbuffer points to.
    fn root(buffer: &'b [u8], start: usize) -> Option<Self> {
        Self { buffer, at: start }.target(start)
    }

    /// The place of a field; `None` when it is absent and so has its default.
    fn field(&self, number: usize) -> Option<usize> {
        let list = usize::try_from(self.at as i64 - i64::from(int(self.buffer, self.at)?)).ok()?;
        let (size, entry) = (short(self.buffer, list)? as usize, 4 + 2 * number);
        let offset =
            if entry + 2 > size { 0 } else { short(self.buffer, list.checked_add(entry)?)? as usize };
        (offset > 0).then(|| self.at + offset)
    }

    fn target(&self, at: usize) -> Option<Self> {
        let offset = int(self.buffer, at)? as u32 as usize;
        Some(Self { buffer: self.buffer, at: at.checked_add(offset)? })
    }

    fn byte(&self, number: usize) -> Option<u8> {
        self.buffer.get(self.field(number)?).copied()
    }

    fn int(&self, number: usize) -> Option<i32> {
        int(self.buffer, self.field(number)?)
    }

    fn table(&self, number: usize) -> Option<Self> {
        self.target(self.field(number)?)
    }

    /// The elements of a list: where it begins and how many there are, all inside the buffer.
    fn list(&self, number: usize, size: usize) -> Option<(usize, usize)> {
        let start = self.table(number)?.at;
        let count = usize::try_from(int(self.buffer, start)?).ok()?;
        let end = start.checked_add(4)?.checked_add(count.checked_mul(size)?)?;
        (end <= self.buffer.len()).then_some((start + 4, count))
    }

    fn structs(&self, number: usize, size: usize) -> Option<impl Iterator<Item = &'b [u8]> + use<'b>> {
        let (start, count) = self.list(number, size)?;
        Some(self.buffer.get(start..start + count * size)?.chunks_exact(size))
    }

    fn tables(&self, number: usize) -> Option<impl Iterator<Item = Option<Self>>> {
        let (start, count) = self.list(number, 4)?;
        Some((0..count).map(move |i| self.target(start + 4 * i)))
    }

    fn text(&self, number: usize) -> Option<String> {
        let (start, count) = self.list(number, 1)?;
        Some(String::from_utf8_lossy(self.buffer.get(start..start + count)?).into_owned())
    }

    /// What a field of a schema holds.
    fn kind(&self) -> Option<Kind> {
        Some(match self.byte(2)? {
            2 => {
                let kind = self.table(3)?;
                let bits = kind.int(0)?;
                matches!(bits, 8 | 16 | 32 | 64).then_some(())?;
                Kind::Int { bits, signed: kind.byte(1).is_some_and(|signed| signed != 0) }
            }
            3 => {
                let kind = self.table(3)?;
                let precision = kind.field(0).map_or(Some(0), |at| short(self.buffer, at))?;
                (precision <= 2).then_some(())?;
                Kind::Float { precision: precision as i16 }
            }
            6 => Kind::Bool,
            _ => Kind::Other,
        })
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    bytes_at(bytes, at).map(i32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<i64> {
    bytes_at(bytes, at).map(i64::from_le_bytes)
}
