//! What is written can be read back as it was, in every format, and twice the same bytes come out.

mod made;

use made::{made, with_options};
use offing::data::{ReadOptions, TerminalNext, read, write_d4rl};

#[test]
fn d4rl_gives_back_what_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    for goal in [false, true] {
        let data = made(300, 7, goal);
        let path = dir.path().join("made.hdf5");
        write_d4rl(&data, &path).unwrap();
        let back = read(&path, &ReadOptions::default()).unwrap();
        assert_eq!(back.rows, data.rows);
        assert_eq!(back.timeout, data.timeout);
        assert_eq!(back.episodes, data.episodes);
        assert_eq!(back.sim, data.sim);
        assert_eq!(back.meta, data.meta);
        assert_eq!(back.name, "made");
        assert_eq!((back.reading.rows_in_file, back.reading.rows_kept), (300, 300));
        assert!(back.reading.dropped.is_empty(), "{:?}", back.reading);
    }
}

#[test]
fn d4rl_bytes_depend_on_the_data_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = made(5000, 40, false);
    let write = |name: &str, threads: usize| {
        let path = dir.path().join(name);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| write_d4rl(&data, &path)).unwrap();
        std::fs::read(path).unwrap()
    };
    let first = write("a.hdf5", 1);
    std::thread::sleep(std::time::Duration::from_millis(1100)); // a time stamp would show
    assert!(first == write("b.hdf5", 3), "written twice, the files differ");
}

#[test]
fn time_limit_rows_can_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.hdf5");
    let data = made(300, 3, false);
    write_d4rl(&data, &path).unwrap();
    let back = with_options(&path, |o| o.keep_timeouts = false).unwrap();
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
    let data = made(300, 3, false);
    write_d4rl(&data, &path).unwrap();
    for choice in [TerminalNext::Auto, TerminalNext::Drop, TerminalNext::Repeat, TerminalNext::Follow] {
        let back = with_options(&path, |o| o.terminal_next = choice).unwrap();
        assert_eq!(back.rows, data.rows, "{choice:?}");
    }
}
