//! Values and doc comments as Markdown.

use toml::Value;

/// A value as a user would type it.
pub(crate) fn value(found: &Value) -> String {
    match found {
        Value::Integer(n) => grouped(*n),
        Value::Float(x) if *x != 0.0 && x.abs() < 0.005 => format!("{x:e}"),
        Value::Float(x) => format!("{x}"),
        Value::String(word) => word.clone(),
        Value::Array(all) => format!("[{}]", all.iter().map(value).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// 1_000_000, which TOML reads.
fn grouped(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if digits.len() > 4 && i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('_');
        }
        out.push(c);
    }
    format!("{}{out}", if n < 0 { "-" } else { "" })
}

/// A word in the type of code.
pub(crate) fn code(word: &str) -> String {
    format!("`{word}`")
}

/// A doc comment as one cell of a table or one paragraph of a page in docs/.
pub(crate) fn prose(doc: &[String]) -> String {
    let text = without_links(&doc.join(" ")).replace('|', "\\|");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("docs/") {
        let end = rest[at..].find(|c: char| !(c.is_alphanumeric() || "/.#-_".contains(c)));
        let (path, after) = rest[at..].split_at(end.unwrap_or(rest.len() - at));
        let dot = if path.ends_with('.') { "." } else { "" };
        let path = path.trim_start_matches("docs/").trim_end_matches('.');
        let title = path.split(['.', '#']).next().unwrap();
        out += &format!("{}[{title}]({path}){dot}", &rest[..at]);
        rest = after;
    }
    out + rest
}

/// [`X`] and [`X`](a::b) are links of rustdoc: the word stays.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("[`") {
        let Some(end) = rest[at..].find("`]") else { break };
        out += &rest[..at];
        out += &rest[at + 1..at + end + 1];
        rest = &rest[at + end + 2..];
        if rest.starts_with('(') {
            rest = rest.split_once(')').map_or("", |(_, after)| after);
        }
    }
    out + rest
}

/// A table of Markdown. Columns that are empty in every row are left out.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let used: Vec<usize> = (0..header.len()).filter(|&c| rows.iter().any(|row| !row[c].is_empty())).collect();
    let cell = |text: &str| if text.is_empty() { " |".to_string() } else { format!(" {text} |") };
    let line = |of: &dyn Fn(usize) -> String| {
        format!("|{}\n", used.iter().map(|&c| cell(&of(c))).collect::<String>())
    };
    let head = line(&|c| header[c].to_string()) + &format!("|{}\n", "---|".repeat(used.len()));
    rows.iter().fold(head, |out, row| out + &line(&|c| row[c].clone()))
}
