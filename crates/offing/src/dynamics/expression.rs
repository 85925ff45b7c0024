//! A small language for conditions on a step, so that a user's own task can say while an episode is alive.
//!
//! `obs[i]` is entry i of the state the step led to (s'), `prev[i]` of the state before it (s), `act[i]` of the
//! action. There are numbers, `+ - * /`, `abs sqrt min max`, `max_abs(obs)` and `max_abs(obs[1..])` for the largest
//! magnitude, comparisons (also chained), `&& || !` and parentheses.
//!
//! Where the log names its columns, so may a condition: `p_tank` is that entry of s', or of the action; `prev.p_tank` is
//! the one of s; `obs[tank pressure]` and `act[valve 1]` are for names that are no single word.
//!
//! ```
//! use offing::dynamics::Expression;
//! let alive = Expression::parse("obs[0] > 0.7 && abs(obs[1]) < 0.2 && max_abs(obs) < 100", 3, 1).unwrap();
//! assert!(alive.holds(&[0.0; 3], &[0.0], &[1.2, 0.1, -5.0]));
//! assert!(!alive.holds(&[0.0; 3], &[0.0], &[0.6, 0.1, -5.0]));
//! let wrong = Expression::parse("obs[9] > 0", 3, 1).unwrap_err();
//! assert!(wrong.to_string().contains("obs has 3 entries"));
//! ```

use std::fmt;
use std::sync::Arc;

use crate::data::ColumnNames;
use crate::error::{Error, Result, invalid};

mod names;

/// A condition on (s, a, s').
#[derive(Clone)]
pub struct Expression {
    text: String,
    holds: Condition,
}

/// The step that a condition looks at.
struct StepView<'a> {
    prev: &'a [f32],
    act: &'a [f32],
    obs: &'a [f32],
}

/// A number that depends on the step.
type Number = Arc<dyn Fn(&StepView<'_>) -> f64 + Send + Sync>;
/// Something true or false that depends on the step.
type Condition = Arc<dyn Fn(&StepView<'_>) -> bool + Send + Sync>;
/// Two numbers compared, and two made one.
type Compare = fn(&f64, &f64) -> bool;
type Binary = fn(f64, f64) -> f64;
/// Which vector of the step.
type Vector = for<'a> fn(&StepView<'a>) -> &'a [f32];

/// What a part of the text turned out to be.
enum Parsed {
    Number(Number),
    Condition(Condition),
}

impl Parsed {
    fn number(f: impl Fn(&StepView<'_>) -> f64 + Send + Sync + 'static) -> Self {
        Self::Number(Arc::new(f))
    }

    fn condition(f: impl Fn(&StepView<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self::Condition(Arc::new(f))
    }
}

impl Expression {
    /// Reads a condition for states of `obs_dim` and actions of `act_dim` entries.
    ///
    /// # Errors
    /// A text that is no condition, or an index beyond the widths.
    pub fn parse(text: &str, obs_dim: usize, act_dim: usize) -> Result<Self> {
        Self::parse_named(text, obs_dim, act_dim, &ColumnNames::default())
    }

    /// Reads a condition that may use the names of columns.
    ///
    /// # Errors
    /// As [`Expression::parse`], and a name that no column has, or more than one.
    pub fn parse_named(text: &str, obs_dim: usize, act_dim: usize, names: &ColumnNames) -> Result<Self> {
        let mut parser = Parser { text, at: 0, obs_dim, act_dim, names, depth: 0, operands: 0 };
        let value = parser.either()?;
        parser.skip_spaces();
        if parser.at < text.len() {
            return Err(parser.wrong("an operator or the end"));
        }
        match value {
            Parsed::Condition(holds) => Ok(Self { text: text.to_string(), holds }),
            Parsed::Number(_) => Err(invalid!(
                "condition `{text}`: wanted something true or false, found a number; compare it with something"
            )),
        }
    }

    /// Whether the condition holds for the step from `prev` by `act` to `obs`.
    pub fn holds(&self, prev: &[f32], act: &[f32], obs: &[f32]) -> bool {
        (self.holds)(&StepView { prev, act, obs })
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.text).finish()
    }
}

/// More than anyone writes, and far less than a stack holds.
const MAX_OPERANDS: usize = 2000;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    obs_dim: usize,
    act_dim: usize,
    names: &'a ColumnNames,
    /// How deep parentheses go: the parser calls itself, and a file must not overflow the stack.
    depth: usize,
    /// Operands so far: each operator between them is a call inside another when the condition is looked at and dropped.
    operands: usize,
}

impl Parser<'_> {
    fn either(&mut self) -> Result<Parsed> {
        let mut left = self.both()?;
        while self.take("||") {
            let right = self.both()?;
            let (a, b) = (self.condition(left)?, self.condition(right)?);
            left = Parsed::condition(move |step| a(step) || b(step));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Parsed> {
        let mut left = self.comparison()?;
        while self.take("&&") {
            let right = self.comparison()?;
            let (a, b) = (self.condition(left)?, self.condition(right)?);
            left = Parsed::condition(move |step| a(step) && b(step));
        }
        Ok(left)
    }

    /// `a < b`, or `a < b < c`, which means `a < b && b < c`.
    fn comparison(&mut self) -> Result<Parsed> {
        const SIGNS: [(&str, Compare); 6] = [
            ("<=", f64::le),
            (">=", f64::ge),
            ("==", f64::eq),
            ("!=", f64::ne),
            ("<", f64::lt),
            (">", f64::gt),
        ];
        let mut left = self.sum()?;
        let mut all: Option<Condition> = None;
        while let Some((_, compare)) = SIGNS.into_iter().find(|(sign, _)| self.take(sign)) {
            let right = self.sum()?;
            let (a, b) = (self.number(left)?, self.number(right)?);
            left = Parsed::Number(b.clone());
            let one = move |step: &StepView<'_>| compare(&a(step), &b(step));
            all = Some(match all {
                None => Arc::new(one),
                Some(before) => Arc::new(move |step| before(step) && one(step)),
            });
        }
        Ok(all.map_or(left, Parsed::Condition))
    }

    fn sum(&mut self) -> Result<Parsed> {
        self.chain(Self::product, [("+", |a, b| a + b), ("-", |a, b| a - b)])
    }

    fn product(&mut self) -> Result<Parsed> {
        self.chain(Self::unary, [("*", |a, b| a * b), ("/", |a, b| a / b)])
    }

    /// Operands with either of two signs between them, from left to right.
    fn chain(
        &mut self,
        operand: fn(&mut Self) -> Result<Parsed>,
        signs: [(&str, Binary); 2],
    ) -> Result<Parsed> {
        let mut left = operand(self)?;
        while let Some((_, f)) = signs.into_iter().find(|(sign, _)| self.take(sign)) {
            let right = operand(self)?;
            left = self.binary(f, left, right)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Parsed> {
        self.depth += 1;
        if self.depth > 100 {
            return Err(self.wrong("at most 100 levels of nesting"));
        }
        self.operands += 1;
        if self.operands > MAX_OPERANDS {
            return Err(self.wrong(&format!("at most {MAX_OPERANDS} operands")));
        }
        let value = if self.take("-") {
            let inner = self.unary()?;
            let a = self.number(inner)?;
            Parsed::number(move |step| -a(step))
        } else if self.take("!") {
            let inner = self.unary()?;
            let a = self.condition(inner)?;
            Parsed::condition(move |step| !a(step))
        } else {
            self.atom()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn atom(&mut self) -> Result<Parsed> {
        if self.take("(") {
            let inner = self.either()?;
            self.expect(")")?;
            return Ok(inner);
        }
        self.skip_spaces();
        let rest = &self.text[self.at..];
        if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return self.literal();
        }
        let (word, start) = (self.word(), self.at);
        self.at += word.len();
        self.refuse_reserved(&word)?;
        match word.as_str() {
            "true" => Ok(Parsed::condition(|_| true)),
            "false" => Ok(Parsed::condition(|_| false)),
            "abs" => self.call_one(f64::abs),
            "sqrt" => self.call_one(f64::sqrt),
            "min" => self.call_two(f64::min),
            "max" => self.call_two(f64::max),
            "max_abs" => self.max_abs(),
            "obs" | "prev" | "act" => {
                let (vector, size) = self.vector(&word);
                let index = self.entry(&word, size)?;
                Ok(Parsed::number(move |step| f64::from(vector(step)[index])))
            }
            _ => self.column(&word, start),
        }
    }

    /// The letters, digits and underscores that come next.
    fn word(&self) -> String {
        self.text[self.at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    }

    /// The vector of that name and how many entries it has.
    fn vector(&self, name: &str) -> (Vector, usize) {
        match name {
            "prev" => (|step| step.prev, self.obs_dim),
            "act" => (|step| step.act, self.act_dim),
            _ => (|step| step.obs, self.obs_dim),
        }
    }

    fn literal(&mut self) -> Result<Parsed> {
        let rest = &self.text[self.at..];
        let mut end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        if rest[end..].starts_with(['e', 'E']) {
            let exponent = &rest[end + 1..];
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let digits = exponent[sign..].chars().take_while(char::is_ascii_digit).count();
            if digits > 0 {
                end += 1 + sign + digits;
            }
        }
        let value: f64 = rest[..end].parse().map_err(|_| self.wrong("a number"))?;
        self.at += end;
        Ok(Parsed::number(move |_| value))
    }

    fn call_one(&mut self, f: fn(f64) -> f64) -> Result<Parsed> {
        self.expect("(")?;
        let inner = self.either()?;
        self.expect(")")?;
        let a = self.number(inner)?;
        Ok(Parsed::number(move |step| f(a(step))))
    }

    fn call_two(&mut self, f: Binary) -> Result<Parsed> {
        self.expect("(")?;
        let a = self.either()?;
        self.expect(",")?;
        let b = self.either()?;
        self.expect(")")?;
        self.binary(f, a, b)
    }

    fn max_abs(&mut self) -> Result<Parsed> {
        self.expect("(")?;
        let name = ["obs", "prev", "act"].into_iter().find(|name| self.take(name));
        let name = name.ok_or_else(|| self.wrong("obs, prev or act"))?;
        let (vector, size) = self.vector(name);
        let mut from = 0;
        if self.take("[") {
            from = self.index(name, size)?;
            self.expect("..")?;
            self.expect("]")?;
        }
        self.expect(")")?;
        // NaN must not hide: f64::max would drop it.
        let larger = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
        Ok(Parsed::number(move |step| {
            vector(step)[from..].iter().map(|x| f64::from(x.abs())).fold(0.0, larger)
        }))
    }

    fn index(&mut self, name: &str, size: usize) -> Result<usize> {
        self.skip_spaces();
        let digits: String = self.text[self.at..].chars().take_while(char::is_ascii_digit).collect();
        let index: usize = digits.parse().map_err(|_| self.wrong("an index such as 0"))?;
        if index >= size {
            return Err(self.wrong(&format!("an index below {size} ({name} has {size} entries)")));
        }
        self.at += digits.len();
        Ok(index)
    }

    fn binary(&self, f: Binary, a: Parsed, b: Parsed) -> Result<Parsed> {
        let (a, b) = (self.number(a)?, self.number(b)?);
        Ok(Parsed::number(move |step| f(a(step), b(step))))
    }

    fn number(&self, value: Parsed) -> Result<Number> {
        match value {
            Parsed::Number(number) => Ok(number),
            Parsed::Condition(_) => Err(self.wrong("a number before this place, found a condition")),
        }
    }

    fn condition(&self, value: Parsed) -> Result<Condition> {
        match value {
            Parsed::Condition(condition) => Ok(condition),
            Parsed::Number(_) => Err(self.wrong("a condition before this place, found a number")),
        }
    }

    fn expect(&mut self, sign: &str) -> Result<()> {
        if self.take(sign) { Ok(()) } else { Err(self.wrong(&format!("`{sign}`"))) }
    }

    /// Consumes `sign` if it comes next.
    fn take(&mut self, sign: &str) -> bool {
        self.skip_spaces();
        let found = self.text[self.at..].starts_with(sign);
        // `!` must not take the first half of `!=`.
        let found = found && !(sign == "!" && self.text[self.at..].starts_with("!="));
        if found {
            self.at += sign.len();
        }
        found
    }

    fn skip_spaces(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn wrong(&self, wanted: &str) -> Error {
        let found: String = self.text[self.at..].chars().take(12).collect();
        let found = if found.is_empty() { "the end".into() } else { format!("`{found}`") };
        let column = self.text[..self.at].chars().count() + 1;
        let shown: String = self.text.chars().take(200).collect();
        let more = if shown.len() < self.text.len() { "…" } else { "" };
        invalid!("condition `{shown}{more}`: wanted {wanted} at column {column}, found {found}")
    }
}

#[cfg(test)]
mod tests;
