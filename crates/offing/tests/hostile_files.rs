//! Small files made to hang, abort or lead elsewhere: each is refused in one line, at once.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fixture;

use std::io::Write;
use std::path::Path;

use fixture::dataset;
use offing::data::{Dataset, Format, ReadOptions, read, read_npy, write};
use offing::dynamics::Expression;
use rust_hdf5::format::selection::{Hyperslab, RegularHyperslab, UNLIMITED};
use rust_hdf5::{H5File, Selection};

fn refused(path: &Path) -> String {
    let error = read(path, &ReadOptions::default()).expect_err("bad input must be refused").to_string();
    assert!(!error.contains(char::is_control), "more than one plain line: {error:?}");
    error
}

/// A D4RL file of ten rows whose rewards are made by `rewards`.
fn hdf5_with(path: &Path, rewards: impl FnOnce(&H5File)) {
    let file = H5File::create(path).unwrap();
    let numbers: Vec<f32> = (0..20u8).map(f32::from).collect();
    for key in ["observations", "actions"] {
        file.new_dataset::<f32>().shape([10, 2]).create(key).unwrap().write_raw(&numbers).unwrap();
    }
    file.new_dataset::<u8>().shape([10]).create("terminals").unwrap().write_raw(&[0u8; 10]).unwrap();
    rewards(&file);
    file.close().unwrap();
}

fn plain_rewards(file: &H5File) {
    file.new_dataset::<f32>().shape([10]).create("rewards").unwrap().write_raw(&[1.0f32; 10]).unwrap();
}

#[test]
fn hdf5_data_in_other_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, secret) = (dir.path().join("a.hdf5"), dir.path().join("secret"));
    hdf5_with(&path, plain_rewards);
    assert_eq!(read(&path, &ReadOptions::default()).unwrap().rows.len(), 9, "the file itself is fine");

    std::fs::write(&secret, [7u8; 40]).unwrap();
    let name = secret.to_string_lossy();
    hdf5_with(&path, |file| {
        file.new_dataset::<f32>().shape([10]).external(&[(&name, 0, 40)]).create("rewards").unwrap();
    });
    let error = refused(&path);
    assert!(error.contains("`rewards`") && error.contains("external storage"), "{error}");

    let source = dir.path().join("source.hdf5");
    hdf5_with(&source, plain_rewards);
    hdf5_with(&path, |file| {
        let virtual_set = file.new_dataset::<f32>().shape([10]);
        let name = source.to_string_lossy();
        virtual_set
            .virtual_mapping(Selection::All, &name, "rewards", Selection::All)
            .create("rewards")
            .unwrap();
    });
    let error = refused(&path);
    assert!(error.contains("virtual dataset") && error.contains("data inside this file"), "{error}");

    hdf5_with(&path, |file| {
        file.create_external_link("rewards", &source.to_string_lossy(), "rewards").unwrap()
    });
    let error = refused(&path);
    assert!(error.contains("`rewards`"), "{error}");
}

/// Opening the file would open the pipe, and wait for someone to write into it.
#[cfg(unix)]
#[test]
fn an_hdf5_file_that_leads_to_a_pipe_does_not_hang() {
    let dir = tempfile::tempdir().unwrap();
    let (path, pipe) = (dir.path().join("a.hdf5"), dir.path().join("pipe"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let name = pipe.to_string_lossy().into_owned();
    hdf5_with(&path, |file| {
        file.new_dataset::<f32>().shape([10]).external(&[(&name, 0, 40)]).create("rewards").unwrap();
    });
    assert!(refused(&path).contains("external storage"));
    let one = || vec![1u64];
    let rows = RegularHyperslab { start: vec![0], stride: one(), count: vec![UNLIMITED], block: one() };
    let unlimited = Selection::Hyperslab { rank: 1, form: Hyperslab::Regular(rows) };
    hdf5_with(&path, |file| {
        let virtual_set = file.new_dataset::<f32>().shape([10]).max_shape(&[None]);
        virtual_set
            .virtual_mapping(unlimited.clone(), &name, "rewards", unlimited.clone())
            .create("rewards")
            .unwrap();
    });
    assert!(refused(&path).contains("virtual dataset"));
}

#[test]
fn an_array_of_no_columns_and_2_to_the_60_rows_is_no_work() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npy");
    for (shape, order) in [("(1152921504606846976, 0)", "True"), ("(1152921504606846976, 0)", "False")] {
        let text = format!("{{'descr': '<f4', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        std::fs::write(&path, &bytes).unwrap();
        let error = read_npy(&path).map(|m| m.dim()).unwrap_err().to_string();
        assert!(error.contains("a.npy"), "{error}");
    }
}

fn zeros(rows: usize) -> Dataset {
    let mut data = dataset(rows, 4, true);
    (data.sim, data.timeout) = (None, ndarray::Array1::from_elem(rows, false));
    for columns in [&mut data.rows.obs, &mut data.rows.next_obs, &mut data.rows.act] {
        columns.fill(0.0);
    }
    data.rows.rew.fill(0.0);
    data.rows.done.fill(false);
    data
}

/// Zeros shrink a thousand times: the archive says how large they are, and that must fit into memory.
#[test]
fn an_archive_that_unpacks_to_more_than_memory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bomb.npz");
    write(&zeros(200_000), &path, Format::NPZ).unwrap();
    let options = ReadOptions { memory_limit: Some(4_000_000), ..ReadOptions::default() };
    let error = read(&path, &options).unwrap_err().to_string();
    assert!(error.contains("fits into memory"), "{error}");
    // The archive says that each entry is small, and each unpacks to more: read no further than it says.
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.len() < 4_000_000, "zeros shrink");
    for (sign, place) in [(b"PK\x03\x04", 22), (b"PK\x01\x02", 24)] {
        let places = (0..bytes.len() - 4).filter(|&at| bytes[at..at + 4] == *sign).collect::<Vec<_>>();
        assert!(places.len() >= 5, "every entry has one");
        places.into_iter().for_each(|at| bytes[at + place..][..4].copy_from_slice(&1000u32.to_le_bytes()));
    }
    std::fs::write(&path, &bytes).unwrap();
    let error = read(&path, &options).unwrap_err().to_string();
    // A thousand bytes with a header of 128 among them.
    assert!(error.contains("bytes for shape (200000") && error.contains("found 872 or more"), "{error}");
}

/// Ten million equal numbers are a few bytes in a dictionary's column.
#[test]
fn a_parquet_file_that_unpacks_to_more_than_memory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bomb.parquet");
    write(&zeros(1_000_000), &path, Format::PARQUET).unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() < 4_000_000, "zeros shrink");
    let options = ReadOptions { memory_limit: Some(20_000_000), ..ReadOptions::default() };
    let error = read(&path, &options).unwrap_err().to_string();
    assert!(error.contains("fits into memory"), "{error}");
}

/// The elements of a schema in depth-first order, written in Thrift's compact protocol; no row groups.
fn parquet_of_depth(depth: usize) -> Vec<u8> {
    let mut footer = vec![0x15, 2, 0x19];
    let count = depth + 1;
    footer.push(0xfc);
    let mut left = count;
    while left > 127 {
        footer.push((left & 127) as u8 | 128);
        left >>= 7;
    }
    footer.push(left as u8);
    for level in 0..count {
        if level < depth {
            // A name and one child; all but the root are optional.
            if level > 0 {
                footer.extend([0x35, 2, 0x18, 1, b'g', 0x15, 2, 0]);
            } else {
                footer.extend([0x48, 1, b'g', 0x15, 2, 0]);
            }
        } else {
            footer.extend([0x15, 8, 0x25, 2, 0x18, 1, b'x', 0]);
        }
    }
    footer.extend([0x16, 0, 0x19, 0x0c, 0]);
    let mut bytes = b"PAR1".to_vec();
    bytes.extend(&footer);
    bytes.extend((footer.len() as u32).to_le_bytes());
    bytes.extend(b"PAR1");
    bytes
}

#[test]
fn a_deep_parquet_schema_does_not_overflow_the_stack() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep.parquet");
    for (depth, wanted) in
        [(3, "obs_0"), (10_000, "at most 64 levels, found 10000"), (1_000_000, "at most 64 levels")]
    {
        std::fs::write(&path, parquet_of_depth(depth)).unwrap();
        let error = refused(&path);
        assert!(error.contains(wanted), "{depth}: {error}");
    }
}

#[test]
fn a_long_condition_does_not_overflow_the_stack() {
    for (term, joint) in [("obs[0] > 0", " && "), ("obs[0] > 0", " || "), ("1", " + "), ("1", " < ")] {
        let long = |terms: usize| vec![term; terms].join(joint);
        let text = if joint == " + " { format!("{} > 0", long(200_000)) } else { long(200_000) };
        let error = Expression::parse(&text, 2, 1).unwrap_err().to_string();
        assert!(error.contains("at most 2000 operands") && error.len() < 500, "{error}");
        let text = if joint == " + " { format!("{} > 0", long(900)) } else { long(900) };
        let fine = Expression::parse(&text, 2, 1).unwrap();
        // On the smallest stack that a thread of offing has.
        let stack = std::thread::Builder::new().stack_size(512 << 10);
        stack.spawn(move || fine.holds(&[1.0; 2], &[0.0], &[1.0; 2])).unwrap().join().unwrap();
    }
}

#[test]
fn ten_thousand_columns_are_looked_up_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wide.csv");
    let columns = 20_000;
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    let names: Vec<String> = (0..columns).map(|i| format!("obs_{i}")).collect();
    writeln!(file, "{},act_0,reward", names.join(",")).unwrap();
    for row in 0..3 {
        writeln!(file, "{},1,{row}", vec!["0.5"; columns].join(",")).unwrap();
    }
    file.into_inner().unwrap();
    let started = std::time::Instant::now();
    let data = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!(data.rows.obs_dim(), columns);
    // Comparing each name with each takes minutes in a build for tests; a slow machine must not fail.
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}
