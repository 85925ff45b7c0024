//! Errors as Python knows them: what the caller gave is a ValueError, what a file or the system did an OSError, a wish
//! to stop a KeyboardInterrupt. The text is the library's own.

use pyo3::PyErr;
use pyo3::exceptions::{PyKeyboardInterrupt, PyOSError, PyValueError};

/// An error of the search.
pub(crate) fn of_search(error: offing_knn::Error) -> PyErr {
    match error {
        offing_knn::Error::Io { .. } => PyOSError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// An error of the library.
pub(crate) fn of_library(error: offing::Error) -> PyErr {
    of(&error, error.to_string())
}

/// An error of a command.
pub(crate) fn of_command(error: &anyhow::Error) -> PyErr {
    let text = format!("{error:#}");
    match error.downcast_ref::<offing::Error>() {
        Some(found) => of(found, text),
        None if error.downcast_ref::<std::io::Error>().is_some() => PyOSError::new_err(text),
        None => PyValueError::new_err(text),
    }
}

fn of(error: &offing::Error, text: String) -> PyErr {
    match error {
        offing::Error::Io { .. } => PyOSError::new_err(text),
        offing::Error::Stopped => PyKeyboardInterrupt::new_err("stopped"),
        _ => PyValueError::new_err(text),
    }
}
