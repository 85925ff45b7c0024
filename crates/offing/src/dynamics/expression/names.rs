//! Columns by the names that the log gives them: `p_tank`, `prev.p_tank`, `obs[tank pressure]`.

use super::{Parsed, Parser};
use crate::error::{Result, invalid};

/// Words that mean something in a condition before any column of the name does.
const RESERVED: [&str; 10] = ["true", "false", "abs", "sqrt", "min", "max", "max_abs", "obs", "prev", "act"];
/// Most names that a message lists.
const MANY: usize = 40;

impl Parser<'_> {
    /// Refuses a column that is called like a word of the language, where it stands as if it were none of its own.
    pub(super) fn refuse_reserved(&self, word: &str) -> Result<()> {
        let rest = self.text[self.at..].trim_start();
        let as_word = match word {
            "obs" | "prev" | "act" => rest.starts_with(['[', '.', ')']),
            _ => rest.starts_with('('),
        };
        let found = self.places(word, None);
        if !as_word && RESERVED.contains(&word) && !found.is_empty() {
            return Err(invalid!(
                "condition `{}`: `{word}` is a word of conditions and a column; write the column as {}",
                self.text,
                joined(&found)
            ));
        }
        Ok(())
    }

    /// A column by its name alone: of the state after the step, or of the action.
    pub(super) fn column(&mut self, word: &str, start: usize) -> Result<Parsed> {
        let (vector, index) = self.place(word, None, start)?;
        let (vector, _) = self.vector(vector);
        Ok(Parsed::number(move |step| f64::from(vector(step)[index])))
    }

    /// What stands behind `obs`, `prev` or `act`: `[3]`, `[p_tank]` or `.p_tank`.
    pub(super) fn entry(&mut self, vector: &str, size: usize) -> Result<usize> {
        if self.take(".") {
            self.skip_spaces();
            let start = self.at;
            let word = self.word();
            self.at += word.len();
            return Ok(self.place(&word, Some(vector), start)?.1);
        }
        self.expect("[")?;
        self.skip_spaces();
        let (start, rest) = (self.at, &self.text[self.at..]);
        let inside = before_closing(rest).trim_end();
        if self.names.is_empty() || inside.is_empty() || inside.bytes().all(|b| b.is_ascii_digit()) {
            let index = self.index(vector, size)?;
            self.expect("]")?;
            return Ok(index);
        }
        self.at += inside.len();
        let quoted = ['\'', '"'].into_iter().find_map(|q| inside.strip_prefix(q)?.strip_suffix(q));
        let index = self.place(quoted.unwrap_or(inside), Some(vector), start)?.1;
        self.expect("]")?;
        Ok(index)
    }

    /// The only column of that name: the vector and the place in it.
    fn place(&mut self, name: &str, vector: Option<&str>, start: usize) -> Result<(&'static str, usize)> {
        match self.places(name, vector)[..] {
            [place] => Ok(place),
            [] => {
                self.at = start;
                let names = match vector {
                    None => self.names.obs.iter().chain(&self.names.act).collect::<Vec<_>>(),
                    Some("act") => self.names.act.iter().collect(),
                    Some(_) => self.names.obs.iter().collect(),
                };
                let more = if names.len() > MANY { ", …" } else { "" };
                let listed = names.iter().take(MANY).map(|name| format!("`{name}`")).collect::<Vec<_>>();
                Err(self.wrong(&match (names.len(), vector) {
                    (0, Some(vector)) => format!("{vector}[i] (the data do not name these columns)"),
                    (0, None) => WITHOUT_NAMES.into(),
                    _ => {
                        format!("a number, a function or the name of a column ({}{more})", listed.join(", "))
                    }
                }))
            }
            ref several => Err(invalid!(
                "condition `{}`: wanted one column of the name `{name}`, found {}; write the place of the one that is meant",
                self.text,
                joined(several)
            )),
        }
    }

    /// Every column of that name. `prev` has those of `obs`.
    fn places(&self, name: &str, vector: Option<&str>) -> Vec<(&'static str, usize)> {
        let of = |vector: &'static str, names: &[String]| -> Vec<(&'static str, usize)> {
            let found = names.iter().enumerate().filter(|(_, known)| known.as_str() == name);
            found.map(|(index, _)| (vector, index)).collect()
        };
        match vector {
            Some("act") => of("act", &self.names.act),
            Some("prev") => of("prev", &self.names.obs),
            Some(_) => of("obs", &self.names.obs),
            None => [of("obs", &self.names.obs), of("act", &self.names.act)].concat(),
        }
    }
}

/// What may stand where a number or a condition is wanted, in a log without names.
const WITHOUT_NAMES: &str = "a number, obs[i], prev[i], act[i], abs, sqrt, min, max, max_abs or `(`";

/// What stands before the bracket that closes: names hold brackets of their own, as in `pressure [Pa]`.
fn before_closing(text: &str) -> &str {
    let mut open = 0;
    for (at, c) in text.char_indices() {
        match c {
            '[' => open += 1,
            ']' if open == 0 => return &text[..at],
            ']' => open -= 1,
            _ => {}
        }
    }
    text
}

fn joined(places: &[(&str, usize)]) -> String {
    places.iter().map(|(vector, index)| format!("{vector}[{index}]")).collect::<Vec<_>>().join(" and ")
}
