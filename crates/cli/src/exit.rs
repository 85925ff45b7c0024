//! How a command ended. The standard library's exit code cannot be read back, and the Python package has to.

/// A process's exit code: 0 when all went well, 1 for a negative finding, 2 for an error, 3 for an alarm of `offing score`,
/// 130 when stopped on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCode(pub u8);

impl ExitCode {
    /// All went well.
    pub const SUCCESS: Self = Self(0);
}

impl From<u8> for ExitCode {
    fn from(code: u8) -> Self {
        Self(code)
    }
}
