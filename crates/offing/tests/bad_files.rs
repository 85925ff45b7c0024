//! Bad input: every failure is one line that names the file, never a panic; mutated files of every format included.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fixture;

use std::path::{Path, PathBuf};

use fixture::{dataset, main_file, target, with_options};
use offing::data::{Dataset, Format, ReadOptions, read, write};
use proptest::prelude::*;

fn refused(path: &Path) -> String {
    let error = read(path, &ReadOptions::default()).expect_err("bad input must be refused").to_string();
    assert!(!error.contains('\n'), "more than one line: {error}");
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    assert!(error.contains(&name), "does not name the file: {error}");
    error
}

fn check(path: &Path, parts: &[&str]) {
    let error = refused(path);
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

#[test]
fn files_that_are_no_datasets_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    for name in ["a.hdf5", "a.parquet", "a.csv", "a.npz"] {
        check(&file(name, b""), &["empty file", "get it again"]);
        check(&file(name, b"<!DOCTYPE html><html><body>403 Forbidden</body></html>"), &["HTML page"]);
        check(&file(name, b"\n <html>gone</html>"), &["HTML page"]);
    }
    check(&file("b.hdf5", b"not a dataset"), &["wanted a dataset", "6e, 6f, 74"]);
    let table = b"obs_0,act_0,reward\n1,2,3\n2,3,4\n";
    check(&file("b.txt", table), &["looks like CSV", "name it .csv"]);
    check(&file("b.parquet", table), &["looks like CSV", "name it .csv"]);
    check(&file("tabs.txt", b"obs_0\tact_0\treward\n1\t2\t3\n"), &["name it .tsv"]);
    check(&file("b.json", b"{\"obs\": [1, 2]}"), &["7b, 22"]);
    check(&file("c.hdf5", b"\x89HDF\r\n\x1a\n"), &["damaged or truncated"]);
    check(&file("c.parquet", b"PAR1PAR1"), &["damaged or truncated"]);
    check(&file("c.npz", b"PK\x03\x04"), &["damaged or truncated"]);
    check(&dir.path().join("missing.hdf5"), &["cannot read"]);
    check(dir.path(), &["Minari", "directory"]);
}

#[test]
fn truncated_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for format in [Format::D4RL, Format::PARQUET, Format::NPZ] {
        let path = target(dir.path(), "a", format);
        write(&dataset(300, 4, true), &path, format).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for part in [whole.len() / 4, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..part]).unwrap();
            refused(&path);
        }
    }
}

/// A CSV file of `rows` with one cell of the second row replaced.
fn csv_with(dir: &Path, header: &str, rows: &[&str]) -> PathBuf {
    let path = dir.join("a.csv");
    std::fs::write(&path, format!("{header}\n{}\n", rows.join("\n"))).unwrap();
    path
}

#[test]
fn bad_tables_name_column_and_row() {
    let dir = tempfile::tempdir().unwrap();
    let header = "obs_0,act_0,reward,next_obs_0,terminal,step";
    let row = "1,2,3,4,0,0";
    let at = |rows: &[&str], parts: &[&str]| check(&csv_with(dir.path(), header, rows), parts);
    at(&[row, "x,2,3,4,0,0"], &["`obs_0`", "a number", "`x` in line 3"]);
    at(&[row, "1,,3,4,0,0"], &["`act_0`", "empty cell in line 3"]);
    at(&[row, "1,2,nan,4,0,0"], &["`reward`", "finite", "NaN in line 3"]);
    at(&[row, "1,2,3,inf,0,0"], &["`next_obs_0`", "finite", "inf in line 3"]);
    at(&[row, "1,2,3,4,0.5,0"], &["`terminal`", "0 or 1", "0.5 in line 3"]);
    at(&[row, "1,2,3,4,0,0.5"], &["`step`", "integers", "0.5 in line 3"]);
    at(&[row, "1,2,3"], &["uneven rows"]);
    at(&[], &["at least one row"]);
    check(&csv_with(dir.path(), "obs_0,reward", &["1,2"]), &["`act_0`", "only obs_0, reward"]);
    check(&csv_with(dir.path(), "obs_0,act_0", &["1,2"]), &["`reward`"]);
    let lone = csv_with(dir.path(), "obs_0,act_0,reward", &["1,2,3"]);
    check(&lone, &["at least one transition", "next observations"]);
}

#[test]
fn lines_are_counted_as_an_editor_counts_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    for (text, line) in [
        ("obs_0,act_0,reward\r\n1,2,3\r\nx,2,3\r\n", "line 3"),
        ("\u{feff}obs_0,act_0,reward\n1,2,3\n\n\nx,2,3\n", "line 5"),
        ("obs_0,act_0,reward,why\n1,2,3,\"a\nb\"\nx,2,3,c", "line 4"),
    ] {
        std::fs::write(&path, text).unwrap();
        check(&path, &[&format!("found `x` in {line};")]);
    }
}

#[test]
fn columns_must_be_distinguishable() {
    let dir = tempfile::tempdir().unwrap();
    let at =
        |header: &str, parts: &[&str]| check(&csv_with(dir.path(), header, &["1,2,3,4", "2,3,4,5"]), parts);
    at("obs_0,obs_0,act_0,reward", &["`obs_0`", "one column with number 0", "two of this name", "remove"]);
    at("obs_0,OBS_0,act_0,reward", &["one column with number 0", "`obs_0` as well"]);
    at("obs_0,obs_2,act_0,reward", &["`obs_0`", "number 1 next", "found `obs_2`", "column map"]);
    at("obs_2,obs_3,act_0,reward", &["`obs`", "number 0 next", "found `obs_2`"]);
    at("obs_0,act_0,reward,reward", &["`reward`", "one column of this name", "found 2", "rename"]);
    // One series from 1 beside another from 0 has lost its first column.
    at("obs_1,obs_2,act_0,reward", &["`obs_1`", "counted from 0", "add the missing column"]);
    at("obs_0,obs_1,act_1,reward", &["`act_1`", "counted from 0"]);
    at("obs_0,next_obs_1,act_0,reward", &["`next_obs_1`", "counted from 0"]);
    // Counting all from one is a habit, not a gap; what is not used may be there twice.
    let fine = csv_with(dir.path(), "obs_1,obs_2,act_1,reward,x,x", &["1,2,3,4,5,6", "2,3,4,5,6,7"]);
    assert_eq!(read(&fine, &ReadOptions::default()).unwrap().rows.obs.ncols(), 2);
}

#[test]
fn column_maps_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = csv_with(dir.path(), "a,b,c,d", &["1,2,3,4", "2,3,4,5"]);
    let error = |map: &str| {
        let map = serde_json::from_str(map).unwrap();
        with_options(&path, |o| o.columns = Some(map)).unwrap_err().to_string()
    };
    let twice = error(r#"{"obs": ["a", "a"], "act": ["b"], "rew": "c"}"#);
    assert!(twice.contains("`a`: wanted this column once in `obs`"), "{twice}");
    let twice = error(r#"{"obs": ["a"], "act": ["b"], "rew": "c", "next_obs": ["d", "d"]}"#);
    assert!(twice.contains("`d`: wanted this column once in `next_obs`"), "{twice}");
    let without = error(r#"{"obs": ["a"], "act": ["b"]}"#);
    assert!(without.contains("`rew`") && without.contains("no `rew`"), "{without}");
}

#[test]
fn a_column_map_for_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let map: offing::data::ColumnMap =
        serde_json::from_str(r#"{"obs": ["a"], "act": ["b"], "rew": "c"}"#).unwrap();
    for format in [Format::NPZ, Format::D4RL, Format::MINARI] {
        let path = target(dir.path(), "a", format);
        write(&dataset(30, 4, false), &path, format).unwrap();
        let error = with_options(&path, |o| o.columns = Some(map.clone())).unwrap_err().to_string();
        assert!(error.contains("wanted CSV or Parquet for a column map"), "{error}");
        assert!(error.contains("observations") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_generated_file_with_the_columns_of_another_task_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hdf5");
    let mut data = dataset(30, 4, false);
    data.meta = [("made_by".into(), "offing 0.1.0".into()), ("set".into(), "hopper-medium".into())].into();
    write(&data, &path, Format::D4RL).unwrap();
    check(
        &path,
        &["`metadata/set`", "11 observations and 3 actions, as hopper has", "with 4 and 2", "make it again"],
    );
}

#[test]
fn names_cannot_speak_to_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let path = csv_with(dir.path(), "\"x\u{1b}[31m\ny\",act_0,reward", &["1,2,3", "q,3,4"]);
    check(&path, &[r"x\u{1b}[31m\ny"]);
    let map =
        serde_json::from_str(r#"{"obs": ["x\u001b[31m\ny"], "act": ["act_0"], "rew": "reward"}"#).unwrap();
    let error = with_options(&path, |o| o.columns = Some(map)).unwrap_err().to_string();
    assert!(error.contains(r"`x\u{1b}[31m\ny`: wanted a number, found `q` in line 4"), "{error}");
    assert!(!error.contains(char::is_control), "{error:?}");
}

#[test]
fn non_finite_entries_are_named_or_let_through() {
    let dir = tempfile::tempdir().unwrap();
    for format in [Format::D4RL, Format::PARQUET, Format::CSV, Format::NPZ] {
        let path = target(dir.path(), "a", format);
        let mut data = dataset(300, 4, false);
        data.rows.obs[[123, 2]] = f32::NAN;
        data.rows.rew[200] = f32::INFINITY;
        write(&data, &path, format).unwrap();
        // The first line of a text table holds the names, and lines count from 1.
        let place = if format == Format::CSV { "line 125" } else { "row 123" };
        check(&path, &[place, "finite", "NaN"]);
        let back = with_options(&path, |o| o.allow_non_finite = true).unwrap();
        assert!(back.rows.obs[[123, 2]].is_nan() && back.rows.rew[200].is_infinite());
    }
}

#[test]
fn a_minari_target_that_exists_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("there");
    std::fs::create_dir(&target).unwrap();
    let error = write(&dataset(30, 4, false), &target, Format::MINARI).unwrap_err().to_string();
    assert!(error.contains("does not exist yet"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn minari_in_another_storage_says_how_to_convert() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("metadata.json"), r#"{"data_format": "zarr"}"#).unwrap();
    let error = read(dir.path(), &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("found `zarr`") && error.contains("update_from_storage"), "{error}");
    std::fs::write(dir.path().join("metadata.json"), "{").unwrap();
    let error = read(dir.path(), &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("JSON"), "{error}");
}

#[test]
fn minari_with_discrete_actions_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("made");
    write(&dataset(30, 4, false), &target, Format::MINARI).unwrap();
    let metadata = target.join("data/metadata.json");
    let with_space = |space: &str| {
        let text = serde_json::json!({ "action_space": space }).to_string();
        std::fs::write(&metadata, text).unwrap();
        read(&target, &ReadOptions::default())
    };
    for (space, found) in [
        (r#"{"type": "Discrete", "dtype": "int64", "start": 0, "n": 4}"#, "Discrete with 4 actions"),
        (r#"{"type": "MultiDiscrete", "dtype": "int64", "nvec": [3, 3]}"#, "MultiDiscrete"),
        (r#"{"type": "Tuple", "subspaces": [{"type": "Box"}, {"type": "Discrete", "n": 2}]}"#, "2 actions"),
        (r#"{"type": "Dict", "subspaces": {"go": {"type": "MultiBinary", "n": 2}}}"#, "MultiBinary"),
    ] {
        let error = with_space(space).unwrap_err().to_string();
        let wanted = "`action_space`: wanted continuous actions (a Box), found ";
        assert!(error.contains(wanted) && error.contains(found) && !error.contains('\n'), "{error}");
    }
    let boxed =
        with_space(r#"{"type": "Box", "dtype": "float32", "shape": [2], "low": [-1, -1], "high": [1, 1]}"#);
    assert_eq!(boxed.unwrap().rows.len(), 30);
}

#[test]
fn a_file_larger_than_memory_is_refused_before_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    for format in Format::written() {
        let path = target(dir.path(), &format!("large-{}", format.name()), format);
        write(&dataset(300, 4, false), &path, format).unwrap();
        // 300 rows of at least 4 + 2 + 4 numbers of four bytes.
        let error = with_options(&path, |o| o.memory_limit = Some(12_000)).unwrap_err().to_string();
        assert!(error.contains("wanted a file that fits into memory") && !error.contains('\n'), "{error}");
        assert_eq!(with_options(&path, |o| o.memory_limit = Some(1_000_000)).unwrap().rows.len(), 300);
    }
}

/// One way of damaging a file.
#[derive(Clone, Debug)]
enum Damage {
    Flip { at: f64, bits: u8 },
    Word { at: f64, value: u64 },
    Cut { at: f64 },
    Splice { from: f64, to: f64, length: usize },
}

fn damage() -> impl Strategy<Value = Damage> {
    // Headers and footers hold the structure: half of the damage goes there.
    let place = || prop_oneof![0.0..1.0f64, 0.0..0.05f64, 0.95..1.0f64];
    let word = prop_oneof![any::<u64>(), Just(u64::MAX), Just(0), (0..64u32).prop_map(|b| 1 << b)];
    prop_oneof![
        4 => (place(), 1..=255u8).prop_map(|(at, bits)| Damage::Flip { at, bits }),
        3 => (place(), word).prop_map(|(at, value)| Damage::Word { at, value }),
        1 => (0.0..1.0f64).prop_map(|at| Damage::Cut { at }),
        1 => (place(), place(), 1..64usize).prop_map(|(from, to, length)| Damage::Splice { from, to, length }),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let place = |at: f64, len: usize| ((at * len as f64) as usize).min(len.saturating_sub(1));
    match *damage {
        _ if bytes.is_empty() => (),
        Damage::Flip { at, bits } => {
            let at = place(at, bytes.len());
            bytes[at] ^= bits;
        }
        Damage::Word { at, value } => {
            let at = place(at, bytes.len());
            let end = (at + 8).min(bytes.len());
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
        }
        Damage::Cut { at } => bytes.truncate(place(at, bytes.len())),
        Damage::Splice { from, to, length } => {
            let (from, to) = (place(from, bytes.len()), place(to, bytes.len()));
            let end = (from + length).min(bytes.len());
            let piece = bytes[from..end].to_vec();
            let stop = (to + piece.len()).min(bytes.len());
            bytes[to..stop].copy_from_slice(&piece[..stop - to]);
        }
    }
}

/// A whole file of the format, small, so that most damage hits structure.
fn sample(format: Format) -> (PathBuf, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = target(dir.path(), "a", format);
    write(&dataset(40, 3, true), &path, format).unwrap();
    let file = main_file(&path);
    let bytes = std::fs::read(&file).unwrap();
    (PathBuf::from(file.file_name().unwrap()), bytes)
}

/// Whatever was read must hold together.
fn check_sound(data: &Dataset) {
    let n = data.rows.len();
    assert!(n > 0);
    assert_eq!((data.rows.obs.nrows(), data.rows.next_obs.nrows(), data.rows.act.nrows()), (n, n, n));
    assert_eq!((data.rows.done.len(), data.timeout.len()), (n, n));
    assert_eq!(data.episodes.iter().map(|e| e.len()).sum::<usize>(), n);
}

fn survives(format: Format, damages: &[Damage]) {
    use std::sync::OnceLock;
    static SAMPLES: OnceLock<Vec<(PathBuf, Vec<u8>)>> = OnceLock::new();
    let samples = SAMPLES.get_or_init(|| Format::written().map(sample).collect());
    let (name, bytes) = &samples[Format::written().position(|f| f == format).unwrap()];
    let mut bytes = bytes.clone();
    damages.iter().for_each(|d| apply(&mut bytes, d));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, &bytes).unwrap();
    match read(&path, &ReadOptions::default()) {
        Ok(data) => check_sound(&data),
        Err(error) => {
            let error = error.to_string();
            assert!(!error.contains('\n'), "more than one line: {error}");
            assert!(error.contains(&*name.to_string_lossy()), "does not name the file: {error}");
        }
    }
}

proptest! {
    // More cases with PROPTEST_CASES.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_never_panic(damages in prop::collection::vec(damage(), 1..6)) {
        for format in Format::written() {
            survives(format, &damages);
        }
    }
}
