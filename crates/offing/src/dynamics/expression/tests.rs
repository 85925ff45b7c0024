//! Expressions: what parses, what they evaluate to and what is refused.

use super::*;

fn holds(text: &str) -> bool {
    let prev = [1.0, 2.0];
    Expression::parse(text, 2, 1).unwrap().holds(&prev, &[-0.5], &[0.75, -3.0])
}

#[test]
fn conditions_mean_what_they_say() {
    for text in [
        "obs[0] > 0.7 && abs(obs[1]) < 3.5",
        "obs[0] - prev[0] == -0.25",
        "0.7 < obs[0] <= 0.75",
        "!(obs[0] > 1) && act[0] < 0",
        "obs[1] == -3 || false",
        "max_abs(obs) == 3 && max_abs(prev[1..]) == 2",
        "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 8 / 2 / 2 == 2",
        "min(obs[0], obs[1]) == -3.0e0 && sqrt(max(4, 1)) == 2",
        "-obs[1] == 3 && obs[0] != 0",
        "5 - 2 - 1 == 2",
    ] {
        assert!(holds(text), "{text}");
        assert!(!holds(&format!("!({text})")), "not {text}");
    }
}

#[test]
fn nan_is_never_small() {
    let alive = Expression::parse("max_abs(obs) < 100", 2, 1).unwrap();
    assert!(!alive.holds(&[0.0; 2], &[0.0], &[f32::NAN, 1.0]));
    assert!(!alive.holds(&[0.0; 2], &[0.0], &[1.0, f32::NAN]));
}

#[test]
fn mistakes_are_pointed_at() {
    for (text, word) in [
        ("", "found the end"),
        ("obs[0]", "found a number"),
        ("obs[2] > 0", "obs has 2 entries"),
        ("act[1] > 0", "act has 1 entries"),
        ("obs[0] > ", "column 10"),
        ("obs[0] > 1 obs", "an operator or the end"),
        ("speed > 1", "column 1"),
        ("(obs[0] > 1", "`)`"),
        ("(obs[0] > 1) + 2 > 0", "found a condition"),
        ("1 && obs[0] > 1", "found a number"),
        ("é > 1", "column 1"),
    ] {
        let message = Expression::parse(text, 2, 1).unwrap_err().to_string();
        assert!(message.contains(word), "{text}: {message}");
    }
    assert!(Expression::parse(&"(".repeat(100_000), 2, 1).is_err());
    assert!(Expression::parse(&"-".repeat(100_000), 2, 1).is_err());
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "[obsprevact0-9\\[\\]().<>=!&|+*/ e-]{0,60}") {
        if let Ok(e) = Expression::parse(&text, 3, 2) {
            e.holds(&[0.0; 3], &[0.0; 2], &[1.0; 3]);
        }
    }
}
