//! Finds the engine's shared library.

use std::path::{Path, PathBuf};

use offing::home::{Home, only_ours};
use offing::{Error, Result};

use super::fetch;
use super::layout::VERSION_NAME;

/// The library to load: the one named explicitly, else the cached one, else an installed Python package's of the
/// right version, else fetched.
pub(crate) fn library(
    home: &Home,
    explicit: Option<&Path>,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf> {
    if let Some(found) = present(home, explicit)? {
        return Ok(found);
    }
    let Some(wheel) = fetch::engine() else {
        return Err(Error::Invalid(format!(
            "no MuJoCo wheel is known for this platform; build or install MuJoCo {VERSION_NAME} and set MUJOCO_LIB to its library"
        )));
    };
    let dir = fetch::fetch(home, &wheel, progress)?;
    fetch::cached_library(home)?
        .ok_or_else(|| Error::file(dir, "its files were removed meanwhile; try again"))
}

/// The library that is on this machine already, if any.
pub(crate) fn present(home: &Home, explicit: Option<&Path>) -> Result<Option<PathBuf>> {
    if let Some(path) = explicit.filter(|path| !path.as_os_str().is_empty()) {
        return named(path).map(Some);
    }
    Ok(fetch::cached_library(home)?.or_else(installed))
}

/// What `$MUJOCO_LIB` names: the library itself, or a directory that holds it.
fn named(path: &Path) -> Result<PathBuf> {
    if path.is_file() {
        return Ok(path.to_path_buf());
    }
    library_in(path).ok_or_else(|| {
        Error::file(
            path,
            format!("wanted the MuJoCo {VERSION_NAME} library or its directory (MUJOCO_LIB), found neither; correct the path or unset MUJOCO_LIB"),
        )
    })
}

/// The library of the right version in a directory, by the names the releases use.
fn library_in(dir: &Path) -> Option<PathBuf> {
    let names = [
        format!("libmujoco.so.{VERSION_NAME}"),
        format!("libmujoco.{VERSION_NAME}.dylib"),
        "mujoco.dll".to_string(),
    ];
    names.iter().map(|name| dir.join(name)).find(|path| path.is_file())
}

/// The library inside an installed Python `mujoco`, found without importing it.
fn installed() -> Option<PathBuf> {
    const ASK: &str = "import importlib.util as u, importlib.metadata as m\n\
        s = u.find_spec('mujoco')\n\
        print(m.version('mujoco'), s.submodule_search_locations[0], sep='\\n')";
    ["python3", "python"].iter().find_map(|python| {
        let output = fetch::python(python).args(["-c", ASK]).output().ok().filter(|o| o.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?;
        let (version, dir) = text.trim().split_once('\n')?;
        // Another version is no error: the pinned one is fetched beside it.
        let ours = |path: &PathBuf| [path, Path::new(dir)].into_iter().all(|place| only_ours(place).is_ok());
        (version == VERSION_NAME).then(|| library_in(Path::new(dir)))?.filter(ours)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_explicit_path_is_one_clear_line() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path());
        let error = library(&home, Some(&dir.path().join("absent.so")), &mut |_| ()).unwrap_err().to_string();
        assert!(error.contains("MUJOCO_LIB") && error.contains("absent.so"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[test]
    fn a_directory_may_be_named_instead_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("libmujoco.so.{VERSION_NAME}"));
        std::fs::write(&file, b"").unwrap();
        assert_eq!(library(&Home::new(dir.path()), Some(dir.path()), &mut |_| ()).unwrap(), file);
    }
}
