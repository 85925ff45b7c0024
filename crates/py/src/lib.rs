//! The native half of the Python package `offing`: arrays in, arrays out. Everything it does is done by the Rust crates.

mod arrays;
mod errors;
mod env;
mod index;
mod policy;
mod bridge;
mod columns;
mod estimator;
mod session;
mod train;
mod sumo;

use pyo3::prelude::*;

/// The command line from a Python that takes no code from the working directory, where a stranger's dataset may lie with a
/// `csv.py` beside it. `python -m offing` would, and `-I` would leave out the paths on which offing itself may be.
const COMMAND_LINE: &str =
    "import sys; sys.path[:] = [p for p in sys.path if p]; from offing.__main__ import main; main()";

/// The module `offing._offing`.
#[pymodule]
fn _offing(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // A virtual environment's interpreter is a link to another, so the interpreter must say itself how it was called.
    let python: String = module.py().import("sys")?.getattr("executable")?.extract()?;
    let command = [python.as_str(), "-c", COMMAND_LINE];
    offing_cli::started_as(command.map(Into::into).to_vec());
    module.add("COMMAND", command)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("TASKS", offing_mujoco::TASKS)?;
    module.add_class::<index::Index>()?;
    module.add_class::<sumo::Sumo>()?;
    module.add_class::<policy::Policy>()?;
    module.add_class::<env::Simulator>()?;
    module.add_function(wrap_pyfunction!(arrays::address, module)?)?;
    module.add_function(wrap_pyfunction!(session::main, module)?)?;
    module.add_function(wrap_pyfunction!(train::train, module)?)?;
    module.add_function(wrap_pyfunction!(estimator::check_estimator, module)?)?;
    module.add_function(wrap_pyfunction!(session::calibrate, module)?)?;
    module.add_function(wrap_pyfunction!(session::assemble, module)?)?;
    module.add_function(wrap_pyfunction!(session::audit, module)?)?;
    module.add_function(wrap_pyfunction!(session::rank, module)?)?;
    module.add_function(wrap_pyfunction!(session::reproduce, module)?)?;
    module.add_function(wrap_pyfunction!(session::write_report, module)?)?;
    module.add_function(wrap_pyfunction!(session::read_config, module)?)?;
    module.add_function(wrap_pyfunction!(session::write_dataset, module)?)?;
    module.add_function(wrap_pyfunction!(session::make_dataset, module)?)?;
    module.add_function(wrap_pyfunction!(session::load_dataset, module)?)?;
    Ok(())
}
