//! The footer of a Parquet file, looked at before the library decodes it: that calls itself once for each level of the schema,
//! and a schema of thousands of levels would overflow the stack, which no error can report. [`Thrift`] reads page headers, too.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::super::messages::damaged;
use crate::error::{Error, Result, bad_file};

/// Deepest schema, and deepest nesting of what is passed over. Tables of transitions have three levels.
const MAX_DEPTH: usize = 64;

/// Refuses a footer that is cut or nested too deeply.
pub(super) fn check_depth(path: &Path, file: &mut File) -> Result<()> {
    let io = |e| Error::io(path, "read", e);
    let bytes = file.seek(SeekFrom::End(0)).map_err(io)?;
    let cut = || damaged(path, "Parquet file", "no footer");
    file.seek(SeekFrom::Start(bytes.checked_sub(8).ok_or_else(cut)?)).map_err(io)?;
    let mut tail = [0u8; 8];
    file.read_exact(&mut tail).map_err(io)?;
    let length = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if tail[4..] != *b"PAR1" {
        // Left to the decoder: encrypted, or no Parquet file.
        return Ok(());
    }
    file.seek(SeekFrom::Start((bytes - 8).checked_sub(length).ok_or_else(cut)?)).map_err(io)?;
    let mut footer = Vec::new();
    Read::by_ref(file).take(length).read_to_end(&mut footer).map_err(io)?;
    match (Thrift { bytes: &footer }).schema_depth() {
        Some(depth) if depth <= MAX_DEPTH => Ok(()),
        Some(depth) => Err(bad_file!(
            path,
            "wanted a schema of at most {MAX_DEPTH} levels, found {depth}; store plain columns or lists of numbers"
        )),
        None => Err(damaged(path, "Parquet file", "a footer that is no list of columns")),
    }
}

/// Thrift's compact protocol, as far as it takes to find one list and pass over the rest.
pub(super) struct Thrift<'a> {
    /// What has not been read.
    pub(super) bytes: &'a [u8],
}

/// What a page's header says: lengths in bytes and the number of values, missing ones included. Nothing is true of it yet.
#[derive(Default)]
pub(super) struct PageHeader {
    pub(super) uncompressed: i64,
    pub(super) compressed: i64,
    pub(super) values: i64,
}

// Types of the protocol.
const STOP: u8 = 0;
const I32: u8 = 5;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

impl Thrift<'_> {
    /// Levels of the schema, which is field 2 of the footer: elements in depth-first order, each with its number of children.
    fn schema_depth(&mut self) -> Option<usize> {
        let (mut field, mut deepest) = (0, 0);
        while let Some(kind) = self.field(&mut field)? {
            if (field, kind) != (2, LIST) {
                self.skip(kind, 0)?;
                continue;
            }
            let (kind, count) = self.list()?;
            let mut open: Vec<u64> = Vec::new();
            for _ in 0..count {
                let children = if kind == STRUCT { self.children()? } else { return None };
                if let Some(left) = open.last_mut() {
                    *left -= 1;
                }
                if children > 0 {
                    open.push(children);
                }
                deepest = deepest.max(open.len());
                while open.last() == Some(&0) {
                    open.pop();
                }
            }
        }
        Some(deepest)
    }

    /// Fields 2 and 3 of a page's header, and the number of values in field 5 (data), 7 (dictionary) or 8 (data, version 2).
    pub(super) fn page_header(&mut self) -> Option<PageHeader> {
        let (mut field, mut header) = (0, PageHeader::default());
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (2, I32) => header.uncompressed = unzigzag(self.varint()?),
                (3, I32) => header.compressed = unzigzag(self.varint()?),
                (5 | 7 | 8, STRUCT) => header.values = header.values.saturating_add(self.first_number()?),
                _ => self.skip(kind, 0)?,
            }
        }
        Some(header)
    }

    /// Field 1 of a structure.
    fn first_number(&mut self) -> Option<i64> {
        let (mut field, mut number) = (0, 0);
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (1, I32) => number = unzigzag(self.varint()?),
                _ => self.skip(kind, 0)?,
            }
        }
        Some(number)
    }

    /// Field 5 of an element.
    fn children(&mut self) -> Option<u64> {
        let (mut field, mut children) = (0, 0);
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (5, I32) => children = u64::try_from(unzigzag(self.varint()?)).ok()?,
                _ => self.skip(kind, 0)?,
            }
        }
        Some(children)
    }

    /// The type of the next field of a structure, whose number goes to `field`; none at its end.
    fn field(&mut self, field: &mut i64) -> Option<Option<u8>> {
        let head = self.byte()?;
        if head == STOP {
            return Some(None);
        }
        *field = match head >> 4 {
            0 => unzigzag(self.varint()?),
            more => field.checked_add(i64::from(more))?,
        };
        Some(Some(head & 15))
    }

    /// Type and number of the entries of a list.
    fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        Some((head & 15, count))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match kind {
            // A field that is true or false has no bytes.
            1 | 2 => Some(()),
            3 => self.byte().map(drop),
            4..=6 => self.varint().map(drop),
            7 => self.pass(8),
            8 => {
                let length = self.varint()?;
                self.pass(length)
            }
            LIST | 10 => {
                let (kind, count) = self.list()?;
                (0..count).try_for_each(|_| self.skip_entry(kind, depth + 1))
            }
            11 => {
                let count = self.varint()?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                (0..count).try_for_each(|_| {
                    self.skip_entry(kinds >> 4, depth + 1)?;
                    self.skip_entry(kinds & 15, depth + 1)
                })
            }
            STRUCT => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth + 1)?;
                }
                Some(())
            }
            13 => self.pass(16),
            _ => None,
        }
    }

    /// Inside lists, true and false take a byte.
    fn skip_entry(&mut self, kind: u8, depth: usize) -> Option<()> {
        if matches!(kind, 1 | 2) { self.pass(1) } else { self.skip(kind, depth) }
    }

    fn pass(&mut self, count: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
