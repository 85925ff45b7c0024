//! Algorithms by name: which settings each has, where its presets are, and how it is run.

use anyhow::{Result, anyhow, bail};
use offing::algo::TrainConfig;
use offing::algo::bc::BcConfig;
use offing::algo::recipe::RecipeConfig;
use offing::uncertainty::UncertaintyConfig;
use toml::Table;

use crate::config::Layers;

/// Presets by file name; the files lie in `presets/`.
const PRESETS: &[(&str, &str)] = &[
    ("mopo", include_str!("../../../presets/mopo.toml")),
    ("mopo+sumo", include_str!("../../../presets/mopo+sumo.toml")),
    ("mopo.kit", include_str!("../../../presets/mopo.kit.toml")),
    ("amorel", include_str!("../../../presets/amorel.toml")),
    ("amorel.paper", include_str!("../../../presets/amorel.paper.toml")),
    ("morel-sac", include_str!("../../../presets/morel-sac.toml")),
    ("bc", include_str!("../../../presets/bc.toml")),
];

const QUICK: &str = include_str!("../../../presets/quick.toml");

/// Names of all algorithms.
const NAMES: [&str; 4] = ["mopo", "amorel", "morel-sac", "bc"];

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
        let base = *known.ok_or_else(|| {
            let nearest = NAMES
                .iter()
                .max_by(|a, b| strsim::jaro_winkler(a, base).total_cmp(&strsim::jaro_winkler(b, base)));
            let nearest = nearest.map(|n| format!("did you mean `{n}`? ")).unwrap_or_default();
            anyhow!("unknown algorithm `{base}`; {nearest}known: {}", NAMES.join(" "))
        })?;
        let estimator = match estimator {
            None => None,
            Some(_) if base == "bc" => bail!("`{name}`: bc takes no estimator; write `bc`"),
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

    /// Defaults, preset, estimator and profile, one over the other.
    pub(crate) fn layers(
        &self,
        dataset: &str,
        variant: Option<&str>,
        profile: Option<&str>,
    ) -> Result<Prepared> {
        let dataset = dataset.strip_suffix("-v2").unwrap_or(dataset);
        let mut layers = match self.base {
            "bc" => Layers::of::<BcConfig>()?,
            _ => Layers::of::<RecipeConfig>()?,
        };
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
                if self.base == "bc" {
                    ["rollout", "model", "sac"].iter().for_each(|key| drop(table.remove(*key)));
                }
                layers.put(table);
            }
            Some(other) => bail!("unknown profile `{other}`; known: quick"),
        }
        Ok(Prepared { layers, rows })
    }

    /// Reads the layers as this algorithm's settings.
    pub(crate) fn plan(&self, layers: &Layers) -> Result<Plan> {
        let plan = match self.base {
            "bc" => Plan::Bc(layers.read()?),
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
            Self::Recipe(cfg) => &cfg.train,
            Self::Bc(cfg) => &cfg.train,
        }
    }

    /// Says what is wrong with the values, if anything, before a directory is made for them.
    pub(crate) fn check(&self) -> Result<()> {
        self.train().check()?;
        if let Self::Recipe(cfg) = self {
            cfg.rollout.check()?;
            cfg.model.ensemble.check()?;
            cfg.sac.check()?;
        }
        Ok(())
    }

    /// As it is written down.
    pub(crate) fn table(&self) -> Result<Table> {
        Ok(match self {
            Self::Recipe(cfg) => Table::try_from(cfg.as_ref())?,
            Self::Bc(cfg) => Table::try_from(cfg)?,
        })
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
    use offing::data::catalogue::made_names;
    use offing::pessimism::{Normaliser, Pessimism};

    fn plan(name: &str, dataset: &str, variant: Option<&str>) -> RecipeConfig {
        let algorithm = Algorithm::parse(name).unwrap();
        let prepared = algorithm.layers(dataset, variant, None).unwrap();
        match algorithm.plan(&prepared.layers).unwrap() {
            Plan::Recipe(cfg) => *cfg,
            Plan::Bc(_) => panic!("not a recipe"),
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
                for estimator in estimators.iter().filter(|_| base != "bc") {
                    let algorithm = Algorithm::parse(&format!("{base}+{}", estimator.id())).unwrap();
                    let prepared = algorithm.layers(&dataset, None, None).unwrap();
                    match algorithm.plan(&prepared.layers).unwrap() {
                        Plan::Recipe(cfg) => assert_eq!(cfg.uncertainty.id(), estimator.id()),
                        Plan::Bc(_) => panic!("not a recipe"),
                    }
                }
            }
            plan("mopo", &dataset, Some("kit"));
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
        let kit = plan("mopo", "hopper-medium-v2", Some("kit"));
        assert!(matches!(kit.pessimism, Pessimism::Penalize { lambda: 5.0, .. }));
    }

    #[test]
    fn wrong_names_are_answered_with_right_ones() {
        for (name, pieces) in [
            ("mopp", &["`mopp`", "`mopo`"][..]),
            ("mopo+summo", &["`summo`", "`sumo`"]),
            ("bc+sumo", &["bc takes no estimator"]),
        ] {
            let error = Algorithm::parse(name).unwrap_err().to_string();
            assert!(pieces.iter().all(|p| error.contains(p)) && !error.contains('\n'), "{error}");
        }
        let error =
            Algorithm::parse("amorel").unwrap().layers("x", Some("kit"), None).err().unwrap().to_string();
        assert!(error.contains("known: paper"), "{error}");
    }
}
