//! Settings of an algorithm by name, without its data, and what they say about it.

use anyhow::Result;
use offing::algorithms::{Algorithm, Configured, Registry};

/// The settings of an algorithm on a dataset under a preset and a profile, with overrides on top; also the rows that the
/// profile asks for.
pub(crate) fn configure(
    algorithm: &str,
    dataset: &str,
    (preset, profile): (Option<&str>, Option<&str>),
    set: &[String],
) -> Result<(Configured, Option<usize>)> {
    let name = Registry::default().parse(algorithm)?;
    let (mut layers, rows) = name.layers(dataset, preset, profile)?;
    set.iter().try_for_each(|set| layers.set(set))?;
    Ok((name.configure(&layers)?, rows))
}

/// Whether a step of an algorithm is a whole iteration of planning in a model, as long as thousands of gradient steps: it
/// learns a model, but has no agent of gradient steps (MOReL).
pub fn plans(algorithm: &dyn Algorithm) -> bool {
    let blocks = algorithm.blocks();
    blocks.model.is_some() && blocks.sac.is_none()
}
