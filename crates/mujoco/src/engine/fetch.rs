//! Fetches the engine and the bodies' descriptions once, from wheels pinned by version and hash.
//!
//! The user's own pip does the download, so that its mirrors, proxies and caches apply. Only the wanted files are
//! unpacked, each wheel into its own directory of the cache, which appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::process::Command;

use offing::home::Home;
use offing::{Error, Result};
use sha2::{Digest, Sha256};

use super::api::one_line;

/// Kind of artefact in [`Home`] under which this crate keeps everything.
const KIND: &str = "mujoco";

/// One pinned wheel.
#[derive(Debug)]
pub(crate) struct Wheel {
    pub(crate) package: &'static str,
    version: &'static str,
    sha256: &'static str,
    /// Platform tag given to pip; `None` for a wheel of pure Python.
    platform: Option<&'static str>,
    /// The folder inside the wheel that holds the wanted files.
    folder: &'static str,
}

/// Gymnasium's MJCF bodies (MIT).
pub(crate) const GYMNASIUM: Wheel = Wheel {
    package: "gymnasium",
    version: "1.4.0",
    sha256: "1cb947c59e7c72d8eabb2c2274c00cd20948e69f8452a9ef4092223be24fdf0e",
    platform: None,
    folder: "gymnasium/envs/mujoco/assets",
};

/// D4RL's ant for the mazes (Apache-2.0).
pub(crate) const D4RL: Wheel = Wheel {
    package: "d4rl",
    version: "1.1",
    sha256: "9b7757a4fd2d9e902548a2df7c296e4d42160320965fddfd8e7377bae001e852",
    platform: None,
    folder: "d4rl/locomotion/assets",
};

/// The engine itself (Apache-2.0) and its library, where a wheel for this platform exists. [`Wheel::request`] fixes the
/// Python tag, so that the same wheel comes whatever Python runs pip: only the C library in it is used.
pub(crate) fn engine() -> Option<(Wheel, &'static str)> {
    use std::env::consts::{ARCH, OS};
    let (platform, library, sha256) = match (OS, ARCH) {
        ("linux", "x86_64") => (
            "manylinux_2_28_x86_64",
            "libmujoco.so.3.17.0",
            "d66928d86a2d1b601bbaa4dc11db50214d17d5301bb8afd84721313b67ff0874",
        ),
        ("linux", "aarch64") => (
            "manylinux_2_28_aarch64",
            "libmujoco.so.3.17.0",
            "91a70ed9979c383ff1f5c03f25cc2e1280a8254c1a8e558d5dd7f4184f01efc9",
        ),
        ("macos", "aarch64") => (
            "macosx_11_0_arm64",
            "libmujoco.3.17.0.dylib",
            "6c324addca24a24a7b0beff2ec49300e9d4481fd8ccd611514ba7ea8e4a5e870",
        ),
        ("windows", "x86_64") => {
            ("win_amd64", "mujoco.dll", "390c4820796e2b905f64f011ae3c307d686f8548a3571b7420da0001ee6faaf2")
        }
        _ => return None,
    };
    let platform = Some(platform);
    Some((Wheel { package: "mujoco", version: "3.17.0", sha256, platform, folder: "mujoco" }, library))
}

impl Wheel {
    /// Name of the wheel's directory in the cache.
    fn name(&self) -> String {
        format!("{}-{}", self.package, self.version)
    }

    /// What pip is asked, without the destination.
    fn request(&self) -> Vec<String> {
        let fixed = ["download", "--no-deps", "--only-binary=:all:", "--python-version=3.11"];
        let mut words = fixed.map(String::from).to_vec();
        if let Some(platform) = self.platform {
            words.extend(["--implementation=cp", "--abi=cp311"].map(String::from));
            words.push(format!("--platform={platform}"));
        }
        words.push(format!("{}=={}", self.package, self.version));
        words
    }
}

/// The directory that holds these files of a wheel, if all are there.
pub(crate) fn cached(home: &Home, wheel: &Wheel, files: &[&str]) -> Option<PathBuf> {
    let dir = home.root().join(KIND).join(wheel.name());
    files.iter().all(|name| dir.join(name).is_file()).then_some(dir)
}

/// The directory that holds these files of a wheel, fetched first if need be.
pub(crate) fn fetch(
    home: &Home,
    wheel: &Wheel,
    files: &[&str],
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf> {
    if let Some(dir) = cached(home, wheel, files) {
        return Ok(dir);
    }
    let _lock = home.lock(KIND, &wheel.name())?;
    if let Some(dir) = cached(home, wheel, files) {
        return Ok(dir); // another process fetched it while this one waited
    }
    progress(&format!("fetching {} {} with pip (once)…", wheel.package, wheel.version));
    let dir = home.dir(KIND)?.join(wheel.name());
    let work = home.dir(KIND)?.join(format!(".{}.{}.partial", wheel.name(), std::process::id()));
    let unpacked = work.join("files");
    let result = download(wheel, files, &work)
        .and_then(|file| unpack(wheel, files, &file, &unpacked))
        .and_then(|()| {
            // An incomplete directory can only be one that someone damaged by hand.
            let _ = fs::remove_dir_all(&dir);
            fs::rename(&unpacked, &dir).map_err(|e| Error::io(&dir, "put the fetched files in place", e))
        });
    // Best effort: only the download is left.
    let _ = fs::remove_dir_all(&work);
    result.map(|()| dir)
}

/// Runs the first pip that exists and returns the wheel it brought.
fn download(wheel: &Wheel, files: &[&str], into: &Path) -> Result<PathBuf> {
    fs::create_dir_all(into).map_err(|e| Error::io(into, "create the directory", e))?;
    let pips: [&[&str]; 4] = [&["python3", "-m", "pip"], &["python", "-m", "pip"], &["pip3"], &["pip"]];
    let mut said = String::from("no python3, python, pip3 or pip on the PATH");
    for pip in pips {
        let run = Command::new(pip[0])
            .args(&pip[1..])
            .args(wheel.request())
            .args(["--quiet", "--disable-pip-version-check", "--retries=2", "--timeout=20", "--dest"])
            .arg(into)
            .output();
        match run {
            Ok(output) if output.status.success() => return the_wheel(wheel, into),
            Ok(output) => {
                let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
                let last = stderr.lines().rfind(|line| !line.trim().is_empty());
                said = last.map_or_else(|| output.status.to_string(), one_line);
                if stderr.contains("Retrying") {
                    said = format!("pip cannot reach its package index ({said})");
                }
                // A Python without pip says so; one with pip has given its verdict.
                if !stderr.contains("No module named pip") {
                    break;
                }
            }
            Err(_) => continue,
        }
    }
    Err(Error::Invalid(by_hand(wheel, files, into, &said)))
}

/// The message when pip could not help: the exact command, and where its result belongs.
fn by_hand(wheel: &Wheel, files: &[&str], work: &Path, said: &str) -> String {
    let cache = work.parent().unwrap_or(work).join(wheel.name());
    let members: Vec<String> = files.iter().map(|file| format!("{}/{file}", wheel.folder)).collect();
    let other = if wheel.platform.is_some() { ", or set MUJOCO_LIB to the library's path" } else { "" };
    format!(
        "cannot fetch {} {}: {said}; on a machine with network run `pip {}`, then unzip {} from it into {}{other}",
        wheel.package,
        wheel.version,
        wheel.request().join(" "),
        members.join(", "),
        cache.display(),
    )
}

fn the_wheel(wheel: &Wheel, dir: &Path) -> Result<PathBuf> {
    let listing = fs::read_dir(dir).map_err(|e| Error::io(dir, "list", e))?;
    let mut paths = listing.flatten().map(|entry| entry.path());
    paths
        .find(|path| path.extension().is_some_and(|e| e == "whl"))
        .ok_or_else(|| Error::file(dir, format!("pip ended well but left no wheel of {}", wheel.package)))
}

/// Checks the hash, then writes the wanted files.
fn unpack(wheel: &Wheel, files: &[&str], file: &Path, into: &Path) -> Result<()> {
    let bytes = fs::read(file).map_err(|e| Error::io(file, "read", e))?;
    let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if found != wheel.sha256 {
        return Err(Error::file(
            file,
            format!(
                "wanted {} {} with sha256 {}, found {found}; check the package index that pip uses",
                wheel.package, wheel.version, wheel.sha256
            ),
        ));
    }
    fs::create_dir_all(into).map_err(|e| Error::io(into, "create the directory", e))?;
    let damaged =
        |e: zip::result::ZipError| Error::file(file, format!("not a readable wheel: {}", one_line(&e)));
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
    for name in files {
        let mut source = archive.by_name(&format!("{}/{name}", wheel.folder)).map_err(damaged)?;
        let path = into.join(name);
        File::create(&path)
            .and_then(|mut target| io::copy(&mut source, &mut target).and_then(|_| target.sync_all()))
            .map_err(|e| Error::io(&path, "write", e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_with_another_hash_is_refused_and_nothing_is_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("gymnasium.whl");
        fs::write(&file, b"not the pinned wheel").unwrap();
        let error =
            unpack(&GYMNASIUM, &["ant.xml"], &file, &dir.path().join("files")).unwrap_err().to_string();
        assert!(error.contains("wanted gymnasium 1.4.0 with sha256 1cb947"), "{error}");
        assert!(!dir.path().join("files").exists());
    }

    #[test]
    fn without_pip_the_message_holds_the_command_and_the_place() {
        let (wheel, library) = engine().expect("a pinned wheel for the platform the tests run on");
        let text = by_hand(&wheel, &[library], Path::new("cache/mujoco/.x.partial"), "no network");
        let place = Path::new("cache/mujoco/mujoco-3.17.0").display().to_string();
        for part in ["pip download --no-deps", "mujoco==3.17.0", &place, "MUJOCO_LIB", "no network"] {
            assert!(text.contains(part), "`{part}` is missing in: {text}");
        }
        assert_eq!(text.lines().count(), 1);
    }
}
