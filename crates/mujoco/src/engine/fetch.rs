//! Fetches the engine and the bodies' descriptions once, from wheels pinned by version and hash.
//!
//! The user's own pip does the download, so that its mirrors, proxies and caches apply. Only the wanted files are
//! unpacked, each wheel into its own directory of the cache, which appears whole or not at all. Each file is pinned, too:
//! whoever can write to the cache must not choose what is loaded.

use std::fs::{self, File};
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::process::Command;

use offing::home::{Home, partial_name};
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
    /// The wanted files with their SHA-256.
    members: &'static [(&'static str, &'static str)],
}

/// Gymnasium's MJCF bodies (MIT).
pub(crate) const GYMNASIUM: Wheel = Wheel {
    package: "gymnasium",
    version: "1.4.0",
    sha256: "1cb947c59e7c72d8eabb2c2274c00cd20948e69f8452a9ef4092223be24fdf0e",
    platform: None,
    folder: "gymnasium/envs/mujoco/assets",
    members: &[
        ("ant.xml", "cd5f83ef0ea35b0969e65d360c5bacd5b74ccaef6b27e4433b5168c605e3e2be"),
        ("half_cheetah.xml", "11797a5d69e8ac955e89ca6fdd3a0087f1c990094fda401ac51420de1b6c5494"),
        ("hopper.xml", "3ce93a055ffdcd83c0c701d2400768e40d2cbb9532f3c4ae33377c27f8b39f9e"),
        ("walker2d.xml", "ac13373c7ac9003a5311c4704b314ed11149b3dd7600bbc02770487300f9ad2d"),
        ("walker2d_v5.xml", "6bed53a6cc3ca73c4fe8ac3486d3b4228927264a6454f4ef16d3eed3c58bc09d"),
    ],
};

/// D4RL's ant for the mazes (Apache-2.0).
pub(crate) const D4RL: Wheel = Wheel {
    package: "d4rl",
    version: "1.1",
    sha256: "9b7757a4fd2d9e902548a2df7c296e4d42160320965fddfd8e7377bae001e852",
    platform: None,
    folder: "d4rl/locomotion/assets",
    members: &[("ant.xml", "b0e8ff5fe6ed320608e16982d82e20013dfcb1dd443f4af5bcd340202724a57f")],
};

/// The engine itself (Apache-2.0), where a wheel for this platform exists; its one member is the library.
/// [`Wheel::request`] fixes the Python tag, so that the same wheel comes whatever Python runs pip: only the C library in it
/// is used.
pub(crate) fn engine() -> Option<Wheel> {
    use std::env::consts::{ARCH, OS};
    let (platform, sha256, members): (_, _, &[_]) = match (OS, ARCH) {
        ("linux", "x86_64") => (
            "manylinux_2_28_x86_64",
            "d66928d86a2d1b601bbaa4dc11db50214d17d5301bb8afd84721313b67ff0874",
            &[("libmujoco.so.3.17.0", "23496b023ee80fb61ab71167e94bc649f9941710fde96b18bb8204fb332523ad")],
        ),
        ("linux", "aarch64") => (
            "manylinux_2_28_aarch64",
            "91a70ed9979c383ff1f5c03f25cc2e1280a8254c1a8e558d5dd7f4184f01efc9",
            &[("libmujoco.so.3.17.0", "e2edd0204fb9229f75f332a4fcd1a32345bb9f90651dc0fddfa20ec0670db789")],
        ),
        ("macos", "aarch64") => (
            "macosx_11_0_arm64",
            "6c324addca24a24a7b0beff2ec49300e9d4481fd8ccd611514ba7ea8e4a5e870",
            &[("libmujoco.3.17.0.dylib", "454d51fa639100018579716bd68e61285e9b53c9241b029680d82dec95bc8d53")],
        ),
        ("windows", "x86_64") => (
            "win_amd64",
            "390c4820796e2b905f64f011ae3c307d686f8548a3571b7420da0001ee6faaf2",
            &[("mujoco.dll", "c395db1b3f5110a730c4b0c31b7a4f29881af459c8a74a03e14b7683f022d57f")],
        ),
        _ => return None,
    };
    let platform = Some(platform);
    Some(Wheel { package: "mujoco", version: "3.17.0", sha256, platform, folder: "mujoco", members })
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

/// The directory that holds the files of a wheel, if all are there.
fn cached(home: &Home, wheel: &Wheel) -> Option<PathBuf> {
    let dir = home.root().join(KIND).join(wheel.name());
    wheel.members.iter().all(|(name, _)| dir.join(name).is_file()).then_some(dir)
}

/// The engine's library in the cache, if it is there: the pinned one, where nobody else can change it between this look and
/// the loading.
pub(crate) fn cached_library(home: &Home) -> Result<Option<PathBuf>> {
    let Some(wheel) = engine() else { return Ok(None) };
    let Some(dir) = cached(home, &wheel) else { return Ok(None) };
    let path = dir.join(wheel.members[0].0);
    home.check_owner(&path)?;
    read(&dir, &wheel, wheel.members[0].0)?;
    Ok(Some(path))
}

/// The content of a fetched file, once it is found to be the pinned one.
pub(crate) fn read(dir: &Path, wheel: &Wheel, name: &str) -> Result<Vec<u8>> {
    let path = dir.join(name);
    let bytes = fs::read(&path).map_err(|e| Error::io(&path, "read", e))?;
    let pinned = wheel.members.iter().find(|(member, _)| *member == name).map_or("", |(_, sha256)| sha256);
    let found = sha256(&bytes);
    if found == pinned {
        return Ok(bytes);
    }
    let (package, version) = (wheel.package, wheel.version);
    Err(Error::file(
        &path,
        format!(
            "wanted the file of {package} {version} with sha256 {pinned}, found {found}; remove {} to fetch it again",
            dir.display()
        ),
    ))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The directory that holds the files of a wheel, fetched first if need be. What is in them is for [`read`] to check.
pub(crate) fn fetch(home: &Home, wheel: &Wheel, progress: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    if let Some(dir) = cached(home, wheel) {
        return Ok(dir);
    }
    let _lock = home.lock(KIND, &wheel.name())?;
    if let Some(dir) = cached(home, wheel) {
        return Ok(dir); // another process fetched it while this one waited
    }
    progress(&format!("fetching {} {} with pip (once)…", wheel.package, wheel.version));
    let place = home.dir(KIND)?;
    let dir = place.join(wheel.name());
    sweep(&place, &wheel.name());
    let work = place.join(partial_name(&wheel.name()));
    let unpacked = work.join("files");
    let result = private_dir(&work)
        .and_then(|()| download(wheel, &work))
        .and_then(|file| unpack(wheel, &file, &unpacked))
        .and_then(|()| {
            // An incomplete directory can only be one that someone damaged by hand.
            let _ = fs::remove_dir_all(&dir);
            fs::rename(&unpacked, &dir).map_err(|e| Error::io(&dir, "put the fetched files in place", e))
        });
    // Best effort: only the download is left.
    let _ = fs::remove_dir_all(&work);
    result.map(|()| dir)
}

/// Removes what a killed process left of the same download. The caller holds its lock.
fn sweep(place: &Path, name: &str) {
    let (start, entries) = (format!(".{name}."), fs::read_dir(place).into_iter().flatten().flatten());
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with(&start) && name.ends_with(".partial") {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Makes a new directory that only this user can write to, whatever the umask.
fn private_dir(path: &Path) -> Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o755);
    builder.create(path).map_err(|e| Error::io(path, "create the directory", e))
}

/// A Python that takes no code from the working directory, where a stranger's dataset may lie with a `csv.py` beside it, nor
/// from the environment.
pub fn python(program: &str) -> Command {
    let mut command = elsewhere(program);
    command.arg("-I");
    command
}

/// A program, to be started where nothing lies beside it.
fn elsewhere(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(std::path::MAIN_SEPARATOR_STR);
    command
}

/// Runs the first pip that exists and returns the wheel it brought.
fn download(wheel: &Wheel, into: &Path) -> Result<PathBuf> {
    let into = &std::path::absolute(into).map_err(|e| Error::io(into, "find", e))?;
    let module = |program| {
        let mut command = python(program);
        command.args(["-m", "pip"]);
        command
    };
    let pips = [module("python3"), module("python"), elsewhere("pip3"), elsewhere("pip")];
    let mut said = String::from("no python3, python, pip3 or pip on the PATH");
    for mut pip in pips {
        let run = pip
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
    let members: Vec<String> =
        wheel.members.iter().map(|(name, _)| format!("{}/{name}", wheel.folder)).collect();
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
fn unpack(wheel: &Wheel, file: &Path, into: &Path) -> Result<()> {
    let bytes = fs::read(file).map_err(|e| Error::io(file, "read", e))?;
    let found = sha256(&bytes);
    if found != wheel.sha256 {
        return Err(Error::file(
            file,
            format!(
                "wanted {} {} with sha256 {}, found {found}; check the package index that pip uses",
                wheel.package, wheel.version, wheel.sha256
            ),
        ));
    }
    private_dir(into)?;
    let damaged =
        |e: zip::result::ZipError| Error::file(file, format!("not a readable wheel: {}", one_line(&e)));
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).map_err(damaged)?;
    for (name, _) in wheel.members {
        let mut source = archive.by_name(&format!("{}/{name}", wheel.folder)).map_err(damaged)?;
        let path = into.join(name);
        let mut options = File::options();
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o644);
        (options.write(true).create_new(true).open(&path))
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

    #[test]
    fn a_planted_or_changed_file_is_refused_in_one_line() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("hopper.xml"), "<mujoco/>").unwrap();
        let error = read(dir.path(), &GYMNASIUM, "hopper.xml").unwrap_err().to_string();
        assert!(error.contains("with sha256 3ce93a") && error.contains("remove"), "{error}");
        let wheel = engine().expect("a pinned wheel for the platform the tests run on");
        let home = Home::new(dir.path().join("home"));
        let place = home.dir(KIND).unwrap().join(wheel.name());
        private_dir(&place).unwrap();
        fs::write(place.join(wheel.members[0].0), b"planted").unwrap();
        let error = cached_library(&home).unwrap_err().to_string();
        assert!(error.contains("wanted the file of mujoco 3.17.0 with sha256"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_place_that_others_can_write_to_is_refused_in_one_line() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let wheel = engine().expect("a pinned wheel for the platform the tests run on");
        let home = Home::new(dir.path());
        let place = home.dir(KIND).unwrap().join(wheel.name());
        private_dir(&place).unwrap();
        fs::write(place.join(wheel.members[0].0), b"").unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o777)).unwrap();
        let error = cached_library(&home).unwrap_err().to_string();
        assert!(error.contains("others can write to") && error.lines().count() == 1, "{error}");
    }

    #[test]
    fn what_a_killed_fetch_left_is_removed_and_a_neighbour_stays() {
        let dir = tempfile::tempdir().unwrap();
        for name in [".d4rl-1.1.7.partial", ".gymnasium-1.4.0.7.partial"] {
            fs::create_dir_all(dir.path().join(name).join("files")).unwrap();
        }
        sweep(dir.path(), &D4RL.name());
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, [".gymnasium-1.4.0.7.partial"]);
    }
}
