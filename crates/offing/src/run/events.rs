//! The metrics in TensorBoard's format: `tensorboard --logdir runs`.
//!
//! An event file is a sequence of records, each with its length and two checksums. A record is a protocol buffer with a
//! step and its scalars.
//!
//! Like the metrics, events carry no time: the wall time of each is 0, so equal seeds give equal bytes. In TensorBoard,
//! use the axis of steps.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Record;
use crate::error::{Error, Result};
use crate::home::write_atomic;
use crate::proto::Message;

/// The open event file.
#[derive(Debug)]
pub(super) struct Events {
    path: PathBuf,
    file: File,
}

impl Events {
    /// Rewrites the file from everything recorded so far and leaves it open for more. `records` lacks the steps that a
    /// resumed run repeats, so no step is written twice.
    pub(super) fn rewrite(path: &Path, records: &[Record]) -> Result<Self> {
        write_atomic(path, |f| {
            f.write_all(&frame(&version()))?;
            records.iter().try_for_each(|record| f.write_all(&frame(&event(record))))
        })?;
        let file = File::options().append(true).open(path).map_err(|e| Error::io(path, "open", e))?;
        Ok(Self { path: path.to_path_buf(), file })
    }

    /// Appends one record, in one write call.
    pub(super) fn append(&mut self, record: &Record) -> Result<()> {
        self.file
            .write_all(&frame(&event(record)))
            .map_err(|e| Error::io(&self.path, "write an event for TensorBoard", e))
    }
}

/// The first event of every file: which layout follows.
fn version() -> Vec<u8> {
    Message::default().text(3, "brain.Event:2").0
}

/// An event with the step and every number of a record; what is no number has no curve.
fn event(record: &Record) -> Vec<u8> {
    let numbers = record.iter().filter(|(tag, _)| *tag != "step");
    let scalars = numbers
        .filter_map(|(tag, value)| Some(Message::default().text(1, tag).float(2, value.as_f64()? as f32)));
    let step = record.get("step").and_then(Value::as_u64).unwrap_or(0);
    Message::default().number(2, step).message(5, Message::default().messages(1, scalars)).0
}

/// TFRecord: length, its checksum, content, its checksum.
fn frame(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    let mut out = Vec::with_capacity(content.len() + 16);
    out.extend(length);
    out.extend(masked(crc32c(&length)).to_le_bytes());
    out.extend(content);
    out.extend(masked(crc32c(content)).to_le_bytes());
    out
}

/// TFRecord's mask: a checksum of data that hold checksums would otherwise be weak.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: a record has a few hundred bytes.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // RFC 3720, appendix B.4, and the usual check value.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn an_event_is_the_bytes_of_the_format() {
        let record: Record = serde_json::from_str(r#"{"step": 300, "q": 1.5, "score": null}"#).unwrap();
        // 2: varint 300; 5: {1: {1: "q", 2: 1.5f}}. The null has no curve.
        let wanted = [16, 0xac, 2, 42, 10, 10, 8, 10, 1, b'q', 21, 0, 0, 0xc0, 0x3f];
        assert_eq!(event(&record), wanted);
        let framed = frame(&wanted);
        assert_eq!((framed.len(), framed[0]), (wanted.len() + 16, wanted.len() as u8));
    }
}
