//! How what a user asks for is read from a command line: requests are their own arguments.

/// A count of at least 1, for clap.
///
/// # Errors
/// A text that is none.
pub fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "wanted a whole number of at least 1".into())
}
