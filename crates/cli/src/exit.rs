//! How a command ended. The standard library's exit code cannot be read back, and the Python package has to.

/// A process's exit code: 0 when all went well, 1 for a negative finding, 2 for an error, 3 for an alarm of `offing score`,
/// 130 when stopped on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCode(pub u8);

impl ExitCode {
    /// All went well.
    pub const SUCCESS: Self = Self(0);
    /// What was looked for is missing or wrong.
    pub const NEGATIVE: Self = Self(1);
    /// An error.
    pub const ERROR: Self = Self(2);
    /// A row lies beyond the threshold of `offing score`.
    pub const ALARM: Self = Self(3);
    /// Stopped on request.
    pub const STOPPED: Self = Self(130);
}
