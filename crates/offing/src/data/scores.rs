//! D4RL's reference returns and the normalised score: 100 · (return − random) / (expert − random).
//!
//! ```
//! use offing::data::scores::reference;
//! let hopper = reference("hopper-medium-v2").unwrap();
//! assert_eq!(hopper.normalise(3234.3), 100.0);
//! // A spread is scaled, never shifted: pushing it through the affine map would subtract the random return.
//! assert!((hopper.normalise_spread(32.54572305) - 1.0).abs() < 1e-9);
//! ```

/// Returns of D4RL's random and expert policies on one task.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Reference {
    /// Return that scores 0.
    pub random: f64,
    /// Return that scores 100.
    pub expert: f64,
}

impl Reference {
    /// The normalised score of a return, or of a mean of returns.
    pub fn normalise(&self, value: f64) -> f64 {
        100.0 * (value - self.random) / (self.expert - self.random)
    }

    /// A standard deviation or standard error of returns, in points of normalised score.
    pub fn normalise_spread(&self, spread: f64) -> f64 {
        100.0 * spread / (self.expert - self.random)
    }
}

/// D4RL's constants by body; every version (v0, v1, v2) reuses those of v0.
const REFERENCES: [(&str, Reference); 5] = [
    ("halfcheetah", Reference { random: -280.178953, expert: 12135.0 }),
    ("hopper", Reference { random: -20.272305, expert: 3234.3 }),
    ("walker2d", Reference { random: 1.629008, expert: 4592.3 }),
    ("antmaze", Reference { random: 0.0, expert: 1.0 }),
    ("ant", Reference { random: -325.6, expert: 3879.7 }),
];

/// The reference of a task or D4RL dataset name, by its first word; `None` for anything else. Minari's `mujoco/…` sets
/// have other bodies and no reference scores, so they get none.
pub fn reference(name: &str) -> Option<Reference> {
    let body = name.split(['-', '_']).next()?;
    REFERENCES.iter().find(|(known, _)| *known == body).map(|(_, reference)| *reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_by_whole_word() {
        for (name, expert) in [
            ("ant", Some(3879.7)),
            ("ant-medium", Some(3879.7)),
            ("antmaze-umaze", Some(1.0)),
            ("hopper", Some(3234.3)),
            ("hopper_medium-v2", Some(3234.3)),
            ("mujoco/hopper/expert-v0", None),
            ("anthill", None),
        ] {
            assert_eq!(reference(name).map(|r| r.expert), expert, "{name}");
        }
    }
}
