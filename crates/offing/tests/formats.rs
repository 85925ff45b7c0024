//! What is written can be read back as it was, in every format, and twice the same bytes come out.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fixture;

use std::path::Path;

use fixture::{dataset, main_file, target, with_options};
use offing::data::{ColumnMap, Dataset, Format, ReadOptions, TerminalNext, read, write};

fn check_same(back: &Dataset, data: &Dataset) {
    assert_eq!(back.rows, data.rows);
    assert_eq!(back.timeout, data.timeout);
    assert_eq!(back.episodes, data.episodes);
    assert_eq!(back.sim, data.sim);
    assert!(back.reading.dropped.is_empty(), "{:?}", back.reading);
}

#[test]
fn every_format_gives_back_what_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    for (goal, rows) in [(false, 300), (true, 300), (true, 1)] {
        let data = dataset(rows, 7, goal);
        for format in Format::written() {
            let path = target(dir.path(), &format!("made-{goal}-{rows}"), format);
            // NeoRL's archives end as npz does: only the name asks for them.
            let by_ending = if format == Format::NEORL { Format::NPZ } else { format };
            assert_eq!(Format::of_target(&path).unwrap(), by_ending);
            write(&data, &path, format).unwrap();
            let back = read(&path, &ReadOptions::default()).unwrap();
            check_same(&back, &data);
            assert_eq!(back.format, format);
            assert_eq!((back.reading.rows_in_file, back.reading.rows_kept), (rows, rows));
            if [Format::D4RL, Format::PARQUET].contains(&format) {
                assert_eq!((&back.meta, &back.names), (&data.meta, &data.names), "{format:?}");
            }
        }
    }
}

#[test]
fn d4rl_minari_and_parquet_in_turn_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(400, 5, true);
    let mut now = data.clone();
    for (turn, format) in [Format::MINARI, Format::PARQUET, Format::D4RL, Format::PARQUET, Format::MINARI]
        .into_iter()
        .enumerate()
    {
        let path = target(dir.path(), &format!("turn{turn}"), format);
        write(&now, &path, format).unwrap();
        now = read(&path, &ReadOptions::default()).unwrap();
        check_same(&now, &data);
        assert_eq!(now.names, data.names, "{format:?}");
        for (key, value) in &data.meta {
            assert_eq!(now.meta.get(key), Some(value), "{format:?}");
        }
    }
}

#[test]
fn from_any_format_to_any_other_no_bit_changes() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(200, 5, true);
    for from in Format::written() {
        let source = target(dir.path(), &format!("from-{}", from.name()), from);
        write(&data, &source, from).unwrap();
        let first = read(&source, &ReadOptions::default()).unwrap();
        for to in Format::written() {
            let path = target(dir.path(), &format!("{}-to-{}", from.name(), to.name()), to);
            write(&first, &path, to).unwrap();
            check_same(&read(&path, &ReadOptions::default()).unwrap(), &data);
        }
    }
}

#[test]
fn bytes_depend_on_the_data_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(5000, 40, false);
    let write_all = |stem: &str, threads: usize| -> Vec<Vec<u8>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let one = |format| {
            let path = target(dir.path(), stem, format);
            pool.install(|| write(&data, &path, format)).unwrap();
            std::fs::read(main_file(&path)).unwrap()
        };
        Format::written().map(one).collect()
    };
    let first = write_all("a", 1);
    std::thread::sleep(std::time::Duration::from_millis(2100)); // a time stamp would show, even zip's of two seconds
    for (format, (a, b)) in Format::written().zip(first.iter().zip(write_all("b", 3))) {
        assert!(*a == b, "{format:?}: written twice, the files differ");
    }
}

#[test]
fn time_limit_rows_can_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hdf5");
    let data = dataset(300, 3, false);
    write(&data, &path, Format::D4RL).unwrap();
    let back = with_options(&path, |o| o.drop_timeouts = true).unwrap();
    let limits = data.timeout.iter().filter(|&&t| t).count();
    assert!(limits > 0);
    assert_eq!(back.rows.len(), 300 - limits);
    assert_eq!(back.reading.dropped[0].1, limits);
    assert_eq!(back.episodes.last().unwrap().end, back.rows.len());
    // What is kept of a cut episode ends with the mark of a cut, so that nothing takes the next row for its successor.
    for episode in &back.episodes[..back.episodes.len() - 1] {
        let last = episode.end - 1;
        assert!(back.timeout[last] || back.rows.done[last]);
    }
}

#[test]
fn options_do_not_matter_when_next_observations_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hdf5");
    let data = dataset(300, 3, false);
    write(&data, &path, Format::D4RL).unwrap();
    for choice in [TerminalNext::Auto, TerminalNext::Drop, TerminalNext::Repeat, TerminalNext::Follow] {
        let back = with_options(&path, |o| o.terminal_next = choice).unwrap();
        assert_eq!(back.rows, data.rows, "{choice:?}");
    }
}

#[test]
fn a_table_with_other_names_needs_a_column_map() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.csv");
    let mut text = String::from("time,pos,vel,torque,score,crash\n");
    for i in 0..10 {
        let crash = if i == 4 { "true" } else { "false" };
        text.push_str(&format!("{i},{}.5,{},0.25,{i},{crash}\n", i, 2 * i));
    }
    std::fs::write(&path, text).unwrap();
    let error = read(&path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("`obs_0`") && error.contains("column map"), "{error}");
    let map: ColumnMap = serde_json::from_str(
        r#"{"obs": ["pos", "vel"], "act": ["torque"], "rew": "score", "done": "crash", "step": "time"}"#,
    )
    .unwrap();
    let data = with_options(&path, |o| {
        o.columns = Some(map);
        o.terminal_next = TerminalNext::Drop;
    })
    .unwrap();
    // Row 4 is terminal without a next observation, row 9 is the last: both are dropped and counted.
    assert_eq!(data.rows.len(), 8);
    assert_eq!(data.reading.dropped.iter().map(|d| d.1).sum::<usize>(), 2);
    assert_eq!(data.rows.next_obs.row(0).to_vec(), [1.5, 2.0]);
    assert_eq!(data.episodes, [0..4, 4..8]);
    let wrong = ColumnMap { obs: vec!["height".into()], act: vec!["torque".into()], ..ColumnMap::default() };
    let error = with_options(&path, |o| o.columns = Some(wrong)).unwrap_err().to_string();
    assert!(error.contains("`height`"), "{error}");
}

#[test]
fn a_name_like_a_robots_counts_only_with_its_widths() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(300, 4, false);
    for (name, body) in [
        ("hopper_logs", "hopper"),
        ("Hopper-logs", "hopper"),
        ("ant_trail", "ant"),
        ("antmaze_mine", "antmaze"),
    ] {
        for format in Format::written() {
            let path = target(dir.path(), &format!("{name}-{}", format.name()), format);
            let named = Dataset { name: format!("{name}-{}", format.name()), ..data.clone() };
            write(&named, &path, format).unwrap();
            let back = read(&path, &ReadOptions::default()).unwrap();
            check_same(&back, &data);
            assert!(back.name.starts_with(&format!("own-{name}")), "{}", back.name);
            assert_eq!(offing::tasks::reference(&back.name), None);
            let note = &back.reading.notes[0];
            let wanted = format!("named like {body}, which has ");
            assert!(note.starts_with(&wanted) && note.contains("; these have 4 and 2, so"), "{note}");
        }
    }
    // With the widths of the task a name is what it says.
    let start = dataset(300, 11, false);
    let act = ndarray::Array2::from_shape_fn((300, 3), |(i, j)| ((i + j) as f32).sin());
    let hopper = Dataset { rows: offing::Batch { act, ..start.rows.clone() }, ..start };
    let path = dir.path().join("hopper_logs.csv");
    write(&hopper, &path, Format::CSV).unwrap();
    let back = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!(
        (back.name.as_str(), back.reading.notes.len()),
        ("hopper_logs", 0),
        "{:?}",
        back.reading.notes
    );
}

#[test]
fn a_generated_file_holds_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hopper-x.parquet");
    let act = ndarray::Array2::from_shape_fn((300, 6), |(i, j)| ((i + j) as f32).sin());
    let start = dataset(300, 17, false);
    let meta =
        [("made_by".to_string(), "offing".to_string()), ("set".into(), "walker2d-random".into())].into();
    let data = Dataset { rows: offing::Batch { act, ..start.rows.clone() }, meta, ..start };
    write(&data, &path, Format::PARQUET).unwrap();
    let back = read(&path, &ReadOptions::default()).unwrap();
    assert_eq!((back.name.as_str(), back.reading.notes.len()), ("walker2d-random", 0));
    // Chosen columns are no longer that task's.
    let map = ColumnMap {
        obs: vec!["obs_0".into(), "obs_1".into()],
        act: vec!["act_0".into()],
        rew: "reward".into(),
        ..ColumnMap::default()
    };
    let chosen = with_options(&path, |o| o.columns = Some(map)).unwrap();
    assert_eq!(chosen.name, "own-walker2d-random");
}

#[test]
fn columns_that_nothing_reads_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.csv");
    let notes = |header: &str, options: &ReadOptions| {
        let cells = header.split(',').count();
        let row = |i: usize| vec![(i % 2).to_string(); cells].join(",");
        let rows: Vec<String> = (0..5).map(row).collect();
        std::fs::write(&path, format!("{header}\n{}\n", rows.join("\n"))).unwrap();
        read(&path, options).unwrap().reading.notes.join("\n")
    };
    let plain = ReadOptions::default();
    let found = notes("obs_0,obs_1,act_0,reward,nextobs_0,nextobs_1,finished,time_out", &plain);
    let wanted = "not used: nextobs_0 … nextobs_1, finished, time_out; did you mean `next_obs_0` and `done` and `timeout`?";
    assert!(found.contains(wanted), "{found}");
    let found = notes("obs_0,act_0,reward,done,timeout,finished,battery", &plain);
    assert!(found.contains("not used: finished, battery") && !found.contains("did you mean"), "{found}");
    let map = ColumnMap {
        obs: vec!["obs_0".into()],
        act: vec!["act_0".into()],
        rew: "reward".into(),
        ..ColumnMap::default()
    };
    let chosen = ReadOptions { columns: Some(map), ..ReadOptions::default() };
    let found = notes("obs_0,act_0,reward,nextobs_0,finished", &chosen);
    assert!(found.contains("not used: nextobs_0, finished") && !found.contains("did you mean"), "{found}");
    assert!(!notes("obs_0,act_0,reward,done", &plain).contains("not used"));
}

#[test]
fn a_row_that_is_both_done_and_cut_is_noted_where_there_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.csv");
    let notes = |last: &str| {
        let text = format!("obs_0,act_0,reward,next_obs_0,done,timeout\n1,0,1,2,0,0\n2,0,1,3,1,0\n{last}\n");
        std::fs::write(&path, text).unwrap();
        read(&path, &ReadOptions::default()).unwrap().reading.notes.join("\n")
    };
    assert!(notes("5,0,1,6,1,1").contains("rows with both `done` and a timeout (1)"));
    assert!(!notes("5,0,1,6,0,1").contains("rows with both"));
}

/// Three episodes of four rows as text, with `episode` ids and the separator given.
fn table(ids: [&str; 3], separator: &str) -> String {
    let mut text = ["obs_0", "act_0", "reward", "episode"].join(separator) + "\n";
    for (e, t) in (0..3).flat_map(|e| (0..4).map(move |t| (e, t))) {
        text.push_str(
            &[format!("{}.5", 4 * e + t), "0.25".into(), "1".into(), ids[e].into()].join(separator),
        );
        text.push('\n');
    }
    text
}

#[test]
fn episodes_may_have_names_instead_of_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    for ids in [["0", "1", "2"], ["ep-a", "ep-b", "ep-a"], ["9007199254740993", "9007199254740992", "x"]] {
        std::fs::write(&path, table(ids, ",")).unwrap();
        assert_eq!(read(&path, &ReadOptions::default()).unwrap().episodes, [0..3, 3..6, 6..9], "{ids:?}");
    }
}

#[test]
fn semicolons_separate_where_the_first_line_has_no_comma() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    std::fs::write(&path, table(["0", "1", "2"], ",")).unwrap();
    let commas = read(&path, &ReadOptions::default()).unwrap();
    std::fs::write(&path, table(["0", "1", "2"], ";")).unwrap();
    assert_eq!(read(&path, &ReadOptions::default()).unwrap().rows, commas.rows);
}

#[test]
fn one_column_may_serve_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    std::fs::write(&path, table(["0", "1", "2"], ",")).unwrap();
    let map: ColumnMap = serde_json::from_str(
        r#"{"obs": ["obs_0", "episode"], "act": ["act_0"], "rew": "obs_0", "episode": "episode"}"#,
    )
    .unwrap();
    let data = with_options(&path, |o| o.columns = Some(map)).unwrap();
    assert_eq!(data.rows.obs.column(0), data.rows.rew);
    assert_eq!(data.episodes, [0..3, 3..6, 6..9]);
    assert_eq!(data.rows.obs[[4, 1]], 1.0);
}

/// A .npy array of f32 whose header says `descr` and `fortran`.
fn npy(descr: &str, fortran: &str, shape: &str, values: &[f32]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    bytes
}

fn npz(path: &Path, arrays: &[(&str, Vec<u8>)]) {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, bytes) in arrays {
        zip.start_file(format!("{name}.npy"), zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

#[test]
fn arrays_in_column_order_are_read_as_they_are_meant() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npz");
    let write = |descr: &str| {
        let flags = npy("<f4", "False", "(3,)", &[0.0; 3]);
        npz(
            &path,
            &[
                ("observations", npy(descr, "True", "(3, 2)", &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0])),
                ("actions", npy("<f4", "True", "(3,)", &[0.0, 1.0, 2.0])),
                ("rewards", npy("<f4", "False", "(3,)", &[1.0, 2.0, 3.0])),
                ("terminals", flags.clone()),
                ("next_observation", flags),
            ],
        );
        read(&path, &ReadOptions::default())
    };
    let data = write("<f4").unwrap();
    assert_eq!(data.reading.ignored_keys, ["next_observation"]);
    let note = "not used: next_observation; did you mean `next_observations`?";
    assert_eq!(data.reading.notes[0], note);
    assert_eq!(data.rows.obs, ndarray::array![[1.0, 10.0], [2.0, 20.0]]);
    assert_eq!(data.rows.next_obs, ndarray::array![[2.0, 20.0], [3.0, 30.0]]);
    let error = write("<f2").unwrap_err().to_string();
    assert!(error.contains("float16 is not supported; rewrite as float32"), "{error}");
    let error = write(">f4").unwrap_err().to_string();
    assert!(error.contains("little-endian") && error.contains("`>f4`"), "{error}");
}
