//! Whole datasets: where they go, what is there already, Minari's directories, and two processes at once.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use sha1::{Digest, Sha1};

use super::download::Downloader;
use super::http::Client;
use super::test_server::{Reply, Request, Server};
use super::tests::{QUICK, content};
use super::{
    Events, FetchEvent, FetchOptions, Fetched, FileChecksum, Mirrors, RemoteFile, available, fetch,
    fetch_file,
};
use crate::checksum::{hex, of_bytes};
use crate::data::catalogue::{Catalogue, Located, Origin};
use crate::error::{Error, Result};
use crate::home::Home;

fn catalogue(root: &Path) -> Catalogue {
    Catalogue { home: Home::new(root.join("home")), d4rl: root.join("d4rl"), minari: root.join("minari") }
}

fn options(mirror: Option<&Server>) -> FetchOptions {
    let mirrors = mirror.map_or_else(Mirrors::default, |server| {
        Mirrors::default().with(&format!("https://huggingface.co/={}", server.root)).unwrap()
    });
    FetchOptions { mirrors, patience: QUICK, environment_proxy: false, ..FetchOptions::default() }
}

fn run(root: &Path, id: &str, options: &FetchOptions) -> Result<Fetched> {
    fetch(&catalogue(root), id, options, &mut |_| ControlFlow::Continue(()))
}

/// A file from the server, as D4RL's are fetched.
fn one_file(
    server: &Server,
    root: &Path,
    options: &FetchOptions,
    notes: &mut Vec<String>,
) -> Result<Fetched> {
    let file = RemoteFile {
        name: "x.hdf5".into(),
        address: format!("{}x.hdf5", server.root),
        bytes: Some(content().len() as u64),
        checksum: FileChecksum::Sha256(of_bytes(&content())),
    };
    let mut on_event = |event: FetchEvent<'_>| {
        if let FetchEvent::Note(line) = event {
            notes.push(line);
        }
        ControlFlow::Continue(())
    };
    let (client, events) = (Client::new(QUICK, false), &mut Events(&mut on_event));
    let downloader = Downloader { client, patience: QUICK, mirrors: &options.mirrors, events };
    fetch_file(&catalogue(root), "x-v2", &file, &root.join("d4rl/x.hdf5"), options, downloader)
}

#[test]
fn what_is_there_is_checked_and_never_replaced_unasked() {
    let server = Server::start(|request, reply| reply.file(request, &content(), &[]));
    let dir = tempfile::tempdir().unwrap();
    let get = |options: &FetchOptions| one_file(&server, dir.path(), options, &mut Vec::new());
    let first = get(&options(None)).unwrap();
    assert!(
        first.fresh && first.bytes == content().len() as u64 && first.path == dir.path().join("d4rl/x.hdf5")
    );
    assert!(!get(&options(None)).unwrap().fresh);
    assert_eq!(server.requests().len(), 1, "the second call asks nobody");
    fs::write(&first.path, "mine").unwrap();
    let error = get(&options(None)).unwrap_err().to_string();
    assert!(error.contains("found another file of this name") && error.contains("--force"), "{error}");
    assert_eq!(fs::read(&first.path).unwrap(), b"mine");
    assert!(get(&FetchOptions { force: true, ..options(None) }).unwrap().fresh);
    assert!(fs::read(&first.path).unwrap() == content());
    // Elsewhere: a path, or a directory that exists.
    let out = |out: &str| FetchOptions { out: Some(dir.path().join(out)), ..options(None) };
    assert_eq!(get(&out("new/y.hdf5")).unwrap().path, dir.path().join("new/y.hdf5"));
    assert_eq!(get(&out("new")).unwrap().path, dir.path().join("new/x.hdf5"));
}

#[test]
fn two_that_fetch_one_file_fetch_it_once() {
    let server = Server::start(|request, reply| {
        std::thread::sleep(Duration::from_millis(100));
        reply.file(request, &content(), &[]);
    });
    let dir = tempfile::tempdir().unwrap();
    let (server, root) = (&server, dir.path());
    let mut fresh = [false; 2];
    let mut notes = [Vec::new(), Vec::new()];
    std::thread::scope(|scope| {
        for (fresh, notes) in fresh.iter_mut().zip(&mut notes) {
            scope.spawn(move || *fresh = one_file(server, root, &options(None), notes).unwrap().fresh);
        }
    });
    assert_eq!((fresh[0] ^ fresh[1], server.requests().len()), (true, 1), "{notes:?}");
    assert!(notes.iter().flatten().any(|note| note.contains("another process fetches ")), "{notes:?}");
}

/// The hub's list of two files, over two pages, and the files.
fn hub(request: &Request, reply: &mut Reply<'_>) {
    let list = "/api/datasets/farama-minari/mujoco/tree/main/hopper/tiny-v0?recursive=true";
    let files = "/datasets/farama-minari/mujoco/resolve/main/hopper/tiny-v0/data/";
    let large = serde_json::json!([
        { "type": "directory", "path": "hopper/tiny-v0/data", "size": 0, "oid": "x" },
        { "type": "file", "path": "hopper/tiny-v0/data/main_data.hdf5", "size": content().len(), "oid": "0",
          "lfs": { "oid": of_bytes(&content()), "size": content().len(), "pointerSize": 134 } },
    ]);
    let small = serde_json::json!([{ "type": "file", "path": "hopper/tiny-v0/data/metadata.json", "size": 2, "oid": blob("{}") }]);
    if request.path == list {
        let next = format!("<https://huggingface.co{list}&cursor=2>; rel=\"next\"");
        reply.head("200 OK", &[("Content-Type", "application/json"), ("Link", &next)]);
        reply.raw(large.to_string());
    } else if request.path == format!("{list}&cursor=2") {
        reply.head("200 OK", &[]);
        reply.raw(small.to_string());
    } else if request.path == format!("{files}main_data.hdf5") {
        reply.file(request, &content(), &[]);
    } else if request.path == format!("{files}metadata.json") {
        reply.file(request, b"{}", &[]);
    } else {
        reply.status("404 Not Found", &[]);
    }
}

fn blob(text: &str) -> String {
    hex(&Sha1::digest(format!("blob {}\0{text}", text.len())))
}

#[test]
fn a_minari_dataset_comes_from_its_hub_and_is_found_by_its_id() {
    let server = Server::start(hub);
    let dir = tempfile::tempdir().unwrap();
    let id = "mujoco/hopper/tiny-v0";
    let fetched = run(dir.path(), id, &options(Some(&server))).unwrap();
    let path = dir.path().join("minari").join(id);
    assert_eq!(
        (fetched.path.clone(), fetched.bytes, fetched.fresh),
        (path.clone(), content().len() as u64 + 2, true)
    );
    assert!(fs::read(path.join("data/main_data.hdf5")).unwrap() == content());
    assert_eq!(fs::read(path.join("data/metadata.json")).unwrap(), b"{}");
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    let located = catalogue(dir.path()).find(id).unwrap();
    assert_eq!(located, Located::File { path: path.clone(), origin: Origin::Minari });
    let asked = server.requests().len();
    assert!(!run(dir.path(), id, &options(Some(&server))).unwrap().fresh);
    assert_eq!(server.requests().len(), asked);
    fs::write(path.join("data/metadata.json"), "[]").unwrap();
    assert!(run(dir.path(), id, &FetchOptions { force: true, ..options(Some(&server)) }).unwrap().fresh);
    assert_eq!(fs::read(path.join("data/metadata.json")).unwrap(), b"{}");
    // Into a directory that is something else, and never in its place.
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("mine"), "").unwrap();
    let into = |out: &Path| FetchOptions { out: Some(out.into()), force: true, ..options(Some(&server)) };
    assert_eq!(run(dir.path(), id, &into(&other)).unwrap().path, other.join("tiny-v0"));
    fs::remove_dir_all(other.join("tiny-v0")).unwrap();
    fs::write(other.join("tiny-v0"), "").unwrap();
    let error = run(dir.path(), id, &into(&other)).unwrap_err().to_string();
    assert!(error.contains("found something else") && other.join("mine").is_file(), "{error}");
}

#[test]
fn half_a_minari_dataset_is_not_one_and_goes_on() {
    let server = Server::start(hub);
    let dir = tempfile::tempdir().unwrap();
    let (all, id) = (catalogue(dir.path()), "mujoco/hopper/tiny-v0");
    let stopped = fetch(&all, id, &options(Some(&server)), &mut |event| match event {
        FetchEvent::Progress { name, .. } if name.ends_with("metadata.json") => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert!(all.find(id).is_err() && all.all().unwrap().is_empty());
    let staged = dir.path().join("minari/mujoco/hopper/.tiny-v0.partial");
    assert!(staged.join("data/main_data.hdf5").is_file());
    // The hub has this one no longer.
    fs::write(staged.join("data/stale.hdf5"), "").unwrap();
    run(dir.path(), id, &options(Some(&server))).unwrap();
    let large = server.requests().iter().filter(|request| request.path.ends_with("main_data.hdf5")).count();
    assert_eq!(large, 1, "what was complete is not fetched again");
    assert_eq!(all.all().unwrap().len(), 1);
    assert!(!dir.path().join("minari").join(id).join("data/stale.hdf5").exists());
}

#[test]
fn a_list_that_cannot_be_trusted_or_had_is_refused_in_one_line() {
    let listed =
        |path: &str| format!(r#"[{{"type":"file","path":"{path}","size":2,"oid":"{}"}}]"#, blob("{}"));
    for (body, wanted) in [
        (listed("hopper/tiny-v0/../../../../evil"), "which belongs nowhere below the dataset"),
        (listed("/etc/passwd"), "which belongs nowhere below the dataset"),
        (listed("hopper/tiny-v0/a\\u001b[2J"), "which belongs nowhere below the dataset"),
        (listed("hopper/tiny-v0/a").replace("\"oid\":\"", "\"oid\":\"zz"), "no checksum of hopper/tiny-v0/a"),
        (format!("[{0},{0}]", listed("hopper/tiny-v0/a").trim_matches(['[', ']'])), "names a file twice"),
        ("[]".into(), "a list without files"),
        ("{\"error\": \"Repository\\nnot found\"}".into(), "something that is not a list of files: {"),
    ] {
        let server = Server::start(move |_, reply| {
            reply.head("200 OK", &[]);
            reply.raw(&body);
        });
        let dir = tempfile::tempdir().unwrap();
        let error =
            run(dir.path(), "mujoco/hopper/tiny-v0", &options(Some(&server))).unwrap_err().to_string();
        assert!(error.contains(wanted) && error.contains("minari download mujoco/hopper/tiny-v0"), "{error}");
        assert!(!error.contains(['\n', '\u{1b}']), "{error}");
        assert!(!dir.path().join("minari").exists() && !dir.path().join("evil").exists());
    }
    // A list whose next page is elsewhere on the machine.
    let server = Server::start(|_, reply| {
        reply.head("200 OK", &[("Link", "<file:///etc/passwd>; rel=\"next\"")]);
        reply.raw("[]");
    });
    let dir = tempfile::tempdir().unwrap();
    let error = run(dir.path(), "mujoco/hopper/tiny-v0", &options(Some(&server))).unwrap_err().to_string();
    assert!(error.contains("file:///etc/passwd"), "{error}");
}

#[test]
fn an_unknown_id_is_answered_with_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |id: &str, wanted: &str| {
        let error = run(dir.path(), id, &options(None)).unwrap_err().to_string();
        assert!(error.contains(wanted) && !error.contains('\n'), "{error}");
    };
    refused("hoper-medium-v2", "did you mean `hopper-medium-v2`?");
    refused("hopper-medium", "did you mean `hopper-medium-");
    refused("neorl2:DMS", "did you mean `neorl2:DMSD`?");
    refused("a/../b-v0", "an id of Minari");
    refused("x\n", "--list");
    let url = FetchOptions { url: Some("http://127.0.0.1/".into()), ..options(None) };
    let error = run(dir.path(), "mujoco/hopper/tiny-v0", &url).unwrap_err().to_string();
    assert!(error.contains("use --mirror"), "{error}");
    let url = FetchOptions { url: Some("file:///etc/passwd".into()), ..options(None) };
    assert!(run(dir.path(), "hopper-medium-v2", &url).unwrap_err().to_string().contains("http://"));
}

#[test]
fn d4rls_file_is_checked_whatever_the_address() {
    // Only the real bytes would do; everything before them is here.
    let server = Server::start(|request, reply| reply.file(request, &content(), &[]));
    let dir = tempfile::tempdir().unwrap();
    let url = FetchOptions { url: Some(format!("{}anything", server.root)), ..options(None) };
    let error = run(dir.path(), "hopper-medium-v2", &url).unwrap_err().to_string();
    let target = dir.path().join("d4rl/hopper_medium-v2.hdf5");
    for piece in [
        "wanted it (152756557 bytes) from http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2/hopper_medium-v2.hdf5",
        "found a file of 200008 bytes at http://127.0.0.1",
        &format!("curl -L --create-dirs -o {} http://rail", target.display()),
        "5bdf1bc4a713c82941de44633df669b36c89850b652a25985166796d25cf71a0",
    ] {
        assert!(error.contains(piece), "`{piece}` is missing in: {error}");
    }
    let error = run(dir.path(), "neorl2:Fusion", &url).unwrap_err().to_string();
    assert!(
        error.contains("MD5 ") && error.contains("| md5sum -c") && error.contains("Fusion-train.npz"),
        "{error}"
    );
}

#[test]
fn all_that_is_available_is_listed_once() {
    let mut ids: Vec<String> = available().into_iter().map(|set| set.id).collect();
    assert_eq!(ids.len(), 96);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 96);
}
