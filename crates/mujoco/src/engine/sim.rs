//! One simulation: an `mjData` with direct views of its state.

use std::sync::Arc;

use offing::{Error, Result};

use super::api::{MjData, OnData, guarded};
use super::layout::{LOST, data as at};
use super::model::Model;

/// `mjMINIMP`.
const MIN_IMPEDANCE: f64 = 1e-4;

/// The state of one simulation of a shared model.
#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) model: Arc<Model>,
    raw: *mut MjData,
    qpos: *mut f64,
    qvel: *mut f64,
    ctrl: *mut f64,
    xpos: *const f64,
    geom_xpos: *const f64,
    geom_xmat: *const f64,
    cfrc_ext: *const f64,
}

// SAFETY: an mjData belongs to whoever holds it and is bound to no thread.
unsafe impl Send for Sim {}

impl Sim {
    pub(crate) fn new(model: &Arc<Model>) -> Result<Self> {
        let raw = guarded("simulation", || {
            // SAFETY: the model is live.
            unsafe { (model.api.make_data)(model.raw) }
        })?;
        if raw.is_null() {
            return Err(Error::Invalid("MuJoCo could not allocate a simulation: out of memory".into()));
        }
        // SAFETY: pointer fields of a live mjData at the offsets of this version; the arrays never move.
        let field = |at: usize| unsafe { raw.byte_add(at).cast::<*mut f64>().read() };
        Ok(Self {
            qpos: field(at::QPOS),
            qvel: field(at::QVEL),
            ctrl: field(at::CTRL),
            xpos: field(at::XPOS),
            geom_xpos: field(at::GEOM_XPOS),
            geom_xmat: field(at::GEOM_XMAT),
            cfrc_ext: field(at::CFRC_EXT),
            model: model.clone(),
            raw,
        })
    }

    /// Generalised positions.
    pub(crate) fn qpos(&self) -> &[f64] {
        // SAFETY: nq values, borrowed with `self`, which every call that writes them borrows mutably.
        unsafe { std::slice::from_raw_parts(self.qpos, self.model.nq) }
    }

    /// Generalised velocities.
    pub(crate) fn qvel(&self) -> &[f64] {
        // SAFETY: nv values, as above.
        unsafe { std::slice::from_raw_parts(self.qvel, self.model.nv) }
    }

    /// Controls, to be set before a step.
    pub(crate) fn ctrl_mut(&mut self) -> &mut [f64] {
        // SAFETY: nu values, borrowed exclusively with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.ctrl, self.model.nu) }
    }

    /// Position of a body's frame as of the last forward pass.
    pub(crate) fn xpos(&self, body: usize) -> [f64; 3] {
        assert!(body < self.model.nbody, "body {body} of {}", self.model.nbody);
        // SAFETY: three values a body.
        unsafe { self.xpos.add(3 * body).cast::<[f64; 3]>().read() }
    }

    /// Centre and rotation matrix (row by row) of a geom as of the last forward pass.
    pub(crate) fn geom_pose(&self, geom: usize) -> ([f64; 3], [f64; 9]) {
        assert!(geom < self.model.ngeom, "geom {geom} of {}", self.model.ngeom);
        // SAFETY: three and nine values a geom.
        unsafe {
            (
                self.geom_xpos.add(3 * geom).cast::<[f64; 3]>().read(),
                self.geom_xmat.add(9 * geom).cast::<[f64; 9]>().read(),
            )
        }
    }

    /// External forces on each body (torque, then force), as of the last [`Sim::contact_forces`].
    pub(crate) fn cfrc_ext(&self) -> &[f64] {
        // SAFETY: six values a body.
        unsafe { std::slice::from_raw_parts(self.cfrc_ext, 6 * self.model.nbody) }
    }

    /// Forgets everything, then takes this state and computes what follows from it.
    pub(crate) fn set_state(&mut self, qpos: &[f64], qvel: &[f64]) {
        assert_eq!((qpos.len(), qvel.len()), (self.model.nq, self.model.nv), "state of another model");
        self.reset();
        // SAFETY: lengths checked above; source and target cannot overlap.
        unsafe {
            self.qpos.copy_from_nonoverlapping(qpos.as_ptr(), qpos.len());
            self.qvel.copy_from_nonoverlapping(qvel.as_ptr(), qvel.len());
        }
        self.forward();
    }

    /// Puts the simulation into the model's own initial state.
    pub(crate) fn reset(&mut self) {
        self.run(&[self.model.api.reset_data]);
    }

    /// Computes everything that follows from the state, without moving in time.
    pub(crate) fn forward(&mut self) {
        self.run(&[self.model.api.forward]);
    }

    /// Moves on by `count` time steps of the engine.
    pub(crate) fn advance(&mut self, count: usize) {
        for _ in 0..count {
            match self.model.old_impedance {
                Some(ceiling) => self.staged_step(|sim| sim.restore_impedance(ceiling)),
                None => self.run(&[self.model.api.step]),
            }
        }
    }

    /// `mj_step` with the Euler integrator, taken apart: `amend` runs when constraints are known and before they act.
    pub(crate) fn staged_step(&mut self, amend: impl FnOnce(&mut Self)) {
        let api = &self.model.api;
        let before = [api.check_pos, api.check_vel, api.fwd_position];
        let forces = [api.fwd_velocity, api.fwd_actuation, api.fwd_acceleration, api.fwd_constraint];
        let after = [api.check_acc, api.euler];
        self.run(&before);
        amend(self);
        self.run(&forces);
        self.run(&after);
    }

    /// Calls functions of the engine that work on this simulation.
    fn run(&mut self, stages: &[OnData]) {
        for stage in stages {
            // SAFETY: live model and data.
            unsafe { stage(self.model.raw, self.raw) }
        }
    }

    /// Gives soft constraints the impedance they had in MuJoCo 1.50, for a model whose impedances all rise from 0 to
    /// `ceiling`.
    ///
    /// Both engines keep impedances above [`MIN_IMPEDANCE`], but the old one raised the impedance of a constraint where
    /// it fell below, and today's raises the 0 the model starts from, which shifts all of them. The difference is 1e-4
    /// in the impedance, and up to 6e-3 in HalfCheetah's next velocities.
    fn restore_impedance(&mut self, ceiling: f64) {
        let (kbip, regular, inverse) = self.constraints();
        for ((kbip, r), d) in kbip.chunks_exact_mut(4).zip(regular).zip(inverse) {
            let [_, _, now, slope] = kbip else { continue };
            let rise = (*now - MIN_IMPEDANCE) / (ceiling - MIN_IMPEDANCE);
            let then = (ceiling * rise).max(MIN_IMPEDANCE);
            // R is proportional to (1 - impedance) / impedance, for pyramids of friction too.
            let scale = ((1.0 - then) / then) / ((1.0 - *now) / *now);
            *r *= scale;
            *d /= scale;
            *slope *= ceiling / (ceiling - MIN_IMPEDANCE);
            *now = then;
        }
    }

    /// `efc_KBIP`, `efc_R` and `efc_D` of the constraints found by the last forward pass.
    pub(crate) fn constraints(&mut self) -> (&mut [f64], &mut [f64], &mut [f64]) {
        // SAFETY: `nefc` rows in three arrays that do not overlap, borrowed exclusively with `self` and so until the next
        // pass. Without constraints the pointers may be null and are not used.
        unsafe {
            let rows = self.raw.byte_add(at::NEFC).cast::<i32>().read();
            let Ok(rows @ 1..) = usize::try_from(rows) else { return (&mut [], &mut [], &mut []) };
            let array = |at: usize, len: usize| {
                std::slice::from_raw_parts_mut(self.raw.byte_add(at).cast::<*mut f64>().read(), len)
            };
            (array(at::EFC_KBIP, 4 * rows), array(at::EFC_R, rows), array(at::EFC_D, rows))
        }
    }

    /// How often the engine found a position, velocity or acceleration too large to go on with, and started over from
    /// its initial state, since the last [`Sim::set_state`] or [`Sim::reset`].
    pub(crate) fn losses(&self) -> i32 {
        let count = |kind: usize| {
            // SAFETY: pairs of ints inside the struct itself; the second counts.
            unsafe { self.raw.byte_add(at::WARNING + 8 * kind + 4).cast::<i32>().read() }
        };
        LOST.map(count).sum()
    }

    /// Fills [`Sim::cfrc_ext`].
    pub(crate) fn contact_forces(&mut self) {
        self.run(&[self.model.api.rne_post_constraint]);
    }

    /// The same state through the engine's own accessor, slower; the oracle for the direct views.
    pub(crate) fn engine_state(&self, bits: i32) -> Vec<f64> {
        // SAFETY: the vector has the size the engine asks for.
        unsafe {
            let size = (self.model.api.state_size)(self.model.raw, bits);
            let mut state = vec![0.0; usize::try_from(size).unwrap_or(0)];
            (self.model.api.get_state)(self.model.raw, self.raw, state.as_mut_ptr(), bits);
            state
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // SAFETY: made by `mj_makeData` and owned here alone.
        unsafe { (self.model.api.delete_data)(self.raw) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Physics;
    use crate::engine::api;
    use crate::engine::layout::state;
    use crate::tasks::find;
    use crate::testing::shared;
    use offing::Rng;

    fn cheetah(physics: Physics) -> Sim {
        Sim::new(&shared().model_of(find("halfcheetah").unwrap().0, physics).unwrap()).unwrap()
    }

    /// Steps two simulations under the same random controls and returns how far their states come apart.
    fn apart(mut a: Sim, mut b: Sim, steps: usize, mut step: impl FnMut(&mut Sim, &mut Sim)) -> f64 {
        let mut rng = Rng::stream(3, "controls", 0);
        let mut worst = 0.0f64;
        for _ in 0..steps {
            for i in 0..6 {
                let control = rng.range(-1.0, 1.0);
                a.ctrl_mut()[i] = control;
                b.ctrl_mut()[i] = control;
            }
            step(&mut a, &mut b);
            let pairs = a.qpos().iter().zip(b.qpos()).chain(a.qvel().iter().zip(b.qvel()));
            worst = pairs.map(|(x, y)| (x - y).abs()).fold(worst, f64::max);
        }
        worst
    }

    #[test]
    fn a_step_in_stages_is_the_engines_step_to_the_bit() {
        let (a, b) = (cheetah(Physics::GymnasiumV4), cheetah(Physics::GymnasiumV4));
        let worst = apart(a, b, 500, |a, b| {
            a.advance(1);
            b.staged_step(|_| ());
        });
        assert_eq!(worst, 0.0);
    }

    #[test]
    fn restored_impedances_never_fall_below_the_engines_minimum_and_keep_the_ceiling() {
        let mut sim = cheetah(Physics::Mujoco150);
        let mut rng = Rng::stream(4, "controls", 0);
        let (mut seen, mut lowered) = (0, 0);
        for _ in 0..500 {
            sim.ctrl_mut().iter_mut().for_each(|c| *c = rng.range(-1.0, 1.0));
            sim.staged_step(|sim| {
                let before: Vec<f64> = sim.constraints().0.chunks_exact(4).map(|row| row[2]).collect();
                sim.restore_impedance(0.8);
                let (kbip, r, d) = sim.constraints();
                for (i, row) in kbip.chunks_exact(4).enumerate() {
                    assert!((MIN_IMPEDANCE..=0.8).contains(&row[2]), "impedance {}", row[2]);
                    assert!((r[i] * d[i] - 1.0).abs() < 1e-12);
                    assert!(row[2] <= before[i] && before[i] - row[2] <= 1e-4);
                    seen += 1;
                    lowered += usize::from(row[2] < before[i]);
                }
            });
        }
        assert!(seen > 500 && lowered > seen / 2, "{lowered} of {seen} constraints were below the ceiling");
    }

    #[test]
    fn direct_views_show_what_the_engine_says() {
        let mut sim = cheetah(Physics::GymnasiumV4);
        sim.advance(20);
        assert_eq!(sim.engine_state(state::QPOS), sim.qpos());
        assert_eq!(sim.engine_state(state::QVEL), sim.qvel());
    }

    #[test]
    fn an_error_inside_the_engine_is_an_error_value() {
        let sim = cheetah(Physics::GymnasiumV4);
        let raised = api::guarded("test", || {
            // SAFETY: a format string without directives.
            unsafe { (sim.model.api.error)(c"stack overflow\n in test".as_ptr()) }
        });
        assert_eq!(raised.unwrap_err().to_string(), "test: MuJoCo reports: stack overflow in test");
        let unguarded = std::panic::catch_unwind(|| {
            // SAFETY: as above.
            unsafe { (sim.model.api.error)(c"not in a guard".as_ptr()) }
        });
        let message = unguarded.unwrap_err().downcast::<String>().unwrap();
        assert_eq!(*message, "MuJoCo reports: not in a guard");
    }
}
