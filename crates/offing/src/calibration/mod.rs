//! The calibration study: does a score tell where an imagined step is wrong? (Tables 2, 3, 5 and 9.)
//!
//! A [`Trial`] holds imagined rows beside what truly follows them; [`study`] compares every estimator's scores with the true
//! errors ‖s' − ŝ'‖₂. Nothing is dropped in silence: rows that exploded or that the simulator could not replay are counted.
//!
//! ```no_run
//! # use offing::{calibration::*, dynamics::*, sac::Actor, uncertainty::*, nn::Team, Mat, Rng};
//! # fn f(model: &Ensemble, actor: &Actor, oracle: &Oracle, starts: Mat, sumo: &dyn Uncertainty) -> offing::Result<()> {
//! let mut rng = Rng::stream(0, "calibrate", 0);
//! let trial = imagine(model, actor, starts, 100, &Team::new(2), &mut rng)?.replay(oracle)?;
//! let found = study(&trial, &[("sumo".into(), sumo)], &StudyConfig::default(), &mut rng)?;
//! println!("ρ = {:.2}", found.headline("sumo").unwrap().spearman.value);
//! # Ok(())
//! # }
//! ```

mod study;
#[cfg(test)]
mod tests;
mod trial;

pub use study::{Cost, Outcome, Step, Steps, Study, StudyConfig, Subset, View, study};
pub use trial::{Counts, Imagined, Trial, held_out, imagine};
