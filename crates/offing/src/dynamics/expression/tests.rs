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

#[test]
fn columns_go_by_their_names() {
    let named = |text: &str| -> Vec<String> { text.split(',').map(str::to_string).collect() };
    let names = ColumnNames {
        obs: named("t_in,p_tank,max,tank level,pan,2nd"),
        act: named("valve,pan,flow [l/min]"),
    };
    let parse = |text: &str| Expression::parse_named(text, 6, 3, &names);
    let (prev, act, obs) =
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [-1.0, -2.0, -3.0], [10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
    for text in [
        "t_in == 10 && p_tank == 20 && valve == -1",
        "prev.p_tank == 2 && prev[p_tank] == 2 && p_tank - prev . p_tank == 18",
        "obs[max] == 30 && max(t_in, 3) == 10",
        "obs[tank level] == 40 && obs['tank level'] == 40 && prev[ tank level ] == 4",
        "obs.pan == 50 && act.pan == -2 && act[pan] == -2",
        "obs[2nd] == 60 && obs[2] == 30 && max_abs(obs) == 60",
        "act[flow [l/min]] == -3 && act['flow [l/min]'] == -3 && obs[1] == 20",
    ] {
        assert!(parse(text).unwrap().holds(&prev, &act, &obs), "{text}");
    }
    for (text, words) in [
        (
            "p_tnk < 3",
            "the name of a column (`t_in`, `p_tank`, `max`, `tank level`, `pan`, `2nd`, `valve`, `pan`, `flow [l/min]`) at column 1",
        ),
        (
            "prev.valve < 3",
            "(`t_in`, `p_tank`, `max`, `tank level`, `pan`, `2nd`) at column 6, found `valve < 3`",
        ),
        ("act[t_in] < 3", "(`valve`, `pan`, `flow [l/min]`)"),
        ("pan < 3", "wanted one column of the name `pan`, found obs[4] and act[1]; write the place"),
        ("max < 3", "`max` is a word of conditions and a column; write the column as obs[2]"),
        ("obs[9] < 3", "obs has 6 entries"),
        ("obs[", "an index such as 0"),
    ] {
        let message = parse(text).unwrap_err().to_string();
        assert!(message.contains(words) && !message.contains('\n'), "{text}: {message}");
    }
    let message = Expression::parse("act.valve < 3", 6, 2).unwrap_err().to_string();
    assert!(message.contains("act[i] (the data do not name these columns)"), "{message}");
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "[obsprevact0-9\\[\\]().<>=!&|+*/ e-]{0,60}") {
        let names = ColumnNames { obs: ["obs", "e", "a b"].map(String::from).into(), act: Vec::new() };
        for names in [ColumnNames::default(), names] {
            if let Ok(e) = Expression::parse_named(&text, 3, 2, &names) {
                e.holds(&[0.0; 3], &[0.0; 2], &[1.0; 3]);
            }
        }
    }
}
