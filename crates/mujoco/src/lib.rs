//! MuJoCo tasks.
