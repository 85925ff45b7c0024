//! The behaviour policies that come with offing, so that every D4RL flavour can be made without any file from elsewhere.
//!
//! Trained by `offing data collect` in offing's own simulators; `policies/README.md` has commands, seeds and scores.

use offing::Result;
use offing::data::policy_set::PolicySet;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../../policies/", $name)).as_slice())),*]
    };
}

const FILES: &[(&str, &[u8])] = files![
    "halfcheetah-0.safetensors",
    "halfcheetah-1.safetensors",
    "halfcheetah-2.safetensors",
    "halfcheetah-3.safetensors",
    "halfcheetah-4.safetensors",
    "halfcheetah-5.safetensors",
    "halfcheetah-6.safetensors",
    "hopper-0.safetensors",
    "hopper-1.safetensors",
    "hopper-2.safetensors",
    "hopper-3.safetensors",
    "hopper-4.safetensors",
    "hopper-5.safetensors",
    "hopper-6.safetensors",
    "walker2d-0.safetensors",
    "walker2d-1.safetensors",
    "walker2d-2.safetensors",
    "walker2d-3.safetensors",
    "walker2d-4.safetensors",
    "walker2d-5.safetensors",
    "walker2d-6.safetensors",
];

/// The built-in policies of halfcheetah, hopper and walker2d.
pub fn built_in() -> Result<PolicySet> {
    PolicySet::built_in(FILES, include_str!("../../../policies/index.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use offing::data::catalogue::Recipe;
    use offing::data::policy_set::Choice;

    #[test]
    fn every_flavour_of_every_body_can_be_made() {
        for body in ["halfcheetah", "hopper", "walker2d"] {
            let mix = |flavour: &str| {
                let recipe = Recipe::parse(&format!("{body}-{flavour}")).unwrap();
                built_in().unwrap().mix(&recipe, Choice::default()).unwrap()
            };
            let (medium, replay, expert) = (mix("medium"), mix("medium-replay"), mix("expert"));
            assert!(replay.len() >= 4, "{body}: untrained, some on the way, medium");
            assert_eq!(replay.last().unwrap().digest, medium[0].digest);
            assert_ne!(expert[0].digest, medium[0].digest, "{body}");
            assert_eq!(mix("medium-expert").len(), 2);
        }
    }
}
