//! A small language for conditions on a step, so that a user's own task can say when an episode goes on.
//!
//! `obs[i]` is entry i of the state the step led to (s'), `prev[i]` of the state before it (s), `act[i]` of the
//! action. There are numbers, `+ - * /`, `abs sqrt min max`, `max_abs(obs)` and `max_abs(obs[1..])` for the largest
//! magnitude, comparisons (also chained), `&& || !` and parentheses.
//!
//! ```
//! use offing::dynamics::Expression;
//! let alive = Expression::parse("obs[0] > 0.7 && abs(obs[1]) < 0.2 && max_abs(obs) < 100", 3, 1).unwrap();
//! assert!(alive.holds(&[0.0; 3], &[0.0], &[1.2, 0.1, -5.0]));
//! assert!(!alive.holds(&[0.0; 3], &[0.0], &[0.6, 0.1, -5.0]));
//! let wrong = Expression::parse("obs[9] > 0", 3, 1).unwrap_err();
//! assert!(wrong.to_string().contains("obs has 3 entries"));
//! ```

use crate::error::{Error, Result};

/// A condition on (s, a, s').
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    root: Condition,
}

#[derive(Clone, Debug)]
enum Condition {
    Compare(Number, CompareOp, Number),
    And(Box<Condition>, Box<Condition>),
    Or(Box<Condition>, Box<Condition>),
    Not(Box<Condition>),
    Constant(bool),
}

#[derive(Clone, Copy, Debug)]
enum CompareOp {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

#[derive(Clone, Debug)]
enum Number {
    Constant(f64),
    Entry(Vector, usize),
    MaxAbs(Vector, usize),
    Unary(fn(f64) -> f64, Box<Number>),
    Binary(fn(f64, f64) -> f64, Box<Number>, Box<Number>),
}

#[derive(Clone, Copy, Debug)]
enum Vector {
    Obs,
    Prev,
    Act,
}

/// What a part of the text turned out to be.
enum Parsed {
    Number(Number),
    Condition(Condition),
}

impl Expression {
    /// Reads a condition for states of `obs_dim` and actions of `act_dim` entries.
    pub fn parse(text: &str, obs_dim: usize, act_dim: usize) -> Result<Self> {
        let mut parser = Parser { text, at: 0, obs_dim, act_dim, depth: 0 };
        let value = parser.either()?;
        parser.skip_spaces();
        if parser.at < text.len() {
            return Err(parser.wrong("an operator or the end"));
        }
        match value {
            Parsed::Condition(root) => Ok(Self { text: text.to_string(), root }),
            Parsed::Number(_) => Err(Error::Invalid(format!(
                "condition `{text}`: wanted something true or false, found a number; compare it with something"
            ))),
        }
    }

    /// Whether the condition holds for the step from `prev` by `act` to `obs`.
    pub fn holds(&self, prev: &[f32], act: &[f32], obs: &[f32]) -> bool {
        self.root.eval(&Step { prev, act, obs })
    }

    /// The condition as written.
    pub fn text(&self) -> &str {
        &self.text
    }
}

struct Step<'a> {
    prev: &'a [f32],
    act: &'a [f32],
    obs: &'a [f32],
}

impl Step<'_> {
    fn vector(&self, which: Vector) -> &[f32] {
        match which {
            Vector::Obs => self.obs,
            Vector::Prev => self.prev,
            Vector::Act => self.act,
        }
    }
}

impl Condition {
    fn eval(&self, step: &Step<'_>) -> bool {
        match self {
            Self::Compare(a, how, b) => {
                let (a, b) = (a.eval(step), b.eval(step));
                match how {
                    CompareOp::Less => a < b,
                    CompareOp::LessEqual => a <= b,
                    CompareOp::Greater => a > b,
                    CompareOp::GreaterEqual => a >= b,
                    CompareOp::Equal => a == b,
                    CompareOp::NotEqual => a != b,
                }
            }
            Self::And(a, b) => a.eval(step) && b.eval(step),
            Self::Or(a, b) => a.eval(step) || b.eval(step),
            Self::Not(a) => !a.eval(step),
            Self::Constant(value) => *value,
        }
    }
}

impl Number {
    fn eval(&self, step: &Step<'_>) -> f64 {
        match self {
            Self::Constant(x) => *x,
            Self::Entry(which, i) => f64::from(step.vector(*which)[*i]),
            Self::MaxAbs(which, from) => {
                // NaN must not hide: f64::max would drop it.
                let values = step.vector(*which)[*from..].iter().map(|x| f64::from(x.abs()));
                values.fold(0.0, |a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) })
            }
            Self::Unary(f, a) => f(a.eval(step)),
            Self::Binary(f, a, b) => f(a.eval(step), b.eval(step)),
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    obs_dim: usize,
    act_dim: usize,
    /// How deep parentheses go: the parser calls itself, and a file must not overflow the stack.
    depth: usize,
}

impl Parser<'_> {
    fn either(&mut self) -> Result<Parsed> {
        let mut left = self.both()?;
        while self.take("||") {
            let right = self.both()?;
            left =
                Parsed::Condition(Condition::Or(Box::new(self.truth(left)?), Box::new(self.truth(right)?)));
        }
        Ok(left)
    }

    fn both(&mut self) -> Result<Parsed> {
        let mut left = self.comparison()?;
        while self.take("&&") {
            let right = self.comparison()?;
            left =
                Parsed::Condition(Condition::And(Box::new(self.truth(left)?), Box::new(self.truth(right)?)));
        }
        Ok(left)
    }

    /// `a < b`, or `a < b < c`, which means `a < b && b < c`.
    fn comparison(&mut self) -> Result<Parsed> {
        let mut left = self.sum()?;
        let mut all: Option<Condition> = None;
        while let Some(how) = self.comparison_sign() {
            let right = self.sum()?;
            let (a, b) = (self.number(left)?, self.number(right)?);
            let one = Condition::Compare(a, how, b.clone());
            all = Some(match all {
                None => one,
                Some(before) => Condition::And(Box::new(before), Box::new(one)),
            });
            left = Parsed::Number(b);
        }
        Ok(all.map_or(left, Parsed::Condition))
    }

    fn comparison_sign(&mut self) -> Option<CompareOp> {
        let signs = [
            ("<=", CompareOp::LessEqual),
            (">=", CompareOp::GreaterEqual),
            ("==", CompareOp::Equal),
            ("!=", CompareOp::NotEqual),
            ("<", CompareOp::Less),
            (">", CompareOp::Greater),
        ];
        signs.into_iter().find(|(sign, _)| self.take(sign)).map(|(_, how)| how)
    }

    fn sum(&mut self) -> Result<Parsed> {
        let mut left = self.product()?;
        loop {
            let f: fn(f64, f64) -> f64 = match () {
                () if self.take("+") => |a, b| a + b,
                () if self.take("-") => |a, b| a - b,
                () => return Ok(left),
            };
            let right = self.product()?;
            left = self.binary(f, left, right)?;
        }
    }

    fn product(&mut self) -> Result<Parsed> {
        let mut left = self.unary()?;
        loop {
            let f: fn(f64, f64) -> f64 = match () {
                () if self.take("*") => |a, b| a * b,
                () if self.take("/") => |a, b| a / b,
                () => return Ok(left),
            };
            let right = self.unary()?;
            left = self.binary(f, left, right)?;
        }
    }

    fn unary(&mut self) -> Result<Parsed> {
        self.depth += 1;
        if self.depth > 100 {
            return Err(self.wrong("at most 100 levels of nesting"));
        }
        let value = if self.take("-") {
            let inner = self.unary()?;
            Parsed::Number(Number::Unary(|a| -a, Box::new(self.number(inner)?)))
        } else if self.take("!") {
            let inner = self.unary()?;
            Parsed::Condition(Condition::Not(Box::new(self.truth(inner)?)))
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
        let word: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let start = self.at;
        self.at += word.len();
        match word.as_str() {
            "true" => Ok(Parsed::Condition(Condition::Constant(true))),
            "false" => Ok(Parsed::Condition(Condition::Constant(false))),
            "abs" => self.call_one(f64::abs),
            "sqrt" => self.call_one(f64::sqrt),
            "min" => self.call_two(f64::min),
            "max" => self.call_two(f64::max),
            "max_abs" => self.max_abs(),
            "obs" | "prev" | "act" => {
                let which = vector(&word);
                self.expect("[")?;
                let index = self.index(which)?;
                self.expect("]")?;
                Ok(Parsed::Number(Number::Entry(which, index)))
            }
            _ => {
                self.at = start;
                Err(self.wrong("a number, obs[i], prev[i], act[i], abs, sqrt, min, max, max_abs or `(`"))
            }
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
        let value = rest[..end].parse().map_err(|_| self.wrong("a number"))?;
        self.at += end;
        Ok(Parsed::Number(Number::Constant(value)))
    }

    fn call_one(&mut self, f: fn(f64) -> f64) -> Result<Parsed> {
        self.expect("(")?;
        let inner = self.either()?;
        self.expect(")")?;
        Ok(Parsed::Number(Number::Unary(f, Box::new(self.number(inner)?))))
    }

    fn call_two(&mut self, f: fn(f64, f64) -> f64) -> Result<Parsed> {
        self.expect("(")?;
        let a = self.either()?;
        self.expect(",")?;
        let b = self.either()?;
        self.expect(")")?;
        self.binary(f, a, b)
    }

    fn max_abs(&mut self) -> Result<Parsed> {
        self.expect("(")?;
        let which = ["obs", "prev", "act"].into_iter().find(|name| self.take(name)).map(vector);
        let which = which.ok_or_else(|| self.wrong("obs, prev or act"))?;
        let mut from = 0;
        if self.take("[") {
            from = self.index(which)?;
            self.expect("..")?;
            self.expect("]")?;
        }
        self.expect(")")?;
        Ok(Parsed::Number(Number::MaxAbs(which, from)))
    }

    fn index(&mut self, which: Vector) -> Result<usize> {
        self.skip_spaces();
        let digits: String = self.text[self.at..].chars().take_while(char::is_ascii_digit).collect();
        let index: usize = digits.parse().map_err(|_| self.wrong("an index such as 0"))?;
        let (name, size) = match which {
            Vector::Obs => ("obs", self.obs_dim),
            Vector::Prev => ("prev", self.obs_dim),
            Vector::Act => ("act", self.act_dim),
        };
        if index >= size {
            return Err(self.wrong(&format!("an index below {size} ({name} has {size} entries)")));
        }
        self.at += digits.len();
        Ok(index)
    }

    fn binary(&self, f: fn(f64, f64) -> f64, a: Parsed, b: Parsed) -> Result<Parsed> {
        Ok(Parsed::Number(Number::Binary(f, Box::new(self.number(a)?), Box::new(self.number(b)?))))
    }

    fn number(&self, value: Parsed) -> Result<Number> {
        match value {
            Parsed::Number(n) => Ok(n),
            Parsed::Condition(_) => Err(self.wrong("a number before this place, found a condition")),
        }
    }

    fn truth(&self, value: Parsed) -> Result<Condition> {
        match value {
            Parsed::Condition(t) => Ok(t),
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
        Error::Invalid(format!(
            "condition `{}`: wanted {wanted} at column {column}, found {found}",
            self.text
        ))
    }
}

fn vector(name: &str) -> Vector {
    match name {
        "prev" => Vector::Prev,
        "act" => Vector::Act,
        _ => Vector::Obs,
    }
}

#[cfg(test)]
mod tests;
