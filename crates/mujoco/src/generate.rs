//! Generated datasets: D4RL's flavours, rolled out by behaviour policies in offing's own simulators and kept by name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use offing::data::catalogue::{Catalogue, GeneratedName};
use offing::data::generate::{Behaviour, BehaviourBlock, generate as roll_out};
use offing::data::policy_set::{LoadedPolicy, PolicySet, SnapshotChoice};
use offing::data::{self, Format, recorded_policy};
use offing::env::{EnvPool, GenerateOptions, Generated, Physics};
use offing::home::Home;
use offing::policy::UniformPolicy;
use offing::{Error, Result};
use sha2::{Digest, Sha256};

use crate::antmaze_policy::WaypointFollower;
use crate::{Engine, Maze, built_in_policies, make, make_starting_anywhere};

/// The file of the goal-reaching ant behind AntMaze data.
const GOAL_REACHING_ANT: &str = "ant-navigate.safetensors";

/// Generates a dataset, or finds it in the cache. `progress` gets the number of rows so far.
pub fn generate(
    engine: &Engine,
    home: &Home,
    recipe: &GeneratedName,
    options: &GenerateOptions,
    progress: &mut dyn FnMut(usize),
) -> Result<Generated> {
    if let Some(path) = &options.out
        && (path.is_dir() || Format::of_target(path)? != Format::D4RL)
    {
        return Err(Error::file(
            path,
            "wanted a file name ending in .hdf5 for a generated dataset; `offing data convert` writes others",
        ));
    }
    let maze = Maze::of_task(&recipe.task);
    let policies = behaviour_policies(recipe, options, maze.is_some())?;
    let behaviour: Vec<String> = match &policies {
        Some(policies) => policies.iter().map(|policy| policy.file.clone()).collect(),
        None => vec!["uniform actions".to_string()],
    };
    let path = match &options.out {
        Some(path) => path.clone(),
        None => {
            let hash = content_hash(policies.as_deref(), options.physics);
            Catalogue::generated_path(home, &recipe.name, options.rows, options.seed, &hash)?
        }
    };
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let _lock = options.out.is_none().then(|| home.lock("datasets", &name)).transpose()?;
    let fresh = options.out.is_some() || !path.exists();
    if options.out.is_none() {
        home.check_owner(&path)?;
    }
    if fresh {
        let mut data = roll_out_blocks(engine, recipe, options, policies.as_deref(), maze, progress)?;
        data.meta = BTreeMap::from([
            ("made_by".to_string(), format!("offing {}", env!("CARGO_PKG_VERSION"))),
            ("set".to_string(), recipe.name.clone()),
            ("seed".to_string(), options.seed.to_string()),
            ("physics".to_string(), format!("{} on MuJoCo {}", options.physics, engine.version())),
            ("behaviour".to_string(), behaviour.join(", ")),
        ]);
        let parent = path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(parent).map_err(|e| Error::io(parent, "create the directory", e))?;
        data::write(&data, &path, Format::D4RL)?;
    }
    Ok(Generated { path, fresh, behaviour })
}

/// The policies that act, each for an equal share of the rows; `None` stands for uniform actions.
fn behaviour_policies(
    recipe: &GeneratedName,
    options: &GenerateOptions,
    in_maze: bool,
) -> Result<Option<Vec<LoadedPolicy>>> {
    if let Some(file) = &options.policy_from {
        return Ok(Some(vec![recorded_policy(file)?]));
    }
    let choice = SnapshotChoice { medium: options.medium, expert: options.expert };
    match options.policies.as_deref().map(PolicySet::open).transpose()? {
        Some(set) if in_maze => Ok(Some(vec![set.load(GOAL_REACHING_ANT)?])),
        Some(set) => set.policies_for(recipe, choice).map(Some),
        None if recipe.flavour == "random" => Ok(None),
        None if in_maze => Err(Error::Invalid(format!(
            "`{}` needs a goal-reaching ant that offing does not ship; put {GOAL_REACHING_ANT} into a directory and pass \
             it with --policies DIR",
            recipe.name
        ))),
        None => built_in_policies()?.policies_for(recipe, choice).map(Some),
    }
}

/// Eight hexadecimal digits over everything besides name, rows and seed that the rows depend on.
fn content_hash(policies: Option<&[LoadedPolicy]>, physics: Physics) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("made-2 {physics} "));
    match policies {
        Some(policies) => policies.iter().for_each(|policy| hash.update(policy.digest)),
        None => hash.update("uniform"),
    }
    hash.finalize().iter().take(4).map(|b| format!("{b:02x}")).collect()
}

fn roll_out_blocks(
    engine: &Engine,
    recipe: &GeneratedName,
    options: &GenerateOptions,
    policies: Option<&[LoadedPolicy]>,
    maze: Option<Maze>,
    progress: &mut dyn FnMut(usize),
) -> Result<offing::data::Dataset> {
    // Every AntMaze set but plain umaze starts anywhere; an episode ends at the goal, so terminals are terminal.
    let anywhere = maze.is_some() && !recipe.flavour.is_empty();
    let make_env = if anywhere { make_starting_anywhere } else { make };
    let envs = EnvPool::new(|| make_env(engine, &recipe.task, options.physics));
    let behaviours: Vec<Box<dyn Behaviour + '_>> = match (policies, maze) {
        (None, _) => vec![Box::new(UniformPolicy)],
        (Some(policies), Some(maze)) => {
            vec![Box::new(WaypointFollower::new(&policies[0], maze, &recipe.flavour)?)]
        }
        (Some(policies), None) => {
            let wanted = envs.with(|env| (env.spec().obs_dim, env.spec().act_dim))?;
            let whose = format!("a policy for {} under {}", recipe.task, options.physics);
            for policy in policies {
                policy.check_widths(&whose, wanted, "other policies or another --physics")?;
            }
            policies.iter().map(|p| Box::new(p.policy.clone()) as Box<dyn Behaviour>).collect()
        }
    };
    let rows = shares(options.rows, behaviours.len());
    let blocks: Vec<BehaviourBlock> = behaviours
        .iter()
        .zip(rows)
        .map(|(behaviour, rows)| BehaviourBlock { rows, behaviour: behaviour.as_ref() })
        .collect();
    roll_out(&recipe.name, &envs, &blocks, options.seed, progress)
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
    fn a_set_that_needs_a_policy_from_elsewhere_says_so() {
        let recipe = GeneratedName::parse("antmaze-umaze").unwrap();
        let error = behaviour_policies(&recipe, &GenerateOptions::default(), true).unwrap_err().to_string();
        assert!(error.contains("--policies DIR") && !error.contains('\n'), "{error}");
    }
}
