//! Index files: what is saved comes back bit for bit, and what is damaged is refused.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as loudly as tests")]

use ndarray::Array2;
use offing_knn::{Error, Metric, NeighborIndex, Tree, TreeConfig};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

fn rows(n: usize, d: usize) -> Array2<f32> {
    Array2::from_shape_fn((n, d), |(i, j)| ((i * 7919 + j * 104_729) % 1013) as f32 / 7.0 + 1.0)
}

fn cfg(metric: Metric) -> TreeConfig {
    TreeConfig { metric, ..Default::default() }
}

fn why(file: &Path) -> String {
    match Tree::load(&cfg(Metric::Euclidean), file).unwrap_err() {
        e @ (Error::BadFile { .. } | Error::Io { .. }) => e.to_string(),
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn a_loaded_index_answers_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    for metric in [Metric::Euclidean, Metric::Manhattan, Metric::Cosine] {
        for (n, d) in [(1, 1), (9, 3), (700, 40), (333, 17)] {
            let file = dir.path().join("index.knn");
            let built = Tree::new(&cfg(metric), rows(n, d).view()).unwrap();
            built.save(&file).unwrap();
            let loaded = Tree::load(&cfg(metric), &file).unwrap();
            let queries = rows(50, d) * 1.03;
            let k = n.min(4);
            assert_eq!(loaded.search(queries.view(), k).unwrap(), built.search(queries.view(), k).unwrap());
            assert_eq!((loaded.len(), loaded.dim(), loaded.bytes()), (n, d, built.bytes()));
            if n > 1 {
                assert_eq!(loaded.search_self(1).unwrap(), built.search_self(1).unwrap());
                assert_eq!(loaded.max_self(1).unwrap(), built.max_self(1).unwrap());
            }
        }
    }
}

#[test]
fn saving_replaces_a_file_that_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("index.knn");
    Tree::new(&cfg(Metric::Euclidean), rows(400, 5).view()).unwrap().save(&file).unwrap();
    let old = Tree::load(&cfg(Metric::Euclidean), &file).unwrap();
    let before = old.search_self(2).unwrap();
    Tree::new(&cfg(Metric::Euclidean), rows(80, 6).view()).unwrap().save(&file).unwrap();
    assert_eq!(old.search_self(2).unwrap(), before);
    assert_eq!(Tree::load(&cfg(Metric::Euclidean), &file).unwrap().dim(), 6);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_file_changed_in_place_neither_ends_the_process_nor_changes_its_answers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("index.knn");
    // Several pages: a mapping would fault beyond the new end.
    Tree::new(&cfg(Metric::Euclidean), rows(4000, 20).view()).unwrap().save(&file).unwrap();
    let whole = std::fs::read(&file).unwrap();
    let open = Tree::load(&cfg(Metric::Euclidean), &file).unwrap();
    let before = open.search_self(2).unwrap();
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(300).unwrap();
    assert_eq!(open.search_self(2).unwrap(), before, "cut");
    assert!(why(&file).contains("300 bytes, its header says"));
    std::fs::write(&file, vec![0; whole.len()]).unwrap();
    assert_eq!(open.search_self(2).unwrap(), before, "overwritten");
    assert!(why(&file).contains("no index"));
    // Only the rows are overwritten: the header is right, and the checksum is not.
    let mut zeroed = whole.clone();
    zeroed[192..].fill(0);
    std::fs::write(&file, zeroed).unwrap();
    assert!(why(&file).contains("checksum does not match"));
}

#[test]
fn foreign_and_missing_files_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.knn");
    assert!(why(&file).contains("x.knn"));
    for (content, wanted) in [
        (&b""[..], "no index"),
        (b"<!DOCTYPE html><html></html>", "no index of offing-knn: it starts with \"<!DOCTYP\""),
        (b"OFKNN\n\x1a and so on, line ends translated", "no index"),
        (b"OFKNN\r\n\x1a", "cut short"),
    ] {
        std::fs::write(&file, content).unwrap();
        let message = why(&file);
        assert!(message.contains(wanted) && !message.contains('\n'), "{message}");
    }
    Tree::new(&cfg(Metric::Cosine), rows(20, 3).view()).unwrap().save(&file).unwrap();
    assert!(why(&file).contains("holds a Cosine index, but Euclidean was asked for"));
}

#[test]
fn another_version_is_named() {
    let mut bytes = sample().to_vec();
    bytes[8] = 9;
    assert!(loading(&bytes).unwrap_err().contains("index format 9, this version reads 1"));
}

fn sample() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("index.knn");
        Tree::new(&cfg(Metric::Euclidean), rows(150, 19).view()).unwrap().save(&file).unwrap();
        std::fs::read(file).unwrap()
    })
}

fn scratch() -> &'static PathBuf {
    static DIR: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    &DIR.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_path_buf();
        (dir, path)
    })
    .1
}

/// Loads bytes as a file; an index that loads must also answer.
fn loading(bytes: &[u8]) -> Result<Array2<u32>, String> {
    let id = std::thread::current().id();
    let file = scratch().join(format!("{id:?}"));
    std::fs::write(&file, bytes).unwrap();
    let tree = Tree::load(&cfg(Metric::Euclidean), &file).map_err(|e| e.to_string())?;
    let queries = Array2::from_elem((3, tree.dim()), 0.5f32);
    Ok(tree.search(queries.view(), 1).unwrap().ids)
}

/// The file's own checksum, written again from its description, to forge headers with.
fn seal(bytes: &mut [u8]) {
    let mut body = vec![0u8; 192];
    body[..184].copy_from_slice(&bytes[8..192]);
    body[16..24].fill(0);
    body.extend_from_slice(&bytes[192..]);
    let mut lanes = [1u64, 2, 3, 4];
    for block in body.chunks_exact(32) {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
            let word = u64::from_le_bytes(word.try_into().unwrap());
            *lane = (*lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    let sum = lanes
        .iter()
        .fold(body.len() as u64, |h, l| (h ^ l).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31));
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn the_description_of_the_checksum_is_right() {
    let mut bytes = sample().to_vec();
    seal(&mut bytes);
    assert_eq!(bytes, sample());
}

/// More with OFFING_KNN_FUZZ.
fn fuzz_cases() -> u32 {
    std::env::var("OFFING_KNN_FUZZ").ok().and_then(|v| v.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: fuzz_cases(), failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_change_is_refused(at in any::<prop::sample::Index>(), flip in 1u8.., cut in any::<prop::sample::Index>(), how in 0..4) {
        let mut bytes = sample().to_vec();
        match how {
            0 => bytes.truncate(cut.index(bytes.len())),
            1 => bytes.extend_from_slice(&sample()[..=cut.index(bytes.len())]),
            2 => { let at = at.index(bytes.len()); bytes[at] ^= flip }
            _ => { let (a, b) = (at.index(bytes.len()), cut.index(bytes.len())); bytes.swap(a, b) }
        }
        if bytes != sample() {
            prop_assert!(loading(&bytes).is_err());
        }
    }

    /// Someone who forges the checksum as well gets an error or wrong neighbours, never a crash.
    #[test]
    fn forged_files_never_panic(
        at in prop_oneof![0usize..192, any::<prop::sample::Index>().prop_map(|i| i.index(sample().len()))],
        value in prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()],
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = sample().to_vec();
        bytes[at] = value;
        if let Some(cut) = cut {
            bytes.truncate(192 + cut.index(bytes.len() - 192) / 64 * 64);
            let len = bytes.len() as u64;
            bytes[16..24].copy_from_slice(&len.to_le_bytes());
        }
        seal(&mut bytes);
        let _ = loading(&bytes);
    }
}
