//! Where the fields offing reads lie inside `mjModel` and `mjData` of MuJoCo 3.17.0.
//!
//! Both structs are public but their layout belongs to one version, so the numbers below (`offsetof` over the
//! 3.17.0 headers; the same on every 64-bit platform, since no field is a `long`) are trusted only after
//! [`super::model`] has checked `mj_version()` and has found known values of a small model through each of them.

/// The one version whose layout is written here, as `mj_version()` returns it.
pub(crate) const VERSION: i32 = 3_017_000;
/// The same as people write it.
pub const VERSION_NAME: &str = "3.17.0";

/// Fields of `mjModel`: `mjtSize` counts first, then options, then pointers.
pub(crate) mod model {
    pub(crate) const NQ: usize = 0;
    pub(crate) const NV: usize = 8;
    pub(crate) const NU: usize = 16;
    pub(crate) const NBODY: usize = 48;
    pub(crate) const NGEOM: usize = 136;
    /// `opt.timestep`, the first field of `mjOption`.
    pub(crate) const TIMESTEP: usize = 792;
    pub(crate) const BODY_MASS: usize = 1944;
    pub(crate) const BODY_INERTIA: usize = 1960;
    /// `mjtGeom`, an `int` a geom.
    pub(crate) const GEOM_TYPE: usize = 2416;
    /// Three a geom; what they mean depends on its type.
    pub(crate) const GEOM_SIZE: usize = 2528;
    pub(crate) const ACTUATOR_CTRLRANGE: usize = 4992;
}

/// Fields of `mjData`: pointers to arrays of f64 that stay where they are for the life of the `mjData`, unless said
/// otherwise.
pub(crate) mod data {
    /// `mjWarningStat`: two `int`s a kind of warning, the second counts; cleared by `mj_resetData`.
    pub(crate) const WARNING: usize = 160_264;
    pub(crate) const QPOS: usize = 160_688;
    pub(crate) const QVEL: usize = 160_696;
    pub(crate) const CTRL: usize = 160_736;
    /// Positions of body frames, 3 a body; one integrator step older than `qpos`.
    pub(crate) const XPOS: usize = 160_840;
    /// Centres of geoms, 3 a geom, as old as `XPOS`.
    pub(crate) const GEOM_XPOS: usize = 160_896;
    /// Rotation matrices of geoms, 9 a geom, row by row.
    pub(crate) const GEOM_XMAT: usize = 160_904;
    /// `int`: scalar constraints of the last forward pass. The `efc_` arrays hold so many rows; they lie in the arena
    /// and move at every pass.
    pub(crate) const NEFC: usize = 160_576;
    /// Stiffness, damping, impedance and its derivative, four a constraint.
    pub(crate) const EFC_KBIP: usize = 161_568;
    /// Regularisation, one a constraint.
    pub(crate) const EFC_R: usize = 161_584;
    /// Its inverse.
    pub(crate) const EFC_D: usize = 161_576;
    /// External forces on bodies, 6 a body, filled by `mj_rnePostConstraint`.
    pub(crate) const CFRC_EXT: usize = 161_464;
}

/// `mjtGeom`: the kinds that have an outline here.
pub(crate) mod geom {
    pub(crate) const SPHERE: i32 = 2;
    pub(crate) const CAPSULE: i32 = 3;
    pub(crate) const BOX: i32 = 6;
}

/// `mjtWarning`: the kinds after which the engine starts over from its initial state.
pub(crate) const LOST: std::ops::RangeInclusive<usize> = 3..=5;

/// `mjtState` bits.
pub(crate) mod state {
    pub(crate) const QPOS: i32 = 1 << 1;
    pub(crate) const QVEL: i32 = 1 << 2;
    pub(crate) const CTRL: i32 = 1 << 6;
}
