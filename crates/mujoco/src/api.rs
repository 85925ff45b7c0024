//! The MuJoCo functions offing calls, resolved from the shared library at run time.
//!
//! `cargo build` must succeed without MuJoCo, so nothing is linked.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use libloading::Library;
use offing::{Error, Result};

use crate::layout::{VERSION, VERSION_NAME};

// Opaque C structs.
pub(crate) type MjModel = c_void;
pub(crate) type MjData = c_void;
pub(crate) type MjSpec = c_void;
type Handler = Option<unsafe extern "C-unwind" fn(*const c_char)>;

// Every function may raise an error, which leaves it by unwinding (see `raise`): hence "C-unwind".
type OnSpec<T> = unsafe extern "C-unwind" fn(*mut MjSpec) -> T;
pub(crate) type OnData = unsafe extern "C-unwind" fn(*const MjModel, *mut MjData);
type Parse = unsafe extern "C-unwind" fn(*const c_char, *const c_void, *mut c_char, c_int) -> *mut MjSpec;

/// The library and its entry points. Function pointers stay valid as long as `_library` lives, which is as long as
/// this struct.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) parse_xml_string: Parse,
    pub(crate) compile: unsafe extern "C-unwind" fn(*mut MjSpec, *const c_void) -> *mut MjModel,
    pub(crate) spec_error: OnSpec<*const c_char>,
    pub(crate) delete_spec: OnSpec<()>,
    pub(crate) delete_model: unsafe extern "C-unwind" fn(*mut MjModel),
    pub(crate) make_data: unsafe extern "C-unwind" fn(*const MjModel) -> *mut MjData,
    pub(crate) delete_data: unsafe extern "C-unwind" fn(*mut MjData),
    pub(crate) reset_data: OnData,
    pub(crate) forward: OnData,
    pub(crate) step: OnData,
    pub(crate) rne_post_constraint: OnData,
    // The stages of `mj_step`, in order.
    pub(crate) check_pos: OnData,
    pub(crate) check_vel: OnData,
    pub(crate) fwd_position: OnData,
    pub(crate) fwd_velocity: OnData,
    pub(crate) fwd_actuation: OnData,
    pub(crate) fwd_acceleration: OnData,
    pub(crate) fwd_constraint: OnData,
    pub(crate) check_acc: OnData,
    pub(crate) euler: OnData,
    pub(crate) state_size: unsafe extern "C-unwind" fn(*const MjModel, c_int) -> c_int,
    pub(crate) get_state: unsafe extern "C-unwind" fn(*const MjModel, *const MjData, *mut f64, c_int),
    #[cfg(test)]
    pub(crate) error: unsafe extern "C-unwind" fn(*const c_char, ...),
    _library: Library,
}

impl Api {
    /// Opens the library at `path` and checks that it is the version whose layout is known.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        // SAFETY: loading runs the library's initialisers; libmujoco's only fill tables.
        let library = unsafe { Library::new(path) }.map_err(|e| {
            Error::file(
                path,
                format!("wanted the MuJoCo {VERSION_NAME} shared library, found: {}", one_line(&e)),
            )
        })?;
        let found = match find::<unsafe extern "C-unwind" fn() -> c_int>(&library, path, "mj_version") {
            // SAFETY: `mj_version` takes nothing and returns an int in every MuJoCo release.
            Ok(version) => unsafe { version() },
            Err(e) => return Err(e),
        };
        if found != VERSION {
            return Err(Error::file(
                path,
                format!(
                    "wanted MuJoCo {VERSION_NAME}, found version number {found}; install it with \
                     `pip install mujoco=={VERSION_NAME}` or point MUJOCO_LIB at that version's library"
                ),
            ));
        }
        install_handlers(&library, path)?;
        Ok(Self {
            parse_xml_string: find(&library, path, "mj_parseXMLString")?,
            compile: find(&library, path, "mj_compile")?,
            spec_error: find(&library, path, "mjs_getError")?,
            delete_spec: find(&library, path, "mj_deleteSpec")?,
            delete_model: find(&library, path, "mj_deleteModel")?,
            make_data: find(&library, path, "mj_makeData")?,
            delete_data: find(&library, path, "mj_deleteData")?,
            reset_data: find(&library, path, "mj_resetData")?,
            forward: find(&library, path, "mj_forward")?,
            step: find(&library, path, "mj_step")?,
            rne_post_constraint: find(&library, path, "mj_rnePostConstraint")?,
            check_pos: find(&library, path, "mj_checkPos")?,
            check_vel: find(&library, path, "mj_checkVel")?,
            fwd_position: find(&library, path, "mj_fwdPosition")?,
            fwd_velocity: find(&library, path, "mj_fwdVelocity")?,
            fwd_actuation: find(&library, path, "mj_fwdActuation")?,
            fwd_acceleration: find(&library, path, "mj_fwdAcceleration")?,
            fwd_constraint: find(&library, path, "mj_fwdConstraint")?,
            check_acc: find(&library, path, "mj_checkAcc")?,
            euler: find(&library, path, "mj_Euler")?,
            state_size: find(&library, path, "mj_stateSize")?,
            get_state: find(&library, path, "mj_getState")?,
            #[cfg(test)]
            error: find(&library, path, "mju_error")?,
            _library: library,
        })
    }
}

/// One symbol, copied out of its borrow of the library.
fn find<T: Copy>(library: &Library, path: &Path, name: &'static str) -> Result<T> {
    // SAFETY: the types written in `Api` are those of the 3.17.0 headers.
    unsafe { library.get::<T>(name.as_bytes()) }.map(|symbol| *symbol).map_err(|_| {
        Error::file(path, format!("wanted the MuJoCo {VERSION_NAME} shared library, found no `{name}` in it"))
    })
}

/// MuJoCo's default handlers write MUJOCO_LOG.TXT into the working directory and end the process on an error.
/// Ours do neither. Handlers that someone else in this process has installed stay.
fn install_handlers(library: &Library, path: &Path) -> Result<()> {
    let warning: *mut Handler = find(library, path, "mju_user_warning")?;
    let error: *mut Handler = find(library, path, "mju_user_error")?;
    // SAFETY: both symbols are global variables of the library that hold a nullable function pointer.
    unsafe {
        if (*warning).is_none() {
            *warning = Some(ignore);
        }
        if (*error).is_none() {
            *error = Some(raise);
        }
    }
    Ok(())
}

thread_local! {
    /// Whether [`guarded`] runs on this thread, and what the engine raised meanwhile.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
    static RAISED: Cell<Option<String>> = const { Cell::new(None) };
}

/// What the engine warned of (an unstable simulation) shows in the state; gymnasium is silent about it too.
unsafe extern "C-unwind" fn ignore(_message: *const c_char) {}

/// Leaves the failing MuJoCo function by unwinding: returning would let it go on with a broken invariant, and its
/// own handler would end the process.
unsafe extern "C-unwind" fn raise(message: *const c_char) {
    // SAFETY: MuJoCo passes a NUL-terminated string that lives for the call.
    let text = one_line(&unsafe { CStr::from_ptr(message) }.to_string_lossy());
    if !GUARDED.get() {
        // Only a bug or a lack of memory leads here: stepping a compiled model raises no errors.
        panic!("MuJoCo reports: {text}");
    }
    RAISED.set(Some(text));
    // Without the panic hook: the message reaches the user once, as an error value.
    std::panic::resume_unwind(Box::new("raised by MuJoCo"))
}

/// Runs calls into MuJoCo and turns an error it raises into an error value.
pub(crate) fn guarded<T>(what: &str, call: impl FnOnce() -> T) -> Result<T> {
    RAISED.set(None);
    GUARDED.set(true);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
    GUARDED.set(false);
    result.map_err(|panic| match RAISED.take() {
        Some(text) => Error::Invalid(format!("{what}: MuJoCo reports: {text}")),
        None => std::panic::resume_unwind(panic),
    })
}

/// Errors are one line each; libraries do not always keep to that.
pub(crate) fn one_line(text: &(impl ToString + ?Sized)) -> String {
    text.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}
