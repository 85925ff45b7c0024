//! Numbers and flags as text tables write them: with decimal points or commas, words for true and false, words for a
//! missing value. Where a text has two readings, it is refused: no value may change on the way.

use std::str::FromStr;

/// Words for a missing value, any case; an empty cell is one too.
const MISSING: &[&str] = &["", "na", "n/a", "null", "none"];

/// Why a text is not taken as a number.
#[derive(Debug, PartialEq)]
pub(super) enum NotANumber {
    /// It is none.
    Text,
    /// It is a date, a time or both.
    Time,
    /// Points and commas in one number: one of them groups thousands.
    Grouped,
    /// It has a decimal comma and this earlier cell a decimal point, or the other way around.
    Mixed(Seen),
}

/// A cell that decided something.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    pub(super) text: String,
    pub(super) column: usize,
    pub(super) row: usize,
}

/// The numbers of one table: which decimal sign they have had so far.
pub(super) struct Numbers {
    /// With commas between columns only the point is a decimal sign.
    may_have_commas: bool,
    allow_missing: bool,
    comma: Sign,
    point: Sign,
}

/// A decimal sign, as far as it has occurred.
#[derive(Default)]
struct Sign {
    first: Option<Seen>,
    /// Some number cannot be read as one with groups of thousands.
    is_sure: bool,
}

/// Where a cell stands, for messages.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) column: usize,
    pub(super) row: usize,
}

impl Numbers {
    pub(super) fn new(separator: u8, allow_missing: bool) -> Self {
        Self {
            may_have_commas: separator != b',',
            allow_missing,
            comma: Sign::default(),
            point: Sign::default(),
        }
    }

    /// A number, `true` or `false`; NaN for a missing value where these are allowed.
    pub(super) fn number<T: FromStr + From<u8>>(
        &mut self,
        cell: &[u8],
        nan: T,
        place: Place,
    ) -> Result<T, NotANumber> {
        let text = std::str::from_utf8(cell).map_err(|_| NotANumber::Text)?;
        let parsed = match self.may_have_commas && text.contains([',', '.']) {
            true => self.fraction(text, place)?,
            false => text.parse().ok(),
        };
        match parsed {
            Some(number) => Ok(number),
            None if self.allow_missing && is_one_of(text, MISSING) => Ok(nan),
            None if is_one_of(text, &["true"]) => Ok(T::from(1)),
            None if is_one_of(text, &["false"]) => Ok(T::from(0)),
            None if is_time(text) => Err(NotANumber::Time),
            None => Err(NotANumber::Text),
        }
    }

    /// 0 or 1 for a word that says so, else as [`Numbers::number`].
    pub(super) fn flag(&mut self, cell: &[u8], place: Place) -> Result<f64, NotANumber> {
        match flag_word(cell) {
            Some(flag) => Ok(f64::from(u8::from(flag))),
            None => self.number(cell, f64::NAN, place),
        }
    }

    /// A number with a point or a comma in it; `None` when it is none.
    fn fraction<T: FromStr>(&mut self, text: &str, place: Place) -> Result<Option<T>, NotANumber> {
        let (mantissa, exponent) = text.split_at(text.find(['e', 'E']).unwrap_or(text.len()));
        let (commas, points) = (mantissa.matches(',').count(), mantissa.matches('.').count());
        let digits = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
        let unsigned = mantissa.strip_prefix(['-', '+']).unwrap_or(mantissa);
        if commas + points > 1 && unsigned.chars().all(digits) {
            return Err(NotANumber::Grouped);
        }
        let Ok(number) = text.replacen(',', ".", 1).parse() else { return Ok(None) };
        let (sign, other) = match commas {
            0 => (&mut self.point, &self.comma),
            _ => (&mut self.comma, &self.point),
        };
        if let Some(seen) = &other.first {
            return Err(NotANumber::Mixed(seen.clone()));
        }
        let Place { column, row } = place;
        sign.first.get_or_insert_with(|| Seen { text: text.into(), column, row });
        sign.is_sure |= !exponent.is_empty() || !is_like_thousands(unsigned);
        Ok(Some(number))
    }

    /// A cell with a comma that may group thousands as well, when the whole table holds no better evidence.
    pub(super) fn doubtful_comma(&self) -> Option<&Seen> {
        self.comma.first.as_ref().filter(|_| !self.comma.is_sure)
    }

    /// The same for a point. It is read as a decimal sign, which it is almost everywhere, with a note.
    pub(super) fn doubtful_point(&self) -> Option<&Seen> {
        self.point.first.as_ref().filter(|_| !self.point.is_sure)
    }
}

/// 0 or 1 of a flag that is stored as text.
pub(super) fn flag(text: &[u8]) -> Option<f64> {
    Numbers::new(b',', false).flag(text.trim_ascii(), Place { column: 0, row: 0 }).ok()
}

/// `true`, `yes`, `t`, `y` and their opposites, any case.
fn flag_word(cell: &[u8]) -> Option<bool> {
    let text = std::str::from_utf8(cell).ok()?;
    match text {
        _ if is_one_of(text, &["true", "t", "yes", "y"]) => Some(true),
        _ if is_one_of(text, &["false", "f", "no", "n"]) => Some(false),
        _ => None,
    }
}

fn is_one_of(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// `1,234` or `12.345` without its sign: one to three digits, none of them leading zeros, and three after the separator.
fn is_like_thousands(number: &str) -> bool {
    let (whole, rest) = number.split_at(number.find([',', '.']).unwrap_or(number.len()));
    (1..=3).contains(&whole.len()) && !whole.starts_with('0') && rest.len() == 4
}

/// An ISO 8601 date, a time of day, or both.
fn is_time(text: &str) -> bool {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (Some(date), Some(time)),
        None if text.contains(':') => (None, Some(text)),
        None => (Some(text), None),
    };
    date.is_none_or(|date| has_parts(date, '-', &[4, 2, 2])) && time.is_none_or(is_time_of_day)
}

/// `12:30`, `12:30:15.250` and on, with a zone or without.
fn is_time_of_day(text: &str) -> bool {
    let clock = text.trim_end_matches(['Z', 'z']);
    let clock = clock.split(['+', '-']).next().unwrap_or_default().trim_end();
    let clock = clock.split(['.', ',']).next().unwrap_or_default();
    has_parts(clock, ':', &[2, 2]) || has_parts(clock, ':', &[2, 2, 2])
}

fn has_parts(text: &str, separator: char, lengths: &[usize]) -> bool {
    let parts: Vec<&str> = text.split(separator).collect();
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    parts.len() == lengths.len()
        && parts.iter().zip(lengths).all(|(p, &length)| p.len() == length && digits(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { column: 0, row: 0 };

    fn of(numbers: &mut Numbers, text: &str) -> Result<f32, NotANumber> {
        numbers.number(text.as_bytes(), f32::NAN, PLACE)
    }

    #[test]
    fn decimal_commas_are_read_where_commas_do_not_separate() {
        let mut numbers = Numbers::new(b';', false);
        for (text, wanted) in
            [("1,5", 1.5), ("-0,25", -0.25), ("1,5e-2", 0.015), ("7", 7.0), ("+,5", 0.5), ("1,234", 1.234)]
        {
            assert_eq!(of(&mut numbers, text), Ok(wanted), "{text}");
        }
        assert!(numbers.doubtful_comma().is_none());
        let mixed = of(&mut numbers, "1.234");
        assert!(matches!(&mixed, Err(NotANumber::Mixed(seen)) if seen.text == "1,5"), "{mixed:?}");
        for text in ["1.234,5", "1,234.5", "1,234,567", "1.234.567"] {
            assert_eq!(of(&mut numbers, text), Err(NotANumber::Grouped), "{text}");
        }
        assert_eq!(of(&mut numbers, "a,b"), Err(NotANumber::Text));
        assert_eq!(of(&mut Numbers::new(b',', false), "1,5"), Err(NotANumber::Text));
    }

    #[test]
    fn what_may_be_thousands_stays_doubtful_until_another_number_settles_it() {
        let mut numbers = Numbers::new(b'\t', false);
        assert_eq!(of(&mut numbers, "1,234"), Ok(1.234));
        assert_eq!(numbers.doubtful_comma().unwrap().text, "1,234");
        assert_eq!(of(&mut numbers, "0,500"), Ok(0.5), "no thousands begin with 0");
        assert!(numbers.doubtful_comma().is_none());
        let mut numbers = Numbers::new(b'\t', false);
        assert_eq!(of(&mut numbers, "-12.345"), Ok(-12.345));
        assert!(numbers.doubtful_point().is_some());
        assert_eq!(of(&mut numbers, "1.5"), Ok(1.5));
        assert!(numbers.doubtful_point().is_none());
    }

    #[test]
    fn words_are_flags_and_missing_values_only_where_they_may_be() {
        let mut numbers = Numbers::new(b',', false);
        for (yes, no) in
            [("yes", "no"), ("Y", "N"), ("t", "F"), ("TRUE", "False"), ("1", "0"), ("1.0", "0.0")]
        {
            assert_eq!(numbers.flag(yes.as_bytes(), PLACE), Ok(1.0), "{yes}");
            assert_eq!(numbers.flag(no.as_bytes(), PLACE), Ok(0.0), "{no}");
        }
        assert_eq!(numbers.flag(b"maybe", PLACE), Err(NotANumber::Text));
        assert_eq!(of(&mut numbers, "yes"), Err(NotANumber::Text), "no measurement is `yes`");
        for text in ["", "NA", "n/a", "null", "None"] {
            assert_eq!(of(&mut numbers, text), Err(NotANumber::Text));
            assert!(of(&mut Numbers::new(b',', true), text).unwrap().is_nan(), "{text}");
        }
    }

    #[test]
    fn times_are_told_from_other_texts() {
        for text in [
            "2024-05-01",
            "2024-05-01T12:30",
            "2024-05-01 12:30:15.250",
            "2024-05-01T12:30:15Z",
            "2024-05-01T12:30:15,5+02:00",
            "12:30:15",
        ] {
            assert!(is_time(text), "{text}");
        }
        for text in ["", "x", "1-2-3", "2024", "12:3", "2024-05-01Tx", "T", "a:b"] {
            assert!(!is_time(text), "{text}");
        }
    }
}
