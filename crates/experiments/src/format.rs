//! Numbers as people read them: counts, measurements, durations, probabilities, differences.

/// 1234567 → "1,234,567".
pub fn count(n: usize) -> String {
    match n {
        0..1000 => n.to_string(),
        _ => format!("{},{:03}", count(n / 1000), n % 1000),
    }
}

/// A count with its noun: "1 row", "2,000 rows".
pub fn counted(n: usize, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A number with about four significant digits.
pub fn number(x: f64) -> String {
    by_size(x, &[(1000.0, 0), (100.0, 1), (1.0, 2), (1e-3, 4)], 2)
}

/// Two or three digits: a table of intervals has no room for more.
pub(crate) fn short(x: f64) -> String {
    by_size(x, &[(10.0, 0), (1.0, 1), (0.01, 2), (1e-3, 3)], 0)
}

/// A number with the decimals of the first size that it reaches; one below all of them with an exponent.
fn by_size(x: f64, sizes: &[(f64, usize)], decimals_below: usize) -> String {
    match sizes.iter().find(|(size, _)| x.abs() >= *size) {
        _ if !x.is_finite() || x == 0.0 => format!("{x}"),
        Some((_, decimals)) => format!("{x:.decimals$}"),
        None => format!("{x:.decimals_below$e}"),
    }
}

/// Seconds in the unit a person would use.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// A small probability with digits that say something.
pub fn p_value(p: f64) -> String {
    if p < 0.001 { format!("{p:.1e}") } else { format!("{p:.3}") }
}

/// A cell of a table: the value's text, or a dash where there is none.
pub fn or_dash<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or("-".into(), text)
}

/// A number with that many decimals, with a true minus sign; a dash unless it is finite.
pub(crate) fn decimal(x: f64, digits: usize) -> String {
    // A minus, not the dash that stands for nothing.
    if x.is_finite() { format!("{x:.digits$}").replace('-', "−") } else { "-".into() }
}

/// A difference with its sign; what rounds to nothing has none.
pub(crate) fn signed(x: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", x.abs());
    match (text.bytes().all(|b| b == b'0' || b == b'.'), x > 0.0) {
        (true, _) => text,
        (_, true) => format!("+{text}"),
        (_, false) => format!("−{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped_by_thousands() {
        for (n, wanted) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(n), wanted);
        }
        assert_eq!([1, 2, 2000].map(|n| counted(n, "row")), ["1 row", "2 rows", "2,000 rows"]);
    }

    #[test]
    fn small_probabilities_keep_their_digits() {
        assert_eq!([1.0, 0.03125, 6.103515625e-5].map(p_value), ["1.000", "0.031", "6.1e-5"]);
    }

    #[test]
    fn durations_take_the_unit_that_fits() {
        for (seconds, wanted) in [(0.04, "0.0 s"), (119.0, "119.0 s"), (120.0, "2 min"), (16_200.0, "4.5 h")]
        {
            assert_eq!(duration(seconds), wanted);
        }
    }

    #[test]
    fn differences_carry_their_sign() {
        for (x, text) in [(0.124, "+0.12"), (-0.126, "−0.13"), (-0.001, "0.00"), (0.0, "0.00")] {
            assert_eq!(signed(x, 2), text);
        }
        assert_eq!((decimal(-0.25, 1), decimal(f64::NAN, 1)), ("−0.2".into(), "-".into()));
    }
}
