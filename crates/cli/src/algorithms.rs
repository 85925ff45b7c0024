//! Algorithms by name: which settings each has, where its presets are, and how it is run.

use anyhow::{Result, anyhow, bail};
use offing::algo::bc::{self, BcConfig};
use offing::algo::combo::{self, ComboConfig};
use offing::algo::morel::{self, MorelConfig};
use offing::algo::rambo::{self, RamboConfig};
use offing::algo::recipe::{self, RecipeConfig};
use offing::algo::{ModelConfig, Session, TrainConfig, mobile};
use offing::data::Dataset;
use offing::data::catalogue::set_of;
use offing::sac::SacConfig;
use offing::uncertainty::UncertaintyConfig;
use toml::Table;

use crate::config::{self, Layers};

/// Presets by file name; the files lie in `presets/`.
const PRESETS: &[(&str, &str)] = &[
    ("mopo", include_str!("../../../presets/mopo.toml")),
    ("mopo+sumo", include_str!("../../../presets/mopo+sumo.toml")),
    ("mopo.kit", include_str!("../../../presets/mopo.kit.toml")),
    ("amorel", include_str!("../../../presets/amorel.toml")),
    ("amorel.paper", include_str!("../../../presets/amorel.paper.toml")),
    ("morel-sac", include_str!("../../../presets/morel-sac.toml")),
    ("morel", include_str!("../../../presets/morel.toml")),
    ("morel.mjrl", include_str!("../../../presets/morel.mjrl.toml")),
    ("mobile", include_str!("../../../presets/mobile.toml")),
    ("mobile+sumo", include_str!("../../../presets/mobile+sumo.toml")),
    ("combo", include_str!("../../../presets/combo.toml")),
    ("rambo", include_str!("../../../presets/rambo.toml")),
    ("bc", include_str!("../../../presets/bc.toml")),
];

const QUICK: &str = include_str!("../../../presets/quick.toml");
const ANTMAZE: &str = include_str!("../../../presets/antmaze.toml");

/// Names of all algorithms.
const NAMES: [&str; 8] = ["mopo", "amorel", "morel", "morel-sac", "mobile", "combo", "rambo", "bc"];

/// Those that meet uncertainty without an estimator, or do not at all.
const WITHOUT_ESTIMATOR: [&str; 3] = ["combo", "rambo", "bc"];

/// An algorithm with the estimator asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Algorithm {
    base: &'static str,
    estimator: Option<&'static str>,
}

/// The typed settings of an algorithm.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    Recipe(Box<RecipeConfig>),
    Mobile(Box<RecipeConfig>),
    Morel(Box<MorelConfig>),
    Combo(Box<ComboConfig>),
    Rambo(Box<RamboConfig>),
    Bc(BcConfig),
}

/// Settings under construction.
pub(crate) struct Prepared {
    pub(crate) layers: Layers,
    /// Rows that the profile asks for.
    pub(crate) rows: Option<usize>,
}

impl Algorithm {
    /// Reads `mopo` or `mopo+sumo`.
    pub(crate) fn parse(name: &str) -> Result<Self> {
        let (base, estimator) = match name.split_once('+') {
            Some((base, estimator)) => (base, Some(estimator)),
            None => (name, None),
        };
        let known = NAMES.iter().find(|n| **n == base);
        let base = *known.ok_or_else(|| offing::Error::unknown("algorithm", base, &NAMES))?;
        let estimator = match estimator {
            None => None,
            Some(_) if WITHOUT_ESTIMATOR.contains(&base) => {
                bail!("`{name}`: {base} takes no estimator; write `{base}`")
            }
            Some("bellman-std") if base != "mobile" => {
                bail!(
                    "`{name}`: bellman-std needs the critics of MOBILE; write `mobile`, or choose another estimator"
                )
            }
            Some(id) => Some(UncertaintyConfig::from_id(id)?.id()),
        };
        Ok(Self { base, estimator })
    }

    /// The name with its estimator.
    pub(crate) fn name(&self) -> String {
        match self.estimator {
            Some(estimator) => format!("{}+{estimator}", self.base),
            None => self.base.to_string(),
        }
    }

    /// The settings' defaults alone: for a run whose own settings, which are whole, come on top.
    pub(crate) fn defaults(&self) -> Result<Layers> {
        match self.base {
            "bc" => Layers::of::<BcConfig>(),
            "morel" => Layers::of::<MorelConfig>(),
            "combo" => Layers::of::<ComboConfig>(),
            "rambo" => Layers::of::<RamboConfig>(),
            _ => Layers::of::<RecipeConfig>(),
        }
    }

    /// Defaults, preset, estimator and profile, one over the other.
    pub(crate) fn layers(
        &self,
        dataset: &str,
        variant: Option<&str>,
        profile: Option<&str>,
    ) -> Result<Prepared> {
        let set = set_of(dataset);
        let dataset = set.as_deref().unwrap_or(dataset);
        let mut layers = self.defaults()?;
        layers.preset(preset(self.base)?, &format!("presets/{}.toml", self.base), Some(dataset))?;
        if let Some(variant) = variant {
            let file = format!("{}.{variant}", self.base);
            let text = preset(&file).map_err(|_| {
                let others: Vec<&str> = PRESETS
                    .iter()
                    .filter_map(|(n, _)| n.strip_prefix(self.base)?.strip_prefix('.'))
                    .collect();
                let known =
                    if others.is_empty() { "it has the default only".into() } else { others.join(", ") };
                anyhow!("unknown preset `{variant}` of {}; known: {known}", self.base)
            })?;
            layers.preset(text, &format!("presets/{file}.toml"), Some(dataset))?;
        }
        if let Some(estimator) = self.estimator {
            match preset(&self.name()) {
                Ok(text) => layers.preset(text, &format!("presets/{}.toml", self.name()), Some(dataset))?,
                Err(_) => layers.set(&format!("uncertainty={{kind=\"{estimator}\"}}"))?,
            }
        }
        let mut rows = None;
        match profile {
            None => {}
            Some("quick") => {
                let mut table: Table = toml::from_str(QUICK)?;
                rows = table.remove("rows").and_then(|v| v.as_integer()).map(|n| n as usize);
                let foreign: &[&str] = match self.base {
                    "bc" => &["rollout", "model", "sac"],
                    "morel" => &["rollout", "sac"],
                    _ => &[],
                };
                foreign.iter().for_each(|key| drop(table.remove(*key)));
                self.put_shared(&mut layers, table);
            }
            Some(other) => bail!("unknown profile `{other}`; known: quick"),
        }
        // Above the profile: a success rate over ten episodes says nothing.
        if dataset.starts_with("antmaze") {
            self.put_shared(&mut layers, toml::from_str(ANTMAZE)?);
        }
        Ok(Prepared { layers, rows })
    }

    /// Puts settings for all algorithms on top, and over them what their `[of.NAME]` says about this one.
    fn put_shared(&self, layers: &mut Layers, mut table: Table) {
        let mut of = table.remove("of").and_then(|v| v.try_into::<Table>().ok()).unwrap_or_default();
        layers.put(table);
        if let Some(own) = of.remove(self.base).and_then(|v| v.try_into::<Table>().ok()) {
            layers.put(own);
        }
    }

    /// Reads the layers as this algorithm's settings.
    pub(crate) fn plan(&self, layers: &Layers) -> Result<Plan> {
        let plan = match self.base {
            "bc" => Plan::Bc(layers.read()?),
            "morel" => Plan::Morel(Box::new(layers.read()?)),
            "combo" => Plan::Combo(Box::new(layers.read()?)),
            "rambo" => Plan::Rambo(Box::new(layers.read::<RamboConfig>()?.resolved())),
            "mobile" => Plan::Mobile(Box::new(layers.read()?)),
            _ => Plan::Recipe(Box::new(layers.read()?)),
        };
        plan.check()?;
        Ok(plan)
    }
}

impl Plan {
    /// The training loop's settings.
    pub(crate) fn train(&self) -> &TrainConfig {
        match self {
            Self::Recipe(cfg) | Self::Mobile(cfg) => &cfg.train,
            Self::Morel(cfg) => &cfg.train,
            Self::Combo(cfg) => &cfg.train,
            Self::Rambo(cfg) => &cfg.train,
            Self::Bc(cfg) => &cfg.train,
        }
    }

    /// The model and the learner, where there are any.
    fn model_and_learner(&self) -> Option<(&ModelConfig, &SacConfig)> {
        match self {
            Self::Recipe(cfg) | Self::Mobile(cfg) => Some((&cfg.model, &cfg.sac)),
            Self::Combo(cfg) => Some((&cfg.model, &cfg.sac)),
            Self::Rambo(cfg) => Some((&cfg.model, &cfg.sac)),
            Self::Morel(_) | Self::Bc(_) => None,
        }
    }

    /// Says what is wrong with the values, if anything, before a directory is made for them.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Recipe(cfg) => cfg.check()?,
            Self::Mobile(cfg) => mobile::check(cfg)?,
            Self::Morel(cfg) => cfg.check()?,
            Self::Combo(cfg) => cfg.check()?,
            Self::Rambo(cfg) => cfg.check()?,
            Self::Bc(cfg) => cfg.check()?,
        }
        if let Some((model, sac)) = self.model_and_learner() {
            model.ensemble.check()?;
            sac.check()?;
        }
        Ok(())
    }

    /// Says what these data cannot serve, if anything, before a model is fitted to them and a directory is made.
    pub(crate) fn check_for(&self, data: &Dataset) -> Result<()> {
        if data.rows.is_empty() {
            bail!("{}: wanted rows to learn from, found none; ask for more with --rows", data.name);
        }
        match self {
            Self::Recipe(cfg) => cfg.check_for(data)?,
            Self::Mobile(cfg) => mobile::check_for(cfg, data)?,
            Self::Morel(cfg) => cfg.check_for(data)?,
            Self::Combo(cfg) => cfg.model.check_for(data)?,
            Self::Rambo(cfg) => cfg.model.check_for(data)?,
            Self::Bc(_) => {}
        }
        Ok(())
    }

    /// Trains; false when it was stopped before the end.
    pub(crate) fn run(&self, session: &mut Session<'_>) -> offing::Result<bool> {
        Ok(match self {
            Self::Recipe(cfg) => recipe::train(cfg, session)?.is_some(),
            Self::Mobile(cfg) => mobile::train(cfg, session)?.is_some(),
            Self::Morel(cfg) => morel::train(cfg, session)?.is_some(),
            Self::Combo(cfg) => combo::train(cfg, session)?.is_some(),
            Self::Rambo(cfg) => rambo::train(cfg, session)?.is_some(),
            Self::Bc(cfg) => bc::train(cfg, session)?.is_some(),
        })
    }

    /// As it is written down.
    pub(crate) fn table(&self) -> Result<Table> {
        let table = match self {
            Self::Recipe(cfg) | Self::Mobile(cfg) => Table::try_from(cfg.as_ref())?,
            Self::Morel(cfg) => Table::try_from(cfg.as_ref())?,
            Self::Combo(cfg) => Table::try_from(cfg.as_ref())?,
            Self::Rambo(cfg) => Table::try_from(cfg.as_ref())?,
            Self::Bc(cfg) => Table::try_from(cfg)?,
        };
        Ok(config::readable(table))
    }
}

fn preset(name: &str) -> Result<&'static str> {
    PRESETS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
        .ok_or_else(|| anyhow!("there is no preset called {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use offing::algo::RewardShift;
    use offing::data::catalogue::made_names;
    use offing::pessimism::{Normaliser, Pessimism};
    use offing::uncertainty::{AleatoricConfig, Norm};

    fn plan(name: &str, dataset: &str, variant: Option<&str>) -> RecipeConfig {
        let algorithm = Algorithm::parse(name).unwrap();
        let prepared = algorithm.layers(dataset, variant, None).unwrap();
        recipe_of(algorithm.plan(&prepared.layers).unwrap())
    }

    fn recipe_of(plan: Plan) -> RecipeConfig {
        match plan {
            Plan::Recipe(cfg) | Plan::Mobile(cfg) => *cfg,
            other => panic!("not a recipe: {other:?}"),
        }
    }

    #[test]
    fn every_preset_reads_for_every_dataset() {
        let estimators = UncertaintyConfig::all();
        for dataset in made_names() {
            for base in NAMES {
                for profile in [None, Some("quick")] {
                    let algorithm = Algorithm::parse(base).unwrap();
                    let prepared = algorithm.layers(&dataset, None, profile).unwrap();
                    algorithm.plan(&prepared.layers).unwrap();
                }
                let with_it = !WITHOUT_ESTIMATOR.contains(&base);
                let fits = |e: &&UncertaintyConfig| with_it && (e.id() != "bellman-std" || base == "mobile");
                for estimator in estimators.iter().filter(fits) {
                    let algorithm = Algorithm::parse(&format!("{base}+{}", estimator.id())).unwrap();
                    let prepared = algorithm.layers(&dataset, None, None).unwrap();
                    let id = match algorithm.plan(&prepared.layers).unwrap() {
                        Plan::Morel(cfg) => cfg.uncertainty.id(),
                        other => recipe_of(other).uncertainty.id(),
                    };
                    assert_eq!(id, estimator.id());
                }
            }
            plan("mopo", &dataset, Some("kit"));
            let mjrl = Algorithm::parse("morel").unwrap();
            mjrl.plan(&mjrl.layers(&dataset, Some("mjrl"), None).unwrap().layers).unwrap();
            plan("amorel", &dataset, Some("paper"));
        }
    }

    #[test]
    fn names_mean_what_the_paper_means() {
        let base = plan("mopo", "hopper-medium", None);
        assert_eq!(base.uncertainty.id(), "aleatoric");
        let sumo = plan("mopo+sumo", "hopper-medium", None);
        let eq6 = Pessimism::Penalize { lambda: 1.0, normaliser: Normaliser::Dataset, reward_range: None };
        assert_eq!((sumo.uncertainty.id(), sumo.pessimism), ("sumo", eq6));
        assert_eq!(
            plan("amorel", "hopper-medium", Some("paper")).pessimism,
            Pessimism::Truncate { alpha: 5.0 }
        );
        let mobile = plan("mobile", "hopper-medium-replay", None);
        assert_eq!((mobile.uncertainty.id(), mobile.sac.deterministic_backup), ("bellman-std", true));
        let sumo = plan("mobile+sumo", "hopper-medium-replay", None);
        assert_eq!((sumo.uncertainty.id(), sumo.pessimism), ("sumo", eq6));
        let quick = Algorithm::parse("rambo").unwrap().layers("x", None, Some("quick")).unwrap();
        assert_eq!(quick.layers.table()["train"]["steps"].as_integer(), Some(30_000));
        for (name, shift) in [("amorel+sumo", -1.0), ("mobile", 0.0)] {
            let maze = plan(name, "antmaze-umaze", None).train;
            assert_eq!(
                (maze.reward_shift, maze.episodes, maze.drop_teleports),
                (RewardShift::By(shift), 100, true)
            );
        }
        let kit = plan("mopo", "hopper-medium-v2", Some("kit"));
        assert!(matches!(kit.pessimism, Pessimism::Penalize { lambda: 5.0, .. }));
        let l2 = UncertaintyConfig::Aleatoric(AleatoricConfig { norm: Norm::L2Std });
        assert_eq!(kit.uncertainty, l2, "the norm its λ belong to");
        let quick =
            Algorithm::parse("mopo").unwrap().layers("antmaze-umaze-v0", None, Some("quick")).unwrap();
        assert_eq!(quick.layers.table()["train"]["episodes"].as_integer(), Some(100), "success needs many");
    }

    #[test]
    fn the_adversary_decays_as_the_ensemble_does_and_says_so() {
        let algorithm = Algorithm::parse("rambo").unwrap();
        let plan = |sets: &[&str]| {
            let mut layers = algorithm.layers("x", None, None).unwrap().layers;
            sets.iter().try_for_each(|set| layers.set(set)).unwrap();
            algorithm.plan(&layers)
        };
        let decay = |plan: &Plan| plan.table().unwrap()["adversary"]["step"]["decay"].clone();
        let usual = plan(&[]).unwrap();
        assert_eq!(decay(&usual), usual.table().unwrap()["model"]["ensemble"]["decay"], "written down");
        let small = ["model.ensemble.hidden=[32,32]", "model.ensemble.decay=[0.5,0.25,0.125]"];
        let own = toml::Value::Array([0.5, 0.25, 0.125].map(toml::Value::Float).to_vec());
        assert_eq!(decay(&plan(&small).unwrap()), own);
        let error = plan(&[small[0], small[1], "adversary.step.decay=[0.5]"]).unwrap_err().to_string();
        assert!(error.contains("adversary.step.decay: wanted 3 numbers"), "{error}");
    }

    #[test]
    fn presets_know_a_dataset_by_its_id_and_by_its_file() {
        let lambda = |dataset: &str| match plan("mobile", dataset, None).pessimism {
            Pessimism::Penalize { lambda, .. } => lambda,
            other => panic!("{other:?}"),
        };
        for dataset in ["hopper-medium", "hopper-medium-v0", "hopper-medium-1000-s0-0a1b2c3d.hdf5"] {
            assert_eq!(lambda(dataset), 1.5, "{dataset}");
        }
        assert_eq!(lambda("hopper-medium-of-mine.npz"), 0.5);
    }

    #[test]
    fn wrong_names_are_answered_with_right_ones() {
        for (name, pieces) in [
            ("mopp", &["`mopp`", "`mopo`"][..]),
            ("mopo+summo", &["`summo`", "`sumo`"]),
            ("bc+sumo", &["bc takes no estimator"]),
            ("combo+sumo", &["combo takes no estimator"]),
            ("rambo+sumo", &["rambo takes no estimator"]),
            ("mopo+bellman-std", &["`mobile`"]),
        ] {
            let error = Algorithm::parse(name).unwrap_err().to_string();
            assert!(pieces.iter().all(|p| error.contains(p)) && !error.contains('\n'), "{error}");
        }
        let error =
            Algorithm::parse("amorel").unwrap().layers("x", Some("kit"), None).err().unwrap().to_string();
        assert!(error.contains("known: paper"), "{error}");
    }
}
