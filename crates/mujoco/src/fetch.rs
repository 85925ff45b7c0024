//! What is fetched once: the engine and the bodies' descriptions, out of wheels pinned by version and hash.
//!
//! The user's own pip does the download, so that its mirrors, proxies and caches apply. Only the files named here
//! are unpacked, each wheel into its own directory of the cache, which appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use offing::home::Home;
use offing::{Error, Result};
use sha2::{Digest, Sha256};

use crate::api::one_line;

/// Kind of artefact in [`Home`] under which everything of this crate is kept.
pub(crate) const KIND: &str = "mujoco";

/// One pinned wheel and what is wanted of it.
#[derive(Debug)]
pub(crate) struct Wheel {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    sha256: &'static str,
    /// Platform tag given to pip; `None` for a wheel of pure Python.
    platform: Option<&'static str>,
    /// Paths inside the wheel; the last component is the name in the cache.
    members: &'static [&'static str],
}

/// Gymnasium's MJCF bodies (MIT).
pub(crate) const GYMNASIUM: Wheel = Wheel {
    package: "gymnasium",
    version: "1.4.0",
    sha256: "1cb947c59e7c72d8eabb2c2274c00cd20948e69f8452a9ef4092223be24fdf0e",
    platform: None,
    members: &[
        "gymnasium/envs/mujoco/assets/ant.xml",
        "gymnasium/envs/mujoco/assets/half_cheetah.xml",
        "gymnasium/envs/mujoco/assets/hopper.xml",
        "gymnasium/envs/mujoco/assets/walker2d.xml",
        "gymnasium/envs/mujoco/assets/walker2d_v5.xml",
    ],
};

/// D4RL's ant for the mazes (Apache-2.0).
pub(crate) const D4RL: Wheel = Wheel {
    package: "d4rl",
    version: "1.1",
    sha256: "9b7757a4fd2d9e902548a2df7c296e4d42160320965fddfd8e7377bae001e852",
    platform: None,
    members: &["d4rl/locomotion/assets/ant.xml"],
};

/// The engine itself (Apache-2.0), where a wheel for this platform exists. The Python tag is fixed so that the same
/// wheel comes whatever Python runs pip: only the C library in it is used.
pub(crate) const fn engine() -> Option<Wheel> {
    let (platform, sha256, members): (_, _, &[&str]) =
        if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            (
                "manylinux_2_28_x86_64",
                "d66928d86a2d1b601bbaa4dc11db50214d17d5301bb8afd84721313b67ff0874",
                &["mujoco/libmujoco.so.3.17.0"],
            )
        } else if cfg!(all(target_os = "linux", target_arch = "aarch64")) {
            (
                "manylinux_2_28_aarch64",
                "91a70ed9979c383ff1f5c03f25cc2e1280a8254c1a8e558d5dd7f4184f01efc9",
                &["mujoco/libmujoco.so.3.17.0"],
            )
        } else if cfg!(all(target_os = "macos", target_arch = "aarch64")) {
            (
                "macosx_11_0_arm64",
                "6c324addca24a24a7b0beff2ec49300e9d4481fd8ccd611514ba7ea8e4a5e870",
                &["mujoco/libmujoco.3.17.0.dylib"],
            )
        } else if cfg!(all(target_os = "windows", target_arch = "x86_64")) {
            (
                "win_amd64",
                "390c4820796e2b905f64f011ae3c307d686f8548a3571b7420da0001ee6faaf2",
                &["mujoco/mujoco.dll"],
            )
        } else {
            return None;
        };
    Some(Wheel { package: "mujoco", version: "3.17.0", sha256, platform: Some(platform), members })
}

impl Wheel {
    /// Name of the wheel's directory in the cache.
    fn name(&self) -> String {
        format!("{}-{}", self.package, self.version)
    }

    /// What pip is asked, without the destination.
    fn request(&self) -> Vec<String> {
        let mut words: Vec<String> =
            ["download", "--no-deps", "--only-binary=:all:", "--python-version=3.11"]
                .map(String::from)
                .to_vec();
        if let Some(platform) = self.platform {
            words.extend([
                "--implementation=cp".into(),
                "--abi=cp311".into(),
                format!("--platform={platform}"),
            ]);
        }
        words.push(format!("{}=={}", self.package, self.version));
        words
    }

    /// The names under which the members lie in the cache.
    fn file_names(&self) -> impl Iterator<Item = &'static str> {
        self.members.iter().map(|member| member.rsplit('/').next().unwrap_or(member))
    }
}

/// The directory that holds the wheel's files, if it is complete.
pub(crate) fn cached(home: &Home, wheel: &Wheel) -> Option<PathBuf> {
    let dir = home.root().join(KIND).join(wheel.name());
    wheel.file_names().all(|name| dir.join(name).is_file()).then_some(dir)
}

/// The directory that holds the wheel's files, fetched first if need be.
pub(crate) fn files(home: &Home, wheel: &Wheel, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    if let Some(dir) = cached(home, wheel) {
        return Ok(dir);
    }
    let _lock = home.lock(KIND, &wheel.name())?;
    if let Some(dir) = cached(home, wheel) {
        return Ok(dir); // another process made it while this one waited
    }
    progress(&format!("fetching {} {} with pip (once)…", wheel.package, wheel.version));
    let dir = home.dir(KIND)?.join(wheel.name());
    let work = home.dir(KIND)?.join(format!(".{}.{}.partial", wheel.name(), std::process::id()));
    let result =
        download(wheel, &work).and_then(|file| unpack(wheel, &file, &work.join("files"))).and_then(|()| {
            // An incomplete directory can only be one that someone damaged by hand.
            let _ = fs::remove_dir_all(&dir);
            fs::rename(work.join("files"), &dir)
                .map_err(|e| Error::io(&dir, "put the fetched files in place", e))
        });
    // Best effort: what is left is only the download.
    let _ = fs::remove_dir_all(&work);
    result.map(|()| dir)
}

/// Runs the first pip that exists and returns the wheel it brought.
fn download(wheel: &Wheel, into: &Path) -> Result<PathBuf> {
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
    Err(Error::Invalid(by_hand(wheel, into, &said)))
}

/// The message when pip could not help: the exact command, and where its result belongs.
fn by_hand(wheel: &Wheel, work: &Path, said: &str) -> String {
    let cache = work.parent().unwrap_or(work).join(wheel.name());
    let place = format!("unzip {} from it into {}", wheel.members.join(", "), cache.display());
    let other = if wheel.platform.is_some() { ", or set MUJOCO_LIB to the library's path" } else { "" };
    format!(
        "cannot fetch {} {}: {said}; on a machine with network run `pip {}`, then {place}{other}",
        wheel.package,
        wheel.version,
        wheel.request().join(" "),
    )
}

fn the_wheel(wheel: &Wheel, dir: &Path) -> Result<PathBuf> {
    let listing = fs::read_dir(dir).map_err(|e| Error::io(dir, "list", e))?;
    let mut wheels = listing
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "whl"));
    wheels
        .next()
        .ok_or_else(|| Error::file(dir, format!("pip ended well but left no wheel of {}", wheel.package)))
}

/// Checks the hash, then writes the wanted members.
fn unpack(wheel: &Wheel, file: &Path, into: &Path) -> Result<()> {
    let found = hash(file).map_err(|e| Error::io(file, "read", e))?;
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
    let reader = File::open(file).map_err(|e| Error::io(file, "read", e))?;
    let damaged =
        |e: zip::result::ZipError| Error::file(file, format!("not a readable wheel: {}", one_line(&e)));
    let mut archive = zip::ZipArchive::new(reader).map_err(damaged)?;
    for (member, name) in wheel.members.iter().zip(wheel.file_names()) {
        let mut source = archive.by_name(member).map_err(damaged)?;
        let path = into.join(name);
        File::create(&path)
            .and_then(|mut target| io::copy(&mut source, &mut target).and_then(|_| target.sync_all()))
            .map_err(|e| Error::io(&path, "write", e))?;
    }
    Ok(())
}

fn hash(file: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut reader = File::open(file)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.read(&mut buffer)? {
            0 => break,
            n => hasher.update(&buffer[..n]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_with_another_hash_is_refused_and_nothing_is_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("gymnasium.whl");
        fs::write(&file, b"not the pinned wheel").unwrap();
        let error = unpack(&GYMNASIUM, &file, &dir.path().join("files")).unwrap_err().to_string();
        assert!(error.contains("wanted gymnasium 1.4.0 with sha256 1cb947"), "{error}");
        assert!(!dir.path().join("files").exists());
    }

    #[test]
    fn without_pip_the_message_holds_the_command_and_the_place() {
        let wheel = engine().expect("a pinned wheel for the platform the tests run on");
        let text = by_hand(&wheel, Path::new("cache/mujoco/.x.partial"), "no network");
        let place = Path::new("cache/mujoco/mujoco-3.17.0").display().to_string();
        for part in ["pip download --no-deps", "mujoco==3.17.0", &place, "MUJOCO_LIB", "no network"] {
            assert!(text.contains(part), "`{part}` is missing in: {text}");
        }
        assert_eq!(text.lines().count(), 1);
    }
}
