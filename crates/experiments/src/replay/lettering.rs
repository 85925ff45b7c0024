//! Text in a moving picture: each letter is a few lines, drawn with the pen that draws bodies. A font file would be larger than
//! all the rest of a picture.

/// Lines of a letter as points of two digits: from the left, 0 to 4; from below, 0 (descenders), 2 (the base line), 6 (small
/// letters) and 8 (tall ones). Capitals are written small.
fn lines(letter: char) -> &'static str {
    match letter {
        'a' => "42 46/45 36 16 05 03 12 32 43",
        'b' => "08 02/03 12 32 43 45 36 16 05",
        'c' => "45 36 16 05 03 12 32 43",
        'd' => "48 42/43 32 12 03 05 16 36 45",
        'e' => "04 44 45 36 16 05 03 12 32 43",
        'f' => "12 17 28 38/06 36",
        'g' => "46 41 30 10 01/43 32 12 03 05 16 36 45",
        'h' => "08 02/05 16 36 45 42",
        'i' => "22 26/28 28",
        'j' => "26 21 10/28 28",
        'k' => "08 02/03 46/24 42",
        'l' => "18 13 22 32",
        'm' => "02 06/05 16 25 22/25 36 45 42",
        'n' => "06 02/05 16 36 45 42",
        'o' => "16 36 45 43 32 12 03 05 16",
        'p' => "06 00/05 16 36 45 43 32 12 03",
        'q' => "46 40/45 36 16 05 03 12 32 43",
        'r' => "06 02/04 26 36",
        's' => "45 36 16 05 14 34 43 32 12 03",
        't' => "18 13 22 32/06 36",
        'u' => "06 03 12 32 43/46 42",
        'v' => "06 22 46",
        'w' => "06 12 25 32 46",
        'x' => "06 42/02 46",
        'y' => "06 22/46 10",
        'z' => "06 46 02 42",
        '0' => "18 38 47 43 32 12 03 07 18",
        '1' => "07 28 22",
        '2' => "07 18 38 47 46 02 42",
        '3' => "07 18 38 47 46 35 25/35 44 43 32 12 03",
        '4' => "32 38 04 44",
        '5' => "48 08 05 35 44 43 32 12 03",
        '6' => "38 18 07 03 12 32 43 44 35 05",
        '7' => "08 48 12",
        '8' => "18 38 47 46 35 15 06 07 18/15 04 03 12 32 43 44 35",
        '9' => "12 32 43 47 38 18 07 06 15 45",
        'ε' => "45 36 16 05 14 24/14 03 12 32 43",
        '.' => "22 22",
        ',' => "22 11",
        ':' => "25 25/22 22",
        '·' => "24 24",
        '-' | '−' => "14 34",
        '+' => "04 44/26 22",
        '=' => "05 45/03 43",
        '_' => "01 41",
        '/' => "02 48",
        '(' => "38 27 23 32",
        ')' => "18 27 23 12",
        '%' => "02 48/07 07/43 43",
        _ => "",
    }
}

/// Width of a letter with the room to the next, in the units of letters.
const ADVANCE: f64 = 6.0;

/// How wide a text is.
pub(super) fn width(text: &str, unit: f64) -> f64 {
    text.chars().count() as f64 * ADVANCE * unit
}

/// The lines of a text whose base line begins at a point, in pixels.
pub(super) fn strokes(text: &str, [x, y]: [f64; 2], unit: f64) -> Vec<[[f64; 2]; 2]> {
    let mut out = Vec::new();
    for (i, letter) in text.chars().flat_map(char::to_lowercase).enumerate() {
        let left = x + i as f64 * ADVANCE * unit;
        for line in lines(letter).split('/') {
            let digit = |c: Option<char>| c.and_then(|c| c.to_digit(10)).map_or(0.0, f64::from);
            let point = |word: &str| {
                let mut digits = word.chars();
                [left + digit(digits.next()) * unit, y - (digit(digits.next()) - 2.0) * unit]
            };
            let points: Vec<[f64; 2]> = line.split_whitespace().map(point).collect();
            out.extend(points.windows(2).map(|pair| [pair[0], pair[1]]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_that_names_hold_has_lines_within_its_cell() {
        for letter in ('a'..='z').chain('0'..='9').chain("ε.,:·-+=_/()%".chars()) {
            let drawn = strokes(&letter.to_string(), [10.0, 20.0], 1.0);
            assert!(!drawn.is_empty(), "{letter}");
            let inside = |[x, y]: [f64; 2]| (10.0..=14.0).contains(&x) && (14.0..=22.0).contains(&y);
            assert!(drawn.iter().flatten().all(|point| inside(*point)), "{letter}: {drawn:?}");
        }
        assert!(strokes(" ", [0.0, 0.0], 1.0).is_empty());
        assert_eq!(strokes("L", [0.0, 0.0], 2.0), strokes("l", [0.0, 0.0], 2.0));
        assert_eq!(width("abc", 2.0), 36.0);
    }
}
