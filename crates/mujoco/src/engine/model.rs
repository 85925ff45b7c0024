//! A compiled model, and the check that a library has the memory layout of [`super::layout`].

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::sync::Arc;

use offing::{Error, Result};

use super::api::{Api, MjModel, guarded, one_line};
use super::layout::{VERSION_NAME, geom, model as at, state};
use super::sim::Sim;

/// What a model is compiled from.
#[derive(Debug)]
pub(crate) struct Description {
    /// MJCF text.
    pub(crate) xml: String,
    /// The largest impedance, where impedances start from 0 and are to follow MuJoCo 1.50's rule.
    pub(crate) old_impedance: Option<f64>,
}

/// A compiled model, read-only and shared between threads.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) api: Arc<Api>,
    pub(crate) raw: *mut MjModel,
    pub(crate) nq: usize,
    pub(crate) nv: usize,
    pub(crate) nu: usize,
    pub(crate) nbody: usize,
    pub(crate) ngeom: usize,
    pub(crate) timestep: f64,
    /// See [`Sim::advance`]: the largest impedance of a model whose soft constraints want MuJoCo 1.50's rule.
    pub(crate) old_impedance: Option<f64>,
}

// SAFETY: after compilation the model is only read, and MuJoCo documents `const mjModel*` as shareable.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

impl Model {
    /// Compiles a description. `name` stands in error messages.
    pub(crate) fn compile(api: &Arc<Api>, from: &Description, name: &str) -> Result<Self> {
        let text = CString::new(from.xml.as_str())
            .map_err(|_| Error::Invalid(format!("{name}: MJCF holds a NUL byte")))?;
        let raw = guarded(name, || {
            let mut message = [0 as c_char; 1024];
            // SAFETY: NUL-terminated input, no virtual file system, an output buffer of the given length.
            let spec = unsafe {
                (api.parse_xml_string)(
                    text.as_ptr(),
                    std::ptr::null(),
                    message.as_mut_ptr(),
                    message.len() as i32,
                )
            };
            if spec.is_null() {
                // SAFETY: on failure MuJoCo fills the buffer with a NUL-terminated message.
                return Err(unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into_owned());
            }
            // SAFETY: `spec` is live until deleted below; the error text is copied before that.
            unsafe {
                let model = (api.compile)(spec, std::ptr::null());
                let failure = model.is_null().then(|| {
                    let text = (api.spec_error)(spec);
                    if text.is_null() {
                        "no reason given".into()
                    } else {
                        CStr::from_ptr(text).to_string_lossy().into_owned()
                    }
                });
                (api.delete_spec)(spec);
                failure.map_or(Ok(model), Err)
            }
        })?
        .map_err(|why| {
            Error::Invalid(format!("{name}: MuJoCo cannot compile the model: {}", one_line(&why)))
        })?;
        // SAFETY: `raw` is a live mjModel; the offsets are of this version (checked by `check_layout`).
        let (size, real) = unsafe {
            (
                |at: usize| raw.byte_add(at).cast::<i64>().read() as usize,
                |at: usize| raw.byte_add(at).cast::<f64>().read(),
            )
        };
        Ok(Self {
            nq: size(at::NQ),
            nv: size(at::NV),
            nu: size(at::NU),
            nbody: size(at::NBODY),
            ngeom: size(at::NGEOM),
            timestep: real(at::TIMESTEP),
            old_impedance: from.old_impedance,
            api: api.clone(),
            raw,
        })
    }

    /// One of the model's arrays of f64.
    ///
    /// # Safety
    /// `at` must be the offset of a pointer field of `mjModel` that holds at least `len` values.
    pub(crate) unsafe fn array(&self, at: usize, len: usize) -> &[f64] {
        // SAFETY: promised by the caller; the buffer lives and stays unchanged as long as the model.
        unsafe { std::slice::from_raw_parts(self.raw.byte_add(at).cast::<*const f64>().read(), len) }
    }

    /// The kind (`mjtGeom`) and the three sizes of each geom.
    pub(crate) fn geoms(&self) -> impl Iterator<Item = (i32, [f64; 3])> {
        // SAFETY: `geom_type` holds one int a geom and `geom_size` three f64; both live as long as the model.
        let (kinds, sizes) = unsafe {
            let kinds = self.raw.byte_add(at::GEOM_TYPE).cast::<*const i32>().read();
            (std::slice::from_raw_parts(kinds, self.ngeom), self.array(at::GEOM_SIZE, 3 * self.ngeom))
        };
        kinds.iter().zip(sizes.chunks_exact(3)).map(|(kind, size)| (*kind, [size[0], size[1], size[2]]))
    }

    /// Half the control range of each actuator; all ranges here are symmetric.
    pub(crate) fn ctrl_limits(&self) -> Vec<f64> {
        // SAFETY: `actuator_ctrlrange` holds two values an actuator, and each actuator here has one control.
        let range = unsafe { self.array(at::ACTUATOR_CTRLRANGE, 2 * self.nu) };
        range.chunks_exact(2).map(|pair| pair[1]).collect()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: made by `mj_compile` and owned here alone; every `Sim` holds an `Arc` of it.
        unsafe { (self.api.delete_model)(self.raw) }
    }
}

/// A cart with a ball joint and a ball that rests in the floor: every field of [`super::layout`] has a value known
/// beforehand.
const PROBE: &str = include_str!("probe.xml");

/// Reads known values through every offset, so that a library that claims the right version but was built with
/// another layout is refused instead of read wrongly.
pub(super) fn check_layout(api: &Arc<Api>, library: &Path) -> Result<()> {
    let probe = Description { xml: PROBE.into(), old_impedance: None };
    let model = Arc::new(Model::compile(api, &probe, "layout check")?);
    let check = |field: &str, holds: bool| {
        let what = || {
            format!(
                "wanted the memory layout of MuJoCo {}, found another in `{field}`; use the library of the official wheel",
                VERSION_NAME
            )
        };
        if holds { Ok(()) } else { Err(Error::file(library, what())) }
    };
    let sizes = (model.nq, model.nv, model.nu, model.nbody, model.timestep);
    check("mjModel sizes", sizes == (6, 5, 1, 4, 0.0078125))?;
    // SAFETY: mj_stateSize takes a live model and bits of mjtState.
    let size = |bit| unsafe { (api.state_size)(model.raw, bit) };
    check("mjtState", [state::QPOS, state::QVEL, state::CTRL].map(size) == [6, 5, 1])?;
    // SAFETY: four bodies with one mass and three moments each, read from fields whose neighbours in the struct are
    // pointers as well.
    let (mass, inertia) = unsafe { (model.array(at::BODY_MASS, 4), model.array(at::BODY_INERTIA, 12)) };
    check("mjModel.body_mass", *mass == [0.0, 3.0, 7.0, 2.0])?;
    check("mjModel.body_inertia", inertia[3..9] == [0.5, 0.625, 0.75, 1.25, 1.5, 1.75])?;
    let geoms: Vec<(i32, [f64; 3])> = if model.ngeom == 2 { model.geoms().collect() } else { Vec::new() };
    check(
        "mjModel.geom_type or geom_size",
        geoms == [(0, [5.0, 5.0, 1.0]), (geom::SPHERE, [0.5, 0.0, 0.0])],
    )?;
    check("mjModel.actuator_ctrlrange", model.ctrl_limits() == [11.0])?;

    let mut sim = Sim::new(&model)?;
    let (qpos, qvel) = ([0.25, 1.0, 0.0, 0.0, 0.0, 0.0], [1.5, 0.0, 0.0, 0.0, 0.0]);
    sim.set_state(&qpos, &qvel);
    sim.ctrl_mut()[0] = 8.0;
    check("mjData.qpos", sim.engine_state(state::QPOS) == qpos && sim.qpos() == qpos)?;
    check("mjData.qvel", sim.engine_state(state::QVEL) == qvel && sim.qvel() == qvel)?;
    check("mjData.ctrl", sim.engine_state(state::CTRL) == [8.0])?;
    let frames = [1, 2, 3].map(|body| sim.xpos(body));
    check("mjData.xpos", frames == [[0.25, 0.0, 2.0], [0.25, 0.0, 2.5], [0.0, 3.0, 0.375]])?;
    // The ball's frame is turned by nothing; the cart's neighbour in memory is the floor's.
    let (centre, rotation) = sim.geom_pose(1);
    let upright = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
    check("mjData.geom_xpos or geom_xmat", centre == [0.0, 3.0, 0.375] && rotation == upright)?;
    // One contact with friction: four rows of the default stiffness and damping.
    let (kbip, r, d) = sim.constraints();
    let (stiffness, damping) = (1.0 / (0.95f64 * 0.02).powi(2), 2.0 / (0.95 * 0.02));
    let known = |row: &[f64]| {
        (row[0] - stiffness).abs() < 1e-6 && (row[1] - damping).abs() < 1e-6 && (0.9..=0.95).contains(&row[2])
    };
    check("mjData.nefc or efc_KBIP", kbip.len() == 16 && kbip.chunks_exact(4).all(known))?;
    let inverse = r.iter().zip(&*d).all(|(r, d)| *r > 0.0 && (r * d - 1.0).abs() < 1e-12);
    check("mjData.efc_R or efc_D", inverse)?;
    // The floor pushes the ball up with 625 N (its acceleration, kept in the field next door, is 312.5), and nothing
    // touches the cart.
    sim.contact_forces();
    let (others, up) = sim.cfrc_ext().split_at(23);
    check("mjData.cfrc_ext", (up[0] - 625.0).abs() < 1e-6 && others.iter().all(|f| *f == 0.0))?;
    // A velocity beyond the engine's limit makes it start over, and say so.
    let calm = sim.losses();
    sim.set_state(&qpos, &[1e12; 5]);
    sim.advance(1);
    check("mjData.warning", (calm, sim.losses()) == (0, 1))
}
