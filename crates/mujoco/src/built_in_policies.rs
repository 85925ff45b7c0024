//! The behaviour policies that come with offing, so that every D4RL flavour can be generated without other files.
//!
//! Trained by `offing data collect` in offing's own simulators; `policies/README.md` has commands, seeds and scores.

use offing::Result;
use offing::data::policy_set::PolicySet;

macro_rules! files {
    ($($task:literal: $($number:literal)*;)*) => {
        &[$($((
            concat!($task, "-", $number, ".safetensors"),
            include_bytes!(concat!("../policies/", $task, "-", $number, ".safetensors")).as_slice(),
        ),)*)*]
    };
}

const FILES: &[(&str, &[u8])] = files! {
    "halfcheetah": 0 1 2 3 4 5 6;
    "hopper": 0 1 2 3 4 5 6;
    "walker2d": 0 1 2 3 4 5 6;
};

/// The built-in policies of halfcheetah, hopper and walker2d.
pub fn built_in_policies() -> Result<PolicySet> {
    PolicySet::built_in(FILES, include_str!("../policies/index.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use offing::data::catalogue::GeneratedName;
    use offing::data::policy_set::SnapshotChoice;

    #[test]
    fn every_flavour_of_every_task_with_policies_can_be_generated() {
        for task in offing::tasks::TASKS.iter().filter(|task| task.built_in_policies) {
            let body = task.name;
            let mix = |flavour: &str| {
                let recipe = GeneratedName::parse(&format!("{body}-{flavour}")).unwrap();
                built_in_policies().unwrap().policies_for(&recipe, SnapshotChoice::default()).unwrap()
            };
            let (medium, replay, expert) = (mix("medium"), mix("medium-replay"), mix("expert"));
            assert!(replay.len() >= 4, "{body}: untrained, some on the way, medium");
            assert_eq!(replay.last().unwrap().digest, medium[0].digest);
            assert_ne!(expert[0].digest, medium[0].digest, "{body}");
            assert_eq!(mix("medium-expert").len(), 2);
        }
    }
}
