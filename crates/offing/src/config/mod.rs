//! Layered configuration: defaults, a preset, the preset's part for a dataset, the user's file, `--set` on
//! top.
//!
//! Layers are merged as TOML tables and read into the typed struct once, at the end. A table that changes its
//! `kind` replaces the one below it whole, because the keys of another kind mean nothing to it; any other
//! table is merged.

mod explain;

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use self::explain::{example, explain, one_line};
use crate::error::{Error, Result, invalid};

/// The layers collected so far.
#[derive(Clone, Debug)]
pub struct Layers {
    table: Table,
}

impl Layers {
    /// Starts from the defaults of the struct that will be read in the end.
    pub fn of<T: Default + Serialize>() -> Result<Self> {
        Self::from(&T::default())
    }

    /// Starts from given values.
    pub fn from<T: Serialize>(base: &T) -> Result<Self> {
        let table = to_table(base)?;
        Ok(Self { table })
    }

    /// Puts a preset on top, and above it what its `[on."dataset"]` says about this dataset. `source` is
    /// named in errors.
    pub fn preset(&mut self, text: &str, source: &str, dataset: Option<&str>) -> Result<()> {
        let mut table = parse(text, source)?;
        let on = match table.remove("on") {
            None => Table::new(),
            Some(Value::Table(on)) => on,
            Some(_) => {
                return Err(invalid!(
                    "{source}: `on`: wanted a table for each dataset, found another value; write [on.\"hopper-medium\"]"
                ));
            }
        };
        self.put(table);
        match dataset.and_then(|name| on.get(name)) {
            None => (),
            Some(Value::Table(own)) => self.put(own.clone()),
            Some(_) => {
                let dataset = dataset.unwrap_or_default();
                return Err(invalid!("{source}: `on` of {dataset}: wanted a table, found another value"));
            }
        }
        Ok(())
    }

    /// Puts a user's file on top.
    pub fn file(&mut self, path: &Path, dataset: Option<&str>) -> Result<()> {
        self.preset(&read_file(path)?, &path.display().to_string(), dataset)
    }

    /// Puts `a.b=value` on top. The value is TOML; what is no TOML value is taken as a plain word, so that
    /// strings need no quotes.
    pub fn set(&mut self, assignment: &str) -> Result<()> {
        let wrong = |found: &str| {
            let such = example(&self.table);
            invalid!("--set {assignment}: wanted key=value, such as {such}, found {found}")
        };
        let (key, text) = assignment.split_once('=').ok_or_else(|| wrong("no `=`"))?;
        let parts: Vec<&str> = key.trim().split('.').map(str::trim).collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(wrong("an empty name"));
        }
        let text = text.trim();
        let value = match toml::from_str::<Table>(&format!("value = {text}")) {
            // One key only: a text with a line break could bring more.
            Ok(mut table) if table.len() == 1 => table.remove("value").ok_or_else(|| wrong("no value"))?,
            _ if text.is_empty() => return Err(wrong("no value")),
            _ if text.starts_with(['[', '{', '"', '\'']) => {
                return Err(wrong(&format!("`{text}`, which is not valid TOML")));
            }
            _ => Value::String(text.to_string()),
        };
        let nested = parts
            .iter()
            .rev()
            .fold(value, |inner, part| Value::Table(Table::from_iter([(part.to_string(), inner)])));
        match nested {
            Value::Table(table) => self.put(table),
            _ => unreachable!("the key has at least one part"),
        }
        Ok(())
    }

    /// Puts a table on top.
    pub fn put(&mut self, over: Table) {
        merge(&mut self.table, over);
    }

    /// The merged table, as it would be written to a run directory.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Reads the merged layers. Unknown keys are refused with the nearest name there is.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        typed(&self.table).map_err(|error| invalid!("{}", explain(&error, &self.table, &reads::<T>)))
    }
}

/// Settings as a table of TOML, numbers in as few digits as they need.
pub fn to_table<T: Serialize>(settings: &T) -> Result<Table> {
    let table = Table::try_from(settings).map_err(|e| invalid!("cannot write the settings as TOML: {e}"))?;
    Ok(readable(table))
}

fn read_file(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Error::io(path, "read", e))
}

/// Reads a TOML file.
pub fn read_table(path: &Path) -> Result<Table> {
    parse(&read_file(path)?, &path.display().to_string())
}

/// Reads a text as one struct; `source` is named in errors.
pub fn read_text<T: DeserializeOwned>(text: &str, source: &str) -> Result<T> {
    let table = parse(text, source)?;
    typed(&table).map_err(|error| invalid!("{source}: {}", explain(&error, &table, &reads::<T>)))
}

fn typed<T: DeserializeOwned>(table: &Table) -> std::result::Result<T, toml::de::Error> {
    table.clone().try_into()
}

/// Whether a table reads as these settings.
fn reads<T: DeserializeOwned>(table: Table) -> std::result::Result<(), toml::de::Error> {
    typed::<T>(&table).map(drop)
}

/// Puts `over` above `base`.
fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => {
                let other_kind = above.get("kind").is_some_and(|kind| below.get("kind") != Some(kind));
                if other_kind {
                    *below = above;
                } else {
                    merge(below, above);
                }
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

fn parse(text: &str, source: &str) -> Result<Table> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        invalid!("{source}: line {line}: {}; fix the file", one_line(error.message()))
    })
}

/// The same values in fewer digits: TOML knows f64 alone, in which an f32 of 0.01 has become 0.009999999776482582.
fn readable(table: Table) -> Table {
    fn value(found: Value) -> Value {
        match found {
            Value::Float(wide) => Value::Float(shortest(wide)),
            Value::Array(all) => Value::Array(all.into_iter().map(value).collect()),
            Value::Table(inner) => Value::Table(readable(inner)),
            other => other,
        }
    }
    table.into_iter().map(|(key, found)| (key, value(found))).collect()
}

/// The decimal number that an f32 was written as. Only what bears the marks of one is touched: a number that f32 holds
/// exactly, and whose f64 is written with about all the digits there are.
fn shortest(wide: f64) -> f64 {
    let narrow = wide as f32;
    let few = format!("{narrow}");
    let digits = format!("{wide:e}").chars().take_while(|c| *c != 'e').filter(char::is_ascii_digit).count();
    if f64::from(narrow) != wide || digits < 15 {
        return wide;
    }
    few.parse().unwrap_or(wide)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Config {
        steps: u64,
        name: String,
        model: Model,
        estimator: Estimator,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Model {
        lr: f64,
        hidden: Vec<usize>,
        max_epochs: Option<u64>,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
    enum Estimator {
        Sumo {
            #[serde(default)]
            k: usize,
            #[serde(default)]
            scaled: bool,
        },
        MaxAleatoric {},
    }

    impl Default for Config {
        fn default() -> Self {
            Self {
                steps: 10,
                name: "none".into(),
                model: Model::default(),
                estimator: Estimator::Sumo { k: 1, scaled: true },
            }
        }
    }

    impl Default for Model {
        fn default() -> Self {
            Self { lr: 0.5, hidden: vec![8], max_epochs: None }
        }
    }

    const PRESET: &str = "
        steps = 20
        [model]
        lr = 0.25
        [on.\"hopper-medium\"]
        model.hidden = [4, 4]
        estimator = { kind = 'sumo', k = 5 }
        [on.'walker2d-medium']
        steps = 99";

    fn layers(sets: &[&str]) -> Result<Config> {
        let mut layers = Layers::of::<Config>()?;
        layers.preset(PRESET, "preset", Some("hopper-medium"))?;
        sets.iter().try_for_each(|set| layers.set(set))?;
        layers.read()
    }

    #[test]
    fn later_layers_win_and_leave_the_rest() {
        let found = layers(&[]).unwrap();
        assert_eq!((found.steps, found.model.lr, &found.model.hidden[..]), (20, 0.25, &[4, 4][..]));
        assert_eq!(found.estimator, Estimator::Sumo { k: 5, scaled: true }, "the same kind is merged");
        let found =
            layers(&["model.lr=1e-3", "model.max_epochs = 7", "name=a word", "model.hidden=[1, 2]"]).unwrap();
        assert_eq!((found.model.lr, found.model.max_epochs, found.name.as_str()), (1e-3, Some(7), "a word"));
        assert_eq!(found.model.hidden, [1, 2]);
        let mut layers = Layers::of::<Config>().unwrap();
        layers.preset(PRESET, "preset", Some("halfcheetah-random")).unwrap();
        assert_eq!(layers.read::<Config>().unwrap().model.hidden, [8], "another dataset's part is not used");
    }

    #[test]
    fn another_kind_replaces_the_table() {
        let found = layers(&["estimator = { kind = \"max-aleatoric\" }"]).unwrap();
        assert_eq!(found.estimator, Estimator::MaxAleatoric {});
        assert_eq!(layers(&["estimator.kind=max-aleatoric"]).unwrap().estimator, Estimator::MaxAleatoric {});
        assert_eq!(layers(&["estimator.k=9"]).unwrap().estimator, Estimator::Sumo { k: 9, scaled: true });
    }

    #[test]
    fn the_resolved_table_reads_back_as_the_same_configuration() {
        let mut layers = Layers::of::<Config>().unwrap();
        layers.set("model.max_epochs=3").unwrap();
        let text = toml::to_string(layers.table()).unwrap();
        let mut again = Layers::of::<Config>().unwrap();
        again.preset(&text, "resolved", None).unwrap();
        assert_eq!(again.read::<Config>().unwrap(), layers.read::<Config>().unwrap());
    }

    #[test]
    fn numbers_are_written_as_people_write_them_and_read_back_the_same() {
        for narrow in [0.01f32, 2.5e-5, 3e-4, 0.005, 1.0, -10.0, 0.1] {
            let written = shortest(f64::from(narrow));
            assert_eq!(written as f32, narrow);
            assert_eq!(format!("{written}"), format!("{narrow}"));
        }
        for wide in [0.9, 1e-3, 0.333_251_953_125, 1.0 / 3.0, f64::INFINITY, 0.0] {
            assert_eq!(shortest(wide).to_bits(), wide.to_bits());
        }
        let table: Table = "a = [0.009999999776482582]\nb = { c = 0.25 }".parse().unwrap();
        assert_eq!(toml::to_string(&readable(table)).unwrap(), "a = [0.01]\n\n[b]\nc = 0.25\n");
    }

    #[test]
    fn mistakes_are_one_line_that_says_what_to_do() {
        for (set, pieces) in [
            ("model.hiden=[1]", &["`model.hiden`", "did you mean `hidden`?", "max_epochs"][..]),
            ("modle.lr=1", &["`modle`", "did you mean `model`?"]),
            ("estimator.kind=sumoo", &["estimator.kind = sumoo", "did you mean `sumo`?"]),
            ("estimator.kk=2", &["`estimator.kk`", "did you mean `k`?"]),
            ("steps=many", &["configuration key `steps`", "found \"many\""]),
            ("steps", &["key=value", "no `=`"]),
            ("=3", &["an empty name"]),
            ("steps=", &["no value"]),
            ("model.hidden=[1,", &["not valid TOML"]),
        ] {
            let error = format!("{:#}", layers(&[set]).unwrap_err());
            assert!(!error.contains('\n'), "{error}");
            for piece in pieces {
                assert!(error.contains(piece), "{set}: `{piece}` missing in: {error}");
            }
        }
        let mut layers = Layers::of::<Config>().unwrap();
        let error = layers.preset("steps = 1\nsteps = ", "mine.toml", None).unwrap_err().to_string();
        assert!(error.contains("mine.toml: line 2") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_users_file_lies_above_the_preset() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mine.toml");
        std::fs::write(&path, "steps = 3\n").unwrap();
        let mut layers = Layers::of::<Config>().unwrap();
        layers.preset(PRESET, "preset", None).unwrap();
        layers.file(&path, None).unwrap();
        assert_eq!(layers.read::<Config>().unwrap().steps, 3);
        let missing = layers.file(&dir.path().join("none.toml"), None).unwrap_err();
        assert!(format!("{missing:#}").contains("none.toml"));
    }
}
