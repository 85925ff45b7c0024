//! Strangers' files beside one's own, and homes and runs that others have touched.

#[allow(dead_code)]
mod common;

use std::fs;

use common::command;

#[test]
fn code_in_the_working_directory_does_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let ran = dir.path().join("ran");
    let code = format!("open({:?}, 'w').write(__name__)\n", ran.display().to_string());
    // `importlib.metadata` imports csv, `-m pip` runs pip.
    for name in ["csv.py", "pip.py", "importlib.py", "sitecustomize.py"] {
        fs::write(dir.path().join(name), &code).unwrap();
    }
    let output = command(&["doctor"])
        .current_dir(dir.path())
        .env("PYTHONPATH", dir.path())
        .env("OFFING_HOME", dir.path().join("home"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("pip"), "{output:?}");
    assert!(!ran.exists(), "{:?} ran", fs::read_to_string(&ran));
}
