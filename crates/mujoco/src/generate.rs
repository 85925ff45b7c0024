//! Generated datasets: D4RL's flavours, rolled out by behaviour policies in offing's own simulators and kept by name.

use std::collections::BTreeMap;
use std::fs;

use offing::data::catalogue::{Catalogue, Recipe};
use offing::data::make::{Behaviour, Block, Follow, make as roll_out};
use offing::data::policy_set::{Choice, Ingredient, PolicySet};
use offing::data::{Format, write_d4rl};
use offing::env::{Env, EnvPool, GenerateOptions, Generated, Physics};
use offing::home::Home;
use offing::policy::Uniform;
use offing::{Error, Result};
use sha2::{Digest, Sha256};

use crate::built_in::built_in;
use crate::navigator::Navigator;
use crate::{AntMazeOptions, Engine, Maze, antmaze, make};

/// The file of the goal-reaching ant behind AntMaze data.
const NAVIGATOR: &str = "ant-navigate.safetensors";

/// Generates a dataset, or finds it in the cache. `progress` gets the number of rows so far.
pub fn generate(
    engine: &Engine,
    home: &Home,
    recipe: &Recipe,
    options: &GenerateOptions,
    progress: &mut dyn FnMut(usize),
) -> Result<Generated> {
    if let Some(path) = &options.out
        && (path.is_dir() || Format::of_target(path)? != Format::D4rl)
    {
        return Err(Error::file(
            path,
            "wanted a file name ending in .hdf5 for a generated dataset; `offing data convert` writes others",
        ));
    }
    let policies = ingredients(recipe, options)?;
    let behaviour = match &policies {
        Some(mix) => mix.iter().map(|i| i.file.clone()).collect(),
        None => vec!["uniform actions".to_string()],
    };
    if let Some(path) = &options.out {
        write(engine, recipe, options, policies.as_deref(), &behaviour, path, progress)?;
        return Ok(Generated { path: path.clone(), fresh: true, behaviour });
    }
    let hash = content_hash(policies.as_deref(), options.physics);
    let path = Catalogue::made_path(home, &recipe.name, options.rows, options.seed, &hash)?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let _lock = home.lock("datasets", &name)?;
    let fresh = !path.exists();
    if fresh {
        write(engine, recipe, options, policies.as_deref(), &behaviour, &path, progress)?;
    }
    Ok(Generated { path, fresh, behaviour })
}

/// The time limit of a task or of the task behind a dataset's name.
pub fn horizon(name: &str) -> Option<usize> {
    let mut words = name.split(['-', '_']);
    match (words.next()?, words.next()) {
        ("halfcheetah" | "hopper" | "walker2d" | "ant", _) | ("antmaze", Some("medium" | "large")) => {
            Some(1000)
        }
        ("antmaze", Some("umaze")) => Some(700),
        _ => None,
    }
}

/// The simulated task behind a task's or dataset's name, such as `hopper` for `hopper-medium-v2`.
pub fn task_of(name: &str) -> Option<String> {
    horizon(name)?;
    let mut words = name.split(['-', '_']);
    let body = words.next()?;
    Some(if body == "antmaze" { format!("antmaze-{}", words.next()?) } else { body.to_string() })
}

fn ingredients(recipe: &Recipe, options: &GenerateOptions) -> Result<Option<Vec<Ingredient>>> {
    let choice = Choice { medium: options.medium, expert: options.expert };
    match options.policies.as_deref().map(PolicySet::open).transpose()? {
        Some(set) if recipe.task.starts_with("antmaze") => Ok(Some(vec![set.load(NAVIGATOR)?])),
        Some(set) => set.mix(recipe, choice).map(Some),
        None if recipe.flavour == "random" => Ok(None),
        None if recipe.task.starts_with("antmaze") => Err(Error::Invalid(format!(
            "`{}` is walked by a goal-reaching ant that offing does not ship; put {NAVIGATOR} into a directory and pass it with \
             --policies DIR",
            recipe.name
        ))),
        None => built_in()?.mix(recipe, choice).map(Some),
    }
}

/// Eight hexadecimal digits over everything besides name, rows and seed that the rows depend on.
fn content_hash(policies: Option<&[Ingredient]>, physics: Physics) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("made-1 {physics} "));
    match policies {
        Some(mix) => mix.iter().for_each(|i| hash.update(i.digest)),
        None => hash.update("uniform"),
    }
    hash.finalize().iter().take(4).map(|b| format!("{b:02x}")).collect()
}

fn write(
    engine: &Engine,
    recipe: &Recipe,
    options: &GenerateOptions,
    policies: Option<&[Ingredient]>,
    behaviour: &[String],
    path: &std::path::Path,
    progress: &mut dyn FnMut(usize),
) -> Result<()> {
    let maze = Maze::of_task(&recipe.task);
    let make_env = || -> Result<Box<dyn Env>> {
        if maze.is_none() {
            return make(engine, &recipe.task, options.physics);
        }
        // Every AntMaze set but plain umaze starts anywhere; an episode ends at the goal, so terminals are terminal.
        let anywhere =
            AntMazeOptions { start_anywhere: !recipe.flavour.is_empty(), ..AntMazeOptions::default() };
        Ok(Box::new(antmaze(engine, &recipe.task, options.physics, anywhere)?))
    };
    let envs = EnvPool::new(&make_env);
    let spec = envs.with(|env| env.spec().clone())?;
    let uniform = Follow(&Uniform);
    let actors: Vec<Box<dyn Behaviour + '_>> = match (policies, &maze) {
        (None, _) => vec![Box::new(uniform)],
        (Some(mix), Some(maze)) => {
            vec![Box::new(Navigator::new(&mix[0], maze.clone(), &recipe.flavour)?)]
        }
        (Some(mix), None) => {
            for ingredient in mix {
                let (wanted, found) = (
                    (spec.obs_dim, spec.act_dim),
                    (ingredient.policy.obs_dim(), ingredient.policy.act_dim()),
                );
                if wanted != found {
                    return Err(Error::file(
                        &ingredient.file,
                        format!(
                            "wanted a policy with {} inputs and {} actions for {} under {}, found {} and {}; give other \
                             policies or another --physics",
                            wanted.0, wanted.1, recipe.task, options.physics, found.0, found.1
                        ),
                    ));
                }
            }
            mix.iter().map(|i| Box::new(Follow(&i.policy)) as Box<dyn Behaviour>).collect()
        }
    };
    let blocks = shares(options.rows, actors.len());
    let blocks: Vec<Block> =
        actors.iter().zip(blocks).map(|(actor, rows)| Block { rows, behaviour: actor.as_ref() }).collect();
    let mut data = roll_out(&recipe.name, &envs, &blocks, options.seed, progress)?;
    data.meta = BTreeMap::from([
        ("made_by".to_string(), format!("offing {}", env!("CARGO_PKG_VERSION"))),
        ("set".to_string(), recipe.name.clone()),
        ("seed".to_string(), options.seed.to_string()),
        ("physics".to_string(), format!("{} on MuJoCo {}", options.physics, engine.version())),
        ("behaviour".to_string(), behaviour.join(", ")),
    ]);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|e| Error::io(parent, "create the directory", e))?;
    }
    write_d4rl(&data, path)
}

/// Splits rows into equal blocks; the first ones take what does not divide evenly.
fn shares(rows: usize, blocks: usize) -> Vec<usize> {
    (0..blocks).map(|i| rows / blocks + usize::from(i < rows % blocks)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_share_all_rows() {
        assert_eq!(shares(10, 3), [4, 3, 3]);
        assert_eq!(shares(2, 3), [1, 1, 0]);
    }

    #[test]
    fn time_limits_are_known_by_name() {
        for (name, limit) in [
            ("hopper-medium-v2", Some(1000)),
            ("antmaze-umaze-diverse", Some(700)),
            ("antmaze-large-play", Some(1000)),
            ("my-own-logs", None),
        ] {
            assert_eq!(horizon(name), limit, "{name}");
        }
    }

    #[test]
    fn a_set_that_needs_a_policy_from_elsewhere_says_so() {
        let recipe = Recipe::parse("antmaze-umaze").unwrap();
        let error = ingredients(&recipe, &GenerateOptions::default()).unwrap_err().to_string();
        assert!(error.contains("--policies DIR") && !error.contains('\n'), "{error}");
    }
}
