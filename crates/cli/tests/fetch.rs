//! `offing data fetch` as a user meets it, against a server on this machine.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "the library's tests use all of it")]
#[path = "../../offing/src/data/fetch/test_server.rs"]
mod test_server;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use sha2::{Digest, Sha256};
use test_server::Server;

/// The program with a home of its own, and no proxy between it and this machine.
fn command(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_offing"));
    command
        .args(args)
        .env("OFFING_HOME", root.join("home"))
        .env("D4RL_DATASET_DIR", root.join("d4rl"))
        .env("MINARI_DATASETS_PATH", root.join("minari"));
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name).env_remove(name.to_ascii_uppercase());
    }
    command
}

fn offing(root: &Path, args: &[&str]) -> Output {
    command(root, args).output().unwrap()
}

fn stdout(root: &Path, args: &[&str]) -> String {
    let output = offing(root, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Wants exit code 2 and one line that holds every given piece.
fn refused(root: &Path, args: &[&str], pieces: &[&str]) {
    let output = offing(root, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), error.trim_end().lines().count()), (Some(2), 1), "{args:?}: {error}");
    for piece in pieces {
        assert!(error.contains(piece), "`{piece}` missing in: {error}");
    }
}

/// A hub that has the files of a directory as the Minari dataset `mujoco/hopper/tiny-v0`.
fn hub(dir: &Path) -> Server {
    let names = ["main_data.hdf5", "metadata.json"];
    let files = names.map(|name| (name, fs::read(dir.join("data").join(name)).unwrap()));
    Server::start(move |request, reply| {
        if request.path.starts_with("/api/datasets/farama-minari/mujoco/tree/main/hopper/tiny-v0") {
            let entries = files.each_ref().map(|(name, bytes)| {
                let digits: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
                let large = serde_json::json!({ "oid": digits, "size": bytes.len() });
                let path = format!("hopper/tiny-v0/data/{name}");
                serde_json::json!({ "type": "file", "path": path, "size": bytes.len(), "oid": "", "lfs": large })
            });
            return reply.file(request, serde_json::json!(entries).to_string().as_bytes(), &[]);
        }
        match files.iter().find(|(name, _)| request.path.ends_with(name)) {
            // The first answer breaks off.
            Some((name, bytes)) if *name == "main_data.hdf5" && request.start() == 0 => {
                reply.some_of_file(request, bytes, &[("ETag", "\"1\"")], bytes.len() / 2);
            }
            Some((_, bytes)) => reply.file(request, bytes, &[("ETag", "\"1\"")]),
            None => reply.status("404 Not Found", &[]),
        }
    })
}

#[test]
fn a_minari_dataset_comes_through_a_mirror_of_the_settings_and_is_read_by_its_id() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let rows: String = (0..40).map(|i| format!("{}.5,0.25,1,{}.5,0,{}\n", i, i + 1, i / 39)).collect();
    fs::write(root.join("log.csv"), format!("obs_0,act_0,reward,next_obs_0,done,timeout\n{rows}")).unwrap();
    let (log, made) = (root.join("log.csv"), root.join("tiny-v0"));
    stdout(root, &["-q", "data", "convert", log.to_str().unwrap(), made.to_str().unwrap()]);
    let server = hub(&made);
    fs::create_dir_all(root.join("home")).unwrap();
    let settings = format!("\"https://huggingface.co/\" = [\"{}\"]\n", server.root);
    fs::write(root.join("home/mirrors.toml"), settings).unwrap();

    let (id, json) = ("mujoco/hopper/tiny-v0", root.join("fetched.json"));
    let args = ["-q", "data", "fetch", id, "--json", json.to_str().unwrap()];
    let path = stdout(root, &args);
    assert_eq!(Path::new(path.trim_end()), root.join("minari").join(id));
    let fetched: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!((&fetched["id"], &fetched["fresh"]), (&id.into(), &true.into()));
    let large = server.requests().into_iter().filter(|r| r.path.ends_with("main_data.hdf5"));
    let large: Vec<_> = large.collect();
    assert!(large.len() == 2 && large[1].start() > 0 && large[1].headers["if-range"] == "\"1\"", "{large:?}");

    let info = stdout(root, &["data", "info", id]);
    assert!(info.contains("(Minari, ") && info.contains("40 of "), "{info}");
    assert!(stdout(root, &["data", "list"]).contains(id));
    assert_eq!(stdout(root, &args), path, "a second call finds it");
    let fetched: serde_json::Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(fetched["fresh"], false);
}

#[test]
fn a_login_page_is_refused_with_the_command_that_would_do() {
    let server = Server::start(|_, reply| {
        reply.head("200 OK", &[("Content-Type", "text/html")]);
        reply.raw("<html>Welcome to the hotel</html>");
    });
    let dir = tempfile::tempdir().unwrap();
    let url = format!("{}x", server.root);
    let target = dir.path().join("d4rl/hopper_medium-v2.hdf5");
    let place = format!("curl -L --create-dirs -o {} http://rail.eecs.berkeley.edu/", target.display());
    let pieces = ["found a web page", place.as_str(), "sha256sum -c", "--mirror"];
    refused(dir.path(), &["data", "fetch", "hopper-medium-v2", "--url", &url], &pieces);
    let mirror = format!("http://rail.eecs.berkeley.edu/={}", server.root);
    // The published address is not asked: nothing of this test leaves the machine.
    let elsewhere = ["--url", "http://127.0.0.1:9/x", "--mirror", &mirror];
    refused(
        dir.path(),
        &[&["data", "fetch", "hopper-medium-v2"], &elsewhere[..]].concat(),
        &["no connection ("],
    );
    assert_eq!(fs::read_dir(dir.path().join("d4rl")).unwrap().count(), 0);
    refused(dir.path(), &["data", "audit", "hopper-medium-v2"], &["`offing data fetch hopper-medium-v2`"]);
}

#[test]
fn wrong_requests_are_refused_before_anything_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    refused(dir.path(), &["data", "fetch", "hoper-medium-v2"], &["did you mean `hopper-medium-v2`?"]);
    refused(dir.path(), &["data", "fetch", "hopper-medium-v2", "--mirror", "x=y"], &["PREFIX=ADDRESS"]);
    refused(dir.path(), &["data", "fetch", "a/../../b-v0"], &["an id of Minari"]);
    fs::create_dir_all(dir.path().join("home")).unwrap();
    fs::write(dir.path().join("home/mirrors.toml"), "\"http://a/\" = 1").unwrap();
    refused(dir.path(), &["data", "fetch", "hopper-medium-v2"], &["mirrors.toml: line 1: "]);
    let list = stdout(dir.path(), &["data", "fetch", "--list"]);
    for piece in ["hopper-medium-v2", "152.8 MB", "rail.eecs.berkeley.edu", "neorl2:DMSD", "Minari"] {
        assert!(list.contains(piece), "`{piece}` missing in: {list}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_keeps_what_came() {
    let server = Server::start(|_, reply| {
        reply.head("200 OK", &[("Content-Length", "152756557")]);
        while reply.raw([1; 1000]) {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let url = format!("{}x", server.root);
    let child = command(dir.path(), &["data", "fetch", "hopper-medium-v2", "--url", &url])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let partial = dir.path().join("d4rl/hopper_medium-v2.hdf5.partial");
    while fs::metadata(&partial).map_or(0, |meta| meta.len()) < 3000 {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("what was fetched is kept") && said.contains("the same command goes on"), "{said}");
    assert!(fs::metadata(&partial).unwrap().len() >= 3000);
}
