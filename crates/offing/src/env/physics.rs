//! Which simulator a task imitates.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Which simulator a task imitates: its physics, its rewards and its observations.
///
/// ```
/// use offing::env::Physics;
/// assert_eq!("gymnasium-v4".parse::<Physics>()?, Physics::GymnasiumV4);
/// assert_eq!(Physics::default().to_string(), "d4rl-v2");
/// # Ok::<(), offing::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Physics {
    /// What D4RL's v2 data were recorded with: Gymnasium v4's rewards and terminations, the capsule inertias and contact
    /// margins of MuJoCo 2.0. The ant's contact forces are 0, as in D4RL's files.
    #[default]
    D4rlV2,
    /// Gymnasium 1.4's v4 environments, to the last bit.
    GymnasiumV4,
    /// Gymnasium 1.4's v5 environments, to the last bit.
    GymnasiumV5,
    /// The gym-v2 environments on MuJoCo 1.50, before D4RL's v2 data: as `d4rl-v2`, with a lower clamp of HalfCheetah's impedances
    /// and with the ant's contact forces.
    #[serde(rename = "mujoco-1.50")]
    Mujoco150,
}

impl Physics {
    /// All of them, the default first.
    pub const ALL: [Self; 4] = [Self::D4rlV2, Self::GymnasiumV4, Self::GymnasiumV5, Self::Mujoco150];

    /// The name used on the command line and in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::D4rlV2 => "d4rl-v2",
            Self::GymnasiumV4 => "gymnasium-v4",
            Self::GymnasiumV5 => "gymnasium-v5",
            Self::Mujoco150 => "mujoco-1.50",
        }
    }

    /// Whether bodies weigh and touch as in the MuJoCo that D4RL used.
    pub fn is_old(self) -> bool {
        matches!(self, Self::D4rlV2 | Self::Mujoco150)
    }
}

impl fmt::Display for Physics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Physics {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|physics| physics.name() == name).ok_or_else(|| Error::Unknown {
            kind: "physics",
            name: name.into(),
            hint: format!("known: {}", Self::ALL.map(Self::name).join(", ")),
        })
    }
}
