//! Fields of CSV files.

/// A text as a field of a CSV file.
pub(crate) fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

/// A number as a field of a CSV file; nothing where there is none.
pub(crate) fn number(x: Option<f64>) -> String {
    x.filter(|x| x.is_finite()).map_or(String::new(), |x| x.to_string())
}
