//! The native half of the Python package `offing`: arrays in, arrays out. Everything it does is done by the Rust crates.

mod arrays;
mod command;
mod env;
mod errors;
mod index;
mod policy;
mod sumo;

use pyo3::prelude::*;

/// The module `offing._offing`.
#[pymodule]
fn _offing(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("TASKS", offing_mujoco::TASKS)?;
    module.add_class::<index::Index>()?;
    module.add_class::<sumo::Sumo>()?;
    module.add_class::<policy::Policy>()?;
    module.add_class::<env::Simulator>()?;
    module.add_function(wrap_pyfunction!(arrays::address, module)?)?;
    module.add_function(wrap_pyfunction!(command::main, module)?)?;
    module.add_function(wrap_pyfunction!(command::run, module)?)?;
    module.add_function(wrap_pyfunction!(command::make_dataset, module)?)?;
    module.add_function(wrap_pyfunction!(command::load_dataset, module)?)?;
    Ok(())
}
