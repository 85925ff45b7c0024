//! The MuJoCo functions offing calls, resolved from the shared library at run time.
//!
//! `cargo build` must succeed without MuJoCo, so nothing is linked.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

use libloading::Library;
use offing::{Error, Result};

use super::layout::{VERSION, VERSION_NAME};

// Opaque C structs.
pub(crate) type MjModel = c_void;
pub(crate) type MjData = c_void;
pub(crate) type MjSpec = c_void;
type Handler = Option<unsafe extern "C-unwind" fn(*const c_char)>;

// Every function may raise an error, which leaves it by unwinding (see `raise`): hence "C-unwind".
type OnSpec<T> = unsafe extern "C-unwind" fn(*mut MjSpec) -> T;
pub(crate) type OnData = unsafe extern "C-unwind" fn(*const MjModel, *mut MjData);
type Parse = unsafe extern "C-unwind" fn(*const c_char, *const c_void, *mut c_char, c_int) -> *mut MjSpec;

/// Declares [`Api`] and how its functions are resolved: one line is a field, its C type and its symbol.
macro_rules! functions {
    ($($(#[$cfg:meta])* $field:ident: $type:ty = $symbol:literal;)*) => {
        /// The library and its entry points. Function pointers stay valid as long as `_library` lives, which is as long
        /// as this struct.
        #[derive(Debug)]
        pub(crate) struct Api {
            $($(#[$cfg])* pub(crate) $field: $type,)*
            _library: Library,
        }

        impl Api {
            fn resolve(library: Library, path: &Path) -> Result<Self> {
                Ok(Self { $($(#[$cfg])* $field: find(&library, path, $symbol)?,)* _library: library })
            }
        }
    };
}

functions! {
    parse_xml_string: Parse = "mj_parseXMLString";
    compile: unsafe extern "C-unwind" fn(*mut MjSpec, *const c_void) -> *mut MjModel = "mj_compile";
    spec_error: OnSpec<*const c_char> = "mjs_getError";
    delete_spec: OnSpec<()> = "mj_deleteSpec";
    delete_model: unsafe extern "C-unwind" fn(*mut MjModel) = "mj_deleteModel";
    make_data: unsafe extern "C-unwind" fn(*const MjModel) -> *mut MjData = "mj_makeData";
    delete_data: unsafe extern "C-unwind" fn(*mut MjData) = "mj_deleteData";
    reset_data: OnData = "mj_resetData";
    forward: OnData = "mj_forward";
    step: OnData = "mj_step";
    rne_post_constraint: OnData = "mj_rnePostConstraint";
    // The stages of `mj_step`, in order.
    check_pos: OnData = "mj_checkPos";
    check_vel: OnData = "mj_checkVel";
    fwd_position: OnData = "mj_fwdPosition";
    fwd_velocity: OnData = "mj_fwdVelocity";
    fwd_actuation: OnData = "mj_fwdActuation";
    fwd_acceleration: OnData = "mj_fwdAcceleration";
    fwd_constraint: OnData = "mj_fwdConstraint";
    check_acc: OnData = "mj_checkAcc";
    euler: OnData = "mj_Euler";
    // State through the engine's own accessor.
    state_size: unsafe extern "C-unwind" fn(*const MjModel, c_int) -> c_int = "mj_stateSize";
    get_state: unsafe extern "C-unwind" fn(*const MjModel, *const MjData, *mut f64, c_int) = "mj_getState";
    #[cfg(test)]
    error: unsafe extern "C-unwind" fn(*const c_char, ...) = "mju_error";
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
        let version: unsafe extern "C-unwind" fn() -> c_int = find(&library, path, "mj_version")?;
        // SAFETY: `mj_version` takes nothing and returns an int in every MuJoCo release.
        let found = unsafe { version() };
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
        Self::resolve(library, path)
    }
}

/// One symbol, copied out of its borrow of the library.
fn find<T: Copy>(library: &Library, path: &Path, name: &'static str) -> Result<T> {
    // SAFETY: the types given to `functions!` are those of the 3.17.0 headers.
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
