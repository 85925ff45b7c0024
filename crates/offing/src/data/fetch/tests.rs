//! One file against servers that stall, cut off, lie and change their minds.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::download::Downloader;
use super::http::Client;
use super::test_server::{Reply, Request, Server};
use super::{Events, FetchEvent, FileChecksum, Mirrors, Patience, RemoteFile};
use crate::checksum;
use crate::error::{Error, Result};

pub(super) const QUICK: Patience = Patience {
    connect: Duration::from_millis(500),
    stall: Duration::from_millis(150),
    tries: 3,
    pause: Duration::from_millis(5),
    longest_pause: Duration::from_millis(20),
};

/// A file that is not a real one, but begins as such.
pub(super) fn content() -> Vec<u8> {
    let mut bytes = b"\x89HDF\r\n\x1a\n".to_vec();
    bytes.extend((0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8));
    bytes
}

/// A directory, a file in it to fetch, and what was said on the way.
struct Fetch {
    dir: tempfile::TempDir,
    file: RemoteFile,
    mirrors: Mirrors,
    /// Stops once so many bytes are there.
    stop_at: u64,
    notes: Vec<String>,
}

impl Fetch {
    fn of(server: &Server) -> Self {
        let address = format!("{}x.hdf5", server.root);
        let checksum = FileChecksum::Sha256(checksum::of_bytes(&content()));
        let bytes = Some(content().len() as u64);
        let file = RemoteFile { name: "x.hdf5".into(), address, bytes, checksum };
        let (dir, mirrors) = (tempfile::tempdir().unwrap(), Mirrors::default());
        Self { dir, file, mirrors, stop_at: u64::MAX, notes: Vec::new() }
    }

    fn target(&self) -> PathBuf {
        self.dir.path().join("x.hdf5")
    }

    fn run(&mut self) -> Result<String> {
        let (target, notes, stop_at) = (self.target(), &mut self.notes, self.stop_at);
        let mut on_event = |event: FetchEvent<'_>| {
            match event {
                FetchEvent::Note(line) => notes.push(line),
                FetchEvent::Progress { bytes, .. } if bytes >= stop_at => return ControlFlow::Break(()),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let client = Client::new(QUICK, false);
        let events = &mut Events(&mut on_event);
        Downloader { client, patience: QUICK, mirrors: &self.mirrors, events }
            .bring(&self.file, &target, None)
    }

    /// Wants the file in place and nothing beside it.
    fn arrives(&mut self) -> String {
        let from = self.run().unwrap();
        assert!(fs::read(self.target()).unwrap() == content(), "the bytes differ");
        assert_eq!(self.left(), ["x.hdf5"]);
        from
    }

    /// Wants no file, but one line that holds the pieces and the command.
    fn fails(&mut self, pieces: &[&str]) -> String {
        let error = self.run().unwrap_err().to_string();
        let (target, address) = (self.target(), &self.file.address);
        let command = format!("`curl -L --create-dirs -o {} {address} && echo ", target.display());
        for piece in pieces.iter().chain(&[command.as_str(), self.file.checksum.digits()]) {
            assert!(error.contains(piece), "`{piece}` is missing in: {error}");
        }
        assert!(!error.contains('\n') && !target.exists(), "{error}");
        error
    }

    /// The files in the directory.
    fn left(&self) -> Vec<String> {
        let names =
            fs::read_dir(self.dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn partial(&self) -> Vec<u8> {
        fs::read(self.dir.path().join("x.hdf5.partial")).unwrap_or_default()
    }
}

fn server(answer: impl Fn(&Request, &mut Reply<'_>) + Send + Sync + 'static) -> Server {
    Server::start(answer)
}

#[test]
fn a_file_arrives_whole_and_nothing_else_is_left() {
    let server = server(|request, reply| reply.file(request, &content(), &[("ETag", "\"1\"")]));
    let mut fetch = Fetch::of(&server);
    assert_eq!(fetch.arrives(), fetch.file.address);
    assert_eq!(fetch.notes, ["x.hdf5: checking its SHA-256"]);
}

#[test]
fn after_a_stall_the_rest_is_asked_for() {
    let server = server(|request, reply| {
        if request.number == 0 {
            reply.some_of_file(request, &content(), &[], 100_000);
            std::thread::sleep(Duration::from_millis(400));
        } else {
            reply.file(request, &content(), &[]);
        }
    });
    let mut fetch = Fetch::of(&server);
    fetch.arrives();
    assert_eq!(server.starts(), [0, 100_000]);
    assert!(
        fetch.notes[0].contains("no byte for 0.15 s after 100000 of 200008 bytes; trying again"),
        "{:?}",
        fetch.notes
    );
}

#[test]
fn a_server_that_only_stalls_is_given_up_and_what_came_is_kept() {
    let server = server(|request, reply| {
        reply.some_of_file(request, &content(), &[], 5000);
        std::thread::sleep(Duration::from_millis(300));
    });
    let mut fetch = Fetch::of(&server);
    fetch.fails(&["no byte for 0.15 s after 5000 of 200008 bytes (3 times)", "5000 bytes are kept"]);
    assert!(fetch.partial() == content()[..5000]);
    assert_eq!(server.starts(), [0, 5000, 5000], "the first try brought something and counts once");
}

#[test]
fn a_silent_server_is_given_up() {
    let server = server(|_, _| std::thread::sleep(Duration::from_millis(300)));
    let mut fetch = Fetch::of(&server);
    fetch.fails(&["found no byte for 0.15 s (3 times); by hand"]);
    assert!(fetch.left().is_empty());
}

#[test]
fn a_connection_may_be_cut_often_as_long_as_there_is_progress() {
    let server = server(|request, reply| {
        reply.some_of_file(request, &content(), &[], (request.start() + 30_000).min(content().len()));
    });
    Fetch::of(&server).arrives();
    assert_eq!(server.requests().len(), 7);
}

#[test]
fn a_server_without_ranges_starts_over() {
    let server = server(|request, reply| {
        let whole = Request { headers: Default::default(), ..request.clone() };
        reply.some_of_file(
            &whole,
            &content(),
            &[],
            if request.number == 0 { 50_000 } else { content().len() },
        );
    });
    Fetch::of(&server).arrives();
    assert_eq!(server.starts(), [0, 50_000]);
}

#[test]
fn cut_at_the_same_place_without_ranges_is_no_progress() {
    let server = server(|request, reply| {
        let whole = Request { headers: Default::default(), ..request.clone() };
        reply.some_of_file(&whole, &content(), &[], 50_000);
    });
    let mut fetch = Fetch::of(&server);
    fetch.fails(&["the connection was cut after 50000 of 200008 bytes (3 times)", "50000 bytes are kept"]);
}

#[test]
fn another_length_than_the_published_one_is_another_file() {
    for length in [12, 300_000] {
        let server = server(move |_, reply| {
            reply.head("200 OK", &[("Content-Length", &length.to_string())]);
            reply.raw(content());
        });
        let mut fetch = Fetch::of(&server);
        fetch.fails(&["wanted it (200008 bytes)", &format!("found a file of {length} bytes; by hand")]);
        assert_eq!((fetch.left().len(), server.requests().len()), (0, 1));
    }
}

#[test]
fn lies_about_an_unknown_length_end_in_a_cut_or_a_wrong_checksum() {
    let unknown = |server: &Server| {
        let mut fetch = Fetch::of(server);
        fetch.file.bytes = None;
        fetch
    };
    let too_long = server(|_, reply| {
        reply.head("200 OK", &[("Content-Length", "300000")]);
        reply.raw(content());
    });
    unknown(&too_long).fails(&["cut after 200008 of 300000 bytes (3 times)"]);
    let too_short = server(|_, reply| {
        reply.head("200 OK", &[("Content-Length", "1000")]);
        reply.raw(content());
    });
    let mut fetch = unknown(&too_short);
    fetch.fails(&["SHA-256 ", " (removed)"]);
    assert!(fetch.left().is_empty());
    // Without any length the end of the connection is the end of the file.
    let silent = server(|_, reply| {
        reply.head("200 OK", &[]);
        reply.raw(content());
    });
    unknown(&silent).arrives();
}

#[test]
fn more_than_the_file_is_not_taken() {
    let server = server(|_, reply| {
        reply.head("200 OK", &[]);
        // Would go on for ever.
        while reply.raw([7; 10_000]) {}
    });
    let mut fetch = Fetch::of(&server);
    fetch.fails(&["found more than 200008 bytes; by hand"]);
    assert!(fetch.left().is_empty());
}

#[test]
fn a_web_page_is_not_a_dataset() {
    let called_so = server(|_, reply| {
        reply.head("200 OK", &[("Content-Type", "text/html; charset=utf-8")]);
        reply.raw("please log in");
    });
    let looks_so = server(|_, reply| {
        reply.head("200 OK", &[]);
        reply.raw("\n <!DOCTYPE HTML><title>Airport</title>");
    });
    for server in [called_so, looks_so] {
        let mut fetch = Fetch::of(&server);
        fs::write(fetch.dir.path().join("x.hdf5.partial"), &content()[..10]).unwrap();
        fetch.fails(&["a web page (a login, or a network that wants one?)"]);
        assert_eq!(server.requests().len(), 1, "another try would bring the same page");
        assert!(fetch.partial() == content()[..10], "the page did not replace what is there");
    }
}

#[test]
fn a_missing_file_is_not_asked_for_twice() {
    let server = server(|_, reply| reply.status("404 Not Found", &[]));
    Fetch::of(&server).fails(&["found status 404 Not Found; by hand"]);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_busy_server_is_asked_again_when_it_says_so() {
    let server = server(|request, reply| match request.number {
        // An hour; the longest pause is shorter.
        0 => reply.status("503 Service Unavailable", &[("Retry-After", "3600")]),
        1 => reply.status("429 Too Many Requests", &[("Retry-After", "0")]),
        _ => reply.file(request, &content(), &[]),
    });
    let mut fetch = Fetch::of(&server);
    fetch.arrives();
    assert!(fetch.notes[0].contains("status 503 Service Unavailable"), "{:?}", fetch.notes);
}

#[test]
fn redirects_are_followed_but_not_in_circles() {
    let moved = server(|request, reply| match request.path.as_str() {
        "/x.hdf5" => reply.status("302 Found", &[("Location", "/there/y")]),
        _ if request.number < 2 => reply.some_of_file(request, &content(), &[], 10),
        _ => reply.file(request, &content(), &[]),
    });
    Fetch::of(&moved).arrives();
    assert_eq!(moved.starts(), [0, 0, 10, 10], "the range goes along");
    let circle = server(|_, reply| reply.status("302 Found", &[("Location", "/x.hdf5")]));
    Fetch::of(&circle).fails(&["found more than 8 redirects; by hand"]);
}

#[test]
fn a_file_that_changes_between_tries_is_not_mixed() {
    // The old version breaks off; the new one has another ETag, and the server honours If-Range.
    let server = server(|request, reply| {
        if request.number == 0 {
            let old = vec![1; content().len()];
            return reply.some_of_file(request, &old, &[("ETag", "\"old\"")], 60_000);
        }
        assert_eq!(request.headers["if-range"], "\"old\"");
        let whole = Request { headers: Default::default(), ..request.clone() };
        reply.file(&whole, &content(), &[("ETag", "\"new\"")]);
    });
    let mut fetch = Fetch::of(&server);
    fetch.stop_at = 60_000;
    assert!(matches!(fetch.run(), Err(Error::Stopped)));
    assert_eq!(
        fetch.left(),
        ["x.hdf5.partial", "x.hdf5.partial.etag"],
        "the version is known to the next process"
    );
    fetch.stop_at = u64::MAX;
    fetch.arrives();
    assert_eq!(server.starts(), [0, 60_000]);
}

#[test]
fn parts_of_different_files_are_found_out_and_fetched_again() {
    let server = server(|request, reply| match request.number {
        0 => reply.some_of_file(request, &vec![1; content().len()], &[], 60_000),
        _ => reply.file(request, &content(), &[]),
    });
    let mut fetch = Fetch::of(&server);
    fetch.arrives();
    assert_eq!(server.starts(), [0, 60_000, 0]);
    assert!(fetch.notes.iter().any(|note| note.contains("(removed); trying again")), "{:?}", fetch.notes);
}

#[test]
fn wrong_bytes_are_removed() {
    let server = server(|request, reply| reply.file(request, &vec![1; content().len()], &[]));
    let mut fetch = Fetch::of(&server);
    let wrong = checksum::of_bytes(&vec![1; content().len()]);
    fetch.fails(&[&format!("SHA-256 {wrong} instead of {} (removed)", fetch.file.checksum.digits())]);
    assert_eq!((fetch.left().len(), server.requests().len()), (0, 1));
}

#[test]
fn a_wrong_part_of_the_file_is_not_appended() {
    let server = server(|request, reply| {
        let (range, length) = ("bytes 5-200007/200008", "200003");
        reply.head("206 Partial Content", &[("Content-Range", range), ("Content-Length", length)]);
        reply.raw(&content()[5..]);
        assert_eq!(request.start(), 100);
    });
    let mut fetch = Fetch::of(&server);
    fs::write(fetch.dir.path().join("x.hdf5.partial"), &content()[..100]).unwrap();
    fetch.fails(&["found bytes from 5 on instead of 100"]);
    assert!(fetch.partial() == content()[..100]);
}

#[test]
fn what_is_longer_than_the_server_has_starts_over() {
    let server = server(|request, reply| match request.start() {
        0 => reply.file(request, &content(), &[]),
        _ => reply.status("416 Range Not Satisfiable", &[]),
    });
    let mut fetch = Fetch::of(&server);
    fetch.file.bytes = None;
    fs::write(fetch.dir.path().join("x.hdf5.partial"), vec![0; 300_000]).unwrap();
    fetch.arrives();
    assert_eq!(server.starts(), [300_000, 0]);
}

#[test]
fn mirrors_come_first_and_are_checked_too() {
    let original = server(|request, reply| reply.file(request, &content(), &[]));
    let wrong = server(|request, reply| reply.file(request, &vec![1; content().len()], &[]));
    let gone = server(|_, reply| reply.status("410 Gone", &[]));
    let mut fetch = Fetch::of(&original);
    for mirror in [&wrong, &gone] {
        fetch.mirrors = fetch.mirrors.clone().with(&format!("{}={}", original.root, mirror.root)).unwrap();
    }
    assert_eq!(fetch.arrives(), format!("{}x.hdf5", original.root));
    assert_eq!([wrong.requests().len(), gone.requests().len()], [1, 1]);
    // All of them are named when none has it.
    fs::remove_file(fetch.target()).unwrap();
    let dead = original.root.clone();
    drop(original);
    fetch.fails(&["instead of", &wrong.root, "status 410 Gone at ", "no connection (", &dead]);
}

#[test]
fn without_a_network_the_command_comes_at_once() {
    let gone = server(|_, _| {});
    let mut fetch = Fetch::of(&gone);
    drop(gone);
    let start = Instant::now();
    fetch.fails(&["found no connection ("]);
    fetch.file.address = "http://no-such-host.invalid/x.hdf5".into();
    fetch.fails(&["found no network (the host's name is not found)"]);
    assert!(start.elapsed() < Duration::from_secs(5) && fetch.notes.is_empty(), "{:?}", fetch.notes);
}

#[test]
fn a_stop_keeps_what_came_for_the_next_call() {
    let server = server(|request, reply| reply.file(request, &content(), &[]));
    let mut fetch = Fetch::of(&server);
    fetch.stop_at = 65_536;
    assert!(matches!(fetch.run(), Err(Error::Stopped)));
    let kept = fetch.partial().len();
    assert!(kept >= 65_536 && !fetch.target().exists());
    fetch.stop_at = u64::MAX;
    fetch.arrives();
    assert_eq!(server.starts(), [0, kept]);
}

#[cfg(unix)]
#[test]
fn a_link_in_the_place_of_a_download_is_refused_and_its_target_is_not_touched() {
    let server = server(|request, reply| reply.file(request, &content(), &[]));
    let mut fetch = Fetch::of(&server);
    let precious = fetch.dir.path().join("precious");
    std::fs::write(&precious, "mine").unwrap();
    for name in ["x.hdf5.partial", "x.hdf5.partial.etag"] {
        let link = fetch.dir.path().join(name);
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        let error = fetch.run().unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("symbolic link"), "{error}");
        std::fs::remove_file(&link).unwrap();
    }
    assert!(std::fs::read(&precious).unwrap() == b"mine" && server.requests().is_empty());
}
