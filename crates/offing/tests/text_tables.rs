//! Text tables as other programs write them: separators, decimal signs, flags in words, times. A value is read as it was
//! meant, or the file is refused in one line.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fixture;

use fixture::with_options;
use offing::data::{Dataset, Observations};

fn read_as(name: &str, text: &str) -> offing::Result<Dataset> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    with_options(&path, |_| ())
}

fn read(text: &str) -> Dataset {
    read_as("a.csv", text).unwrap()
}

fn refused(text: &str, pieces: &[&str]) {
    let error = read_as("a.csv", text).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    for piece in pieces {
        assert!(error.contains(piece), "`{piece}` is not in: {error}");
    }
}

#[test]
fn the_separator_is_the_one_of_the_first_line() {
    let plain = "obs_0,act_0,reward,next_obs_0\n0.5,1.5,2,0.75\n0.75,-1,3,1\n";
    let wanted = read(plain);
    assert_eq!(wanted.rows.obs.column(0).to_vec(), [0.5, 0.75]);
    for separator in [";", "\t"] {
        let text = plain.replace(',', separator);
        for (name, text) in [
            ("a.csv", text.clone()),
            ("a.tsv", text.clone()),
            ("a.csv", text.replace('.', ",")),
            ("a.csv", format!("\u{feff}{}\r\n\r\n", text.replace('\n', "\r\n"))),
            ("a.csv", format!("\n{}\n\n", text.replacen("obs_0", "\"obs_0\"", 1))),
        ] {
            let found = read_as(name, &text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
            assert_eq!(found.rows, wanted.rows, "{text:?}");
        }
    }
    refused(
        &plain.replace("reward", "reward;eur"),
        &["one kind of separator", "commas and semicolons", "quotes"],
    );
    // In quotes, or where the ending says what separates, names and cells may hold anything.
    let rows = "0.5;1.5;2;0.75;\"a; b, c\"\n0.75;-1;3;1;\n";
    let quoted = read(&format!("obs_0;act_0;reward;next_obs_0;\"why; or, not\"\n{rows}"));
    assert_eq!(quoted.rows, wanted.rows);
    let tabs =
        plain.replace(',', "\t").replace("next_obs_0", "next_obs_0\twhy; or, not").replace("5\n", "5\t0\n");
    assert_eq!(read_as("a.tsv", &tabs.replace("1\n", "1\t0\n")).unwrap().rows, wanted.rows);
}

#[test]
fn no_number_is_read_in_a_way_it_may_not_have_been_meant() {
    let table = |cells: [&str; 3]| {
        let lines = cells.map(|cell| format!("{cell};1;1;1\n"));
        format!("obs_0;act_0;reward;next_obs_0\n{}", lines.concat())
    };
    let obs = |cells| read(&table(cells)).rows.obs.column(0).to_vec();
    assert_eq!(obs(["1,5", "-2,25e1", "1,234"]), [1.5, -22.5, 1.234]);
    assert_eq!(obs(["1.5", "2", "1.234"]), [1.5, 2.0, 1.234]);
    let mixed = ["`obs_0`: wanted one decimal sign", "`1.234` in line 3 and `1,5` in line 2"];
    refused(&table(["1,5", "1.234", "2"]), &mixed);
    refused(&table(["1.5", "2", "1,234"]), &["`1,234` in line 4 and `1.5` in line 2", "all with a point"]);
    refused(&table(["1.234,5", "2", "3"]), &["without separators of thousands", "`1.234,5` in line 2"]);
    refused(&table(["1,5", "1.234.567", "3"]), &["`1.234.567` in line 3"]);
    refused(&table(["2", "1,234", "3"]), &["`obs_0`", "`1,234` in line 3, which is 1234 or 1.234"]);
    refused(&table(["2", "1 234,5", "3"]), &["wanted a number, found `1 234,5` in line 3"]);
    refused("obs_0,act_0,reward\n\"1,5\",1,1\n2,1,1\n", &["wanted a number, found `1,5` in line 2"]);
    // The one doubt that is settled by habit is told.
    let points = read(&table(["1.234", "2", "3"]));
    assert!(points.reading.notes.iter().any(|n| n.contains("1.234 are read with a decimal point")));
    assert!(!read(&table(["1.234", "0.5", "3"])).reading.notes.iter().any(|n| n.contains("decimal point")));
}

#[test]
fn flags_may_be_words() {
    for (yes, no) in [("yes", "no"), ("Y", "N"), ("T", "f"), ("TRUE", "false"), ("1", "0"), ("1.0", "0.0")] {
        let text = format!(
            "obs_0,act_0,reward,next_obs_0,done,timeout\n0,1,1,1,{no},{no}\n1,1,1,2,{no},{yes}\n5,1,1,6,{yes},{no}\n"
        );
        let data = read(&text);
        assert_eq!(
            (data.rows.done.to_vec(), data.timeout.to_vec()),
            (vec![false, false, true], vec![false, true, false])
        );
    }
    let header = "obs_0,act_0,reward,next_obs_0,done";
    refused(
        &format!("{header}\n0,1,1,1,maybe\n"),
        &["`done`: wanted a flag", "yes or no", "`maybe` in line 2"],
    );
    refused(&format!("{header}\n0,1,1,1,2\n"), &["`done`: wanted 0 or 1, found 2 in line 2"]);
    refused(&format!("{header}\nyes,1,1,1,0\n"), &["`obs_0`: wanted a number, found `yes`"]);
}

#[test]
fn a_time_is_no_observation() {
    let rows = "2024-05-01T12:00:00Z,0,1,1,1\n2024-05-01T12:00:01Z,1,1,1,2\n";
    for name in ["time", "Timestamp", "date"] {
        let data = read(&format!("{name},obs_0,act_0,reward,next_obs_0\n{rows}"));
        let notes: Vec<&String> = data.reading.notes.iter().filter(|n| n.contains("not used")).collect();
        let wanted =
            format!("not used: {name} (a time, not an observation); rows are taken in the file's order");
        assert_eq!((data.rows.obs.ncols(), notes), (1, vec![&wanted]));
    }
    refused(
        &format!("obs_0,obs_1,act_0,reward,next_obs_0\n{rows}"),
        &[
            "`obs_0`: wanted a number, found the time `2024-05-01T12:00:00Z` in line 2",
            "seconds since the start",
        ],
    );
}

#[test]
fn missing_values_are_errors_or_nan() {
    let text = "obs_0,act_0,reward,next_obs_0\n0,1,1,1\nNA,1,null,2\n";
    refused(text, &["`obs_0`: wanted a number, found `NA` in line 3"]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    std::fs::write(&path, text).unwrap();
    let data = with_options(&path, |o| o.allow_non_finite = true).unwrap();
    assert!(data.rows.obs[[1, 0]].is_nan() && data.rows.rew[1].is_nan());
}

#[test]
fn observations_come_a_stretch_at_a_time_from_large_tables() {
    let dir = tempfile::tempdir().unwrap();
    let rows = 70_000;
    let text: String = (0..rows).map(|i| format!("e{i};{i};{},5\n", i % 10)).collect();
    let path = dir.path().join("a.csv");
    std::fs::write(&path, format!("episode;obs_0;obs_1\n{text}")).unwrap();
    let mut observations = Observations::open(&path, None).unwrap();
    assert_eq!(
        (observations.columns(), observations.notes()),
        (&["obs_0".to_string(), "obs_1".into()][..], &["not used: episode".to_string()][..])
    );
    let mut sizes = Vec::new();
    let mut next = 0.0;
    while let Some(stretch) = observations.next_rows().unwrap() {
        sizes.push(stretch.nrows());
        for row in stretch.rows() {
            assert_eq!((row[0], row[1]), (next, next % 10.0 + 0.5));
            next += 1.0;
        }
    }
    assert_eq!(sizes, [65_536, rows - 65_536]);
}
