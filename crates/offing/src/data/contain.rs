//! Panics of other crates' decoders as errors: a damaged file must not end the program.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::path::Path;
use std::sync::Once;

use super::messages::damaged;
use crate::error::Result;

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Reads `path` by `work`; a panic on the way is an error that names the file.
pub(super) fn contain<T>(path: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    static SILENCE: Once = Once::new();
    // What is contained is told as an error, so it is not printed as a panic as well. All other panics are.
    SILENCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !CONTAINED.get() {
                before(panic);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(outer);
    done.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
        Err(damaged(path, "file", format!("its decoder gave up: {words}")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_one_line_and_errors_pass() {
        let path = Path::new("log.parquet");
        let error = contain(path, || -> Result<()> { panic!("index {} is\nout of bounds", 7) }).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("log.parquet: wanted a complete file") && !error.contains('\n'), "{error}");
        assert!(error.contains("index 7 is out of bounds"), "{error}");
        assert_eq!(contain(path, || Ok(3)).unwrap(), 3);
        assert!(!CONTAINED.get());
    }
}
