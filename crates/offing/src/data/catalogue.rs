//! Dataset names: what `hopper-medium`, `hopper-medium-v2` and `./my.hdf5` mean.
//!
//! A path always wins. An id that ends in a version (`-v2`) is a real D4RL or Minari dataset in its own cache
//! directory and nothing else. A name without version is a *made* dataset, kept as
//! `datasets/<name>-<rows>-s<seed>-<hash>.hdf5` under offing's home; the hash covers the policies and the physics.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result, nearest};
use crate::home::Home;
use crate::tasks;

/// Where offing looks for datasets it did not make.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// Offing's own caches.
    pub home: Home,
    /// D4RL's cache directory (`~/.d4rl/datasets` unless `$D4RL_DATASET_DIR` says otherwise).
    pub d4rl: PathBuf,
    /// Minari's root (`~/.minari/datasets` unless `$MINARI_DATASETS_PATH` says otherwise).
    pub minari: PathBuf,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A file or directory to read.
    File {
        /// Where it is.
        path: PathBuf,
        /// Where it comes from.
        origin: Origin,
    },
    /// A made set that has not been made yet.
    ToMake(Recipe),
}

/// Where a dataset comes from; every table says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Origin {
    /// Made by offing in its own simulator.
    #[serde(rename = "made")]
    Made,
    /// A published D4RL file.
    D4RL,
    /// A published Minari dataset.
    Minari,
    /// A file the user named.
    #[serde(rename = "own")]
    Own,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Self::Made => "made",
            Self::D4RL => "D4RL",
            Self::Minari => "Minari",
            Self::Own => "own",
        })
    }
}

/// A made set by name: which body, which mix of policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The whole name, such as `hopper-medium-replay`.
    pub name: String,
    /// The task to simulate, such as `hopper` or `antmaze-umaze`.
    pub task: String,
    /// The flavour, such as `medium-replay` (`umaze` sets without a suffix: empty).
    pub flavour: String,
}

impl Recipe {
    /// Parses a made set's name.
    pub fn parse(name: &str) -> Result<Self> {
        let (name, task, flavour) =
            tasks::datasets().find(|(known, ..)| known == name).ok_or_else(|| unknown(name))?;
        Ok(Self { name, task: task.name.into(), flavour: flavour.name.into() })
    }
}

/// Every name that can be made.
pub fn made_names() -> Vec<String> {
    tasks::datasets().map(|(name, ..)| name).collect()
}

/// The set that a name, an id or a file speaks of: `hopper-medium` for `hopper-medium-v2`, `hopper_medium-v2.hdf5` and
/// `hopper-medium-1000000-s0-0a1b2c3d.hdf5`. `None` for others.
pub fn set_of(name: &str) -> Option<String> {
    let path = Path::new(name);
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let id = match (path.extension(), made_name(path), d4rl_id(stem)) {
        (Some(_), Some((made, _)), _) => made.to_string(),
        (Some(_), None, Some(id)) => id,
        (Some(_), None, None) => stem.to_string(),
        (None, ..) => name.strip_prefix("D4RL/").unwrap_or(name).replace('/', "-"),
    };
    made_names().into_iter().find(|known| known == without_version(&id))
}

/// The version of D4RL's set that an id or a file speaks of: 2 for `hopper-medium-v2`, 0 for `hopper_medium.hdf5`, as its first
/// files have none in their names. `None` for made sets and others.
pub fn version_of(name: &str) -> Option<u32> {
    let path = Path::new(name);
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let id = path.extension().and_then(|_| d4rl_id(stem)).unwrap_or_else(|| stem.into());
    id.rsplit_once("-v")?.1.parse().ok()
}

/// A dataset's name without D4RL's version: made and published sets of one name share presets and rows of the paper.
pub fn without_version(name: &str) -> &str {
    ["-v0", "-v1", "-v2"].iter().find_map(|v| name.strip_suffix(v)).unwrap_or(name)
}

fn unknown(name: &str) -> Error {
    let known = made_names();
    let hint = match nearest(name, &known) {
        Some(near) => format!("did you mean `{near}`? `offing data list` shows every name"),
        None => {
            "give a path, a D4RL or Minari id (ending in -v0, -v1 or -v2), or a name from `offing data list`"
                .into()
        }
    };
    Error::Unknown { kind: "dataset", name: name.into(), hint }
}

impl Catalogue {
    /// What `name` stands for, by the rules at the top of this module.
    pub fn find(&self, name: &str) -> Result<Found> {
        if Path::new(name).exists() {
            return Ok(Found::File { path: name.into(), origin: Origin::Own });
        }
        if is_versioned(name) {
            return self.published(name);
        }
        if looks_like_a_path(name) {
            return Err(Error::file(name, "no such file; check the path"));
        }
        let recipe = Recipe::parse(name)?;
        let mut made = self.made(&recipe.name)?;
        match made.len() {
            0 => Ok(Found::ToMake(recipe)),
            1 => Ok(Found::File { path: made.remove(0), origin: Origin::Made }),
            _ => {
                let list: Vec<String> = made.iter().map(|p| p.display().to_string()).collect();
                Err(Error::Invalid(format!(
                    "`{name}` has been made {} times; give the path of the one you mean: {}",
                    made.len(),
                    list.join(", ")
                )))
            }
        }
    }

    /// The made files of one name.
    pub fn made(&self, name: &str) -> Result<Vec<PathBuf>> {
        let dir = self.home.dir("datasets")?;
        let entries = fs::read_dir(&dir).map_err(|e| Error::io(&dir, "list", e))?;
        let mut found: Vec<PathBuf> = (entries.flatten().map(|e| e.path()))
            .filter(|p| made_name(p).is_some_and(|(stem, _)| stem == name))
            .collect();
        found.sort();
        Ok(found)
    }

    /// How many rows a made file was asked for, by its name.
    pub fn made_rows(path: &Path) -> Option<usize> {
        made_name(path)?.1.split('-').next()?.parse().ok()
    }

    /// The path of a made set.
    pub fn made_path(home: &Home, name: &str, rows: usize, seed: u64, hash: &str) -> Result<PathBuf> {
        Ok(home.dir("datasets")?.join(format!("{name}-{rows}-s{seed}-{hash}.hdf5")))
    }

    /// Every dataset on this machine that has a name.
    pub fn all(&self) -> Result<Vec<(String, Origin, PathBuf)>> {
        let mut all = Vec::new();
        let dir = self.home.dir("datasets")?;
        for path in files(&dir) {
            if let Some((name, _)) = made_name(&path) {
                all.push((name.to_string(), Origin::Made, path.clone()));
            }
        }
        all.extend(files(&self.d4rl).into_iter().filter(|p| p.extension().is_some_and(|e| e == "hdf5")).map(
            |p| {
                let stem = p.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
                (d4rl_id(&stem).unwrap_or(stem), Origin::D4RL, p)
            },
        ));
        minari_datasets(&self.minari, &self.minari, 0, &mut all);
        all.sort();
        Ok(all)
    }

    fn published(&self, name: &str) -> Result<Found> {
        let minari = self.minari.join(name);
        if minari.join("data").is_dir() {
            return Ok(Found::File { path: minari, origin: Origin::Minari });
        }
        let candidates = d4rl_files(name);
        let found = candidates.iter().map(|f| self.d4rl.join(f)).find(|p| p.is_file());
        found.map(|path| Found::File { path, origin: Origin::D4RL }).ok_or_else(|| Error::Unknown {
            kind: "dataset",
            name: name.into(),
            hint: format!(
                "an id with a version is a published file: wanted {} in {} or {}/data; copy it there, give its path, or \
                 leave out the version to make a set of your own",
                candidates.join(" or "),
                self.d4rl.display(),
                minari.display()
            ),
        })
    }
}

/// D4RL's versions end at 2, Minari's do not.
fn is_versioned(name: &str) -> bool {
    name.rsplit_once("-v").is_some_and(|(_, v)| !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit()))
}

fn looks_like_a_path(name: &str) -> bool {
    name.contains(['/', '\\'])
        || [".hdf5", ".h5", ".parquet", ".csv", ".tsv", ".npz"].iter().any(|e| name.ends_with(e))
}

/// Splits `<name>-<rows>-s<seed>-<hash>.hdf5` into the name and the rest.
fn made_name(path: &Path) -> Option<(&str, &str)> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".hdf5")?;
    let mut parts = stem.rsplitn(4, '-');
    let (hash, seed, rows, name) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let whole =
        hash.len() == 8 && seed.strip_prefix('s')?.parse::<u64>().is_ok() && rows.parse::<usize>().is_ok();
    whole.then_some((name, &stem[name.len() + 1..]))
}

/// The file names under which D4RL caches a dataset, most specific first.
fn d4rl_files(id: &str) -> Vec<String> {
    let mut files = vec![format!("{id}.hdf5")];
    let (name, version) = id.split_at(id.len().saturating_sub(3));
    let stem =
        tasks::datasets().find(|(known, ..)| known == name).and_then(|(.., flavour)| flavour.d4rl_file);
    if let Some(stem) = stem {
        files.push(if version == "-v0" { format!("{stem}.hdf5") } else { format!("{stem}_fixed.hdf5") });
    } else if let Some((body, flavour)) = name.split_once('-') {
        let flavour = flavour.replace('-', "_");
        files.push(if version == "-v0" {
            format!("{body}_{flavour}.hdf5")
        } else {
            format!("{body}_{flavour}{version}.hdf5")
        });
    }
    files
}

/// The id behind a file name of D4RL's cache, where it is one of those above. AntMaze v1 and v2 share their file names;
/// such a file is listed as v2.
pub fn d4rl_id(stem: &str) -> Option<String> {
    let versions = ["-v2", "-v1", "-v0"];
    let names = made_names();
    let ids = names.iter().flat_map(|name| versions.map(|v| format!("{name}{v}")));
    ids.into_iter().find(|id| d4rl_files(id).iter().any(|f| f.strip_suffix(".hdf5") == Some(stem)))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).map(|entries| entries.flatten().map(|e| e.path()).collect()).unwrap_or_default()
}

/// Minari nests namespaces; a dataset is a directory that holds `data/metadata.json` or `data/main_data.hdf5`.
fn minari_datasets(root: &Path, dir: &Path, depth: usize, all: &mut Vec<(String, Origin, PathBuf)>) {
    if dir.join("data/main_data.hdf5").is_file() || dir.join("data/metadata.json").is_file() {
        let id = dir.strip_prefix(root).unwrap_or(dir).to_string_lossy().replace('\\', "/");
        all.push((id, Origin::Minari, dir.to_path_buf()));
    } else if depth < 5 {
        files(dir).iter().filter(|p| p.is_dir()).for_each(|p| minari_datasets(root, p, depth + 1, all));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue(root: &Path) -> Catalogue {
        Catalogue { home: Home::new(root.join("home")), d4rl: root.join("d4rl"), minari: root.join("minari") }
    }

    fn touch(path: PathBuf) -> PathBuf {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, b"").unwrap();
        path
    }

    #[test]
    fn a_set_is_known_by_its_id_and_by_its_file() {
        for (given, known) in [
            ("hopper-medium", "hopper-medium"),
            ("hopper-medium-v2", "hopper-medium"),
            ("antmaze-large-play-v0", "antmaze-large-play"),
            ("D4RL/antmaze/umaze-v1", "antmaze-umaze"),
            ("hopper-medium-replay-200000-s0-86c6d2ca.hdf5", "hopper-medium-replay"),
            ("/data/walker2d_medium_expert-v2.hdf5", "walker2d-medium-expert"),
            (
                "a/Ant_maze_big-maze_noisy_multistart_True_multigoal_False_sparse_fixed.hdf5",
                "antmaze-medium-play",
            ),
        ] {
            assert_eq!(set_of(given).as_deref(), Some(known), "{given}");
        }
        for own in
            ["/antmaze/my-logs.parquet", "hopper-medium-validation.npz", "hopper-medium2.csv", "hopper"]
        {
            assert_eq!(set_of(own), None, "{own}");
        }
    }

    #[test]
    fn names_mean_what_the_rules_say() {
        let dir = tempfile::tempdir().unwrap();
        let all = catalogue(dir.path());
        let d4rl = touch(dir.path().join("d4rl/hopper_medium_replay-v2.hdf5"));
        let maze = touch(
            dir.path().join("d4rl/Ant_maze_u-maze_noisy_multistart_False_multigoal_False_sparse_fixed.hdf5"),
        );
        touch(dir.path().join("minari/mujoco/hopper/expert-v0/data/main_data.hdf5"));
        let file = |path: &Path, origin| Found::File { path: path.into(), origin };
        assert_eq!(all.find("hopper-medium-replay-v2").unwrap(), file(&d4rl, Origin::D4RL));
        assert_eq!(all.find("antmaze-umaze-v2").unwrap(), file(&maze, Origin::D4RL));
        let minari = dir.path().join("minari/mujoco/hopper/expert-v0");
        assert_eq!(all.find("mujoco/hopper/expert-v0").unwrap(), file(&minari, Origin::Minari));
        assert_eq!(all.find(d4rl.to_str().unwrap()).unwrap(), file(&d4rl, Origin::Own));
        let Found::ToMake(recipe) = all.find("antmaze-medium-play").unwrap() else { panic!("not made yet") };
        assert_eq!((recipe.task.as_str(), recipe.flavour.as_str()), ("antmaze-medium", "play"));

        let made = touch(Catalogue::made_path(&all.home, "hopper-medium", 1000, 0, "0123abcd").unwrap());
        touch(Catalogue::made_path(&all.home, "hopper-medium-replay", 1000, 0, "0123abcd").unwrap());
        assert_eq!(all.find("hopper-medium").unwrap(), file(&made, Origin::Made));
        touch(Catalogue::made_path(&all.home, "hopper-medium", 2000, 0, "0123abcd").unwrap());
        let twice = all.find("hopper-medium").unwrap_err().to_string();
        assert!(
            twice.contains("2 times") && twice.contains("hopper-medium-2000-s0-0123abcd.hdf5"),
            "{twice}"
        );
        let names: Vec<String> =
            all.all().unwrap().into_iter().map(|(name, origin, _)| format!("{origin} {name}")).collect();
        assert_eq!(
            names,
            [
                "D4RL antmaze-umaze-v2",
                "made hopper-medium",
                "made hopper-medium",
                "made hopper-medium-replay",
                "D4RL hopper-medium-replay-v2",
                "Minari mujoco/hopper/expert-v0",
            ]
        );
    }

    #[test]
    fn unknown_names_say_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let check = |name: &str, wanted: &str| {
            let error = catalogue(dir.path()).find(name).unwrap_err().to_string();
            assert!(error.contains(wanted) && !error.contains('\n'), "{error}");
        };
        check("hoper-medium", "did you mean `hopper-medium`?");
        check("hopper-medium-v2", "hopper_medium-v2.hdf5 in ");
        check("nonsense", "unknown dataset `nonsense`; give a path");
        check("missing/file.hdf5", "no such file");
    }
}
