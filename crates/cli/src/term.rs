//! How things look in the terminal: steps, tables, progress.

use std::time::Duration;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle, Width};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// `println!` that does not mind when nobody reads any more (`offing data list | head -1`); any other trouble with the
/// output ends the program.
macro_rules! out {
    ($($words:tt)*) => {{
        use std::io::Write;
        if !$crate::term::is_mute()
            && let Err(error) = writeln!(std::io::stdout(), $($words)*)
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            eprintln!("error: cannot write the output: {error}");
            std::process::exit(2);
        }
    }};
}

static MUTE: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Whether `out!` says nothing: a program that offing is part of takes results from files.
pub(crate) fn is_mute() -> bool {
    MUTE.load(std::sync::atomic::Ordering::Relaxed)
}

/// Silences `out!`, or gives it back its voice.
pub(crate) fn set_mute(mute: bool) {
    MUTE.store(mute, std::sync::atomic::Ordering::Relaxed);
}

/// One line about what is being done, on stderr so that stdout stays clean for results.
pub(crate) fn step(line: &str) {
    eprintln!("· {line}");
}

/// A single rule under the header: tables are read, not boxed.
const RULE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The width to lay tables out for: the terminal's, or a page's when there is none.
fn width() -> u16 {
    console::Term::stdout().size_checked().map_or(120, |(_, columns)| columns.max(60))
}

/// A table whose first column is text and whose others are numbers.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    laid_out(header, rows, width())
}

fn laid_out(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>, width: u16) -> Table {
    let mut table = Table::new();
    table.load_style(RULE).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    let longest_word = |text: &str| text.split_whitespace().map(|w| w.chars().count()).max().unwrap_or(0);
    let mut words: Vec<usize> = header.iter().map(|name| longest_word(name)).collect();
    table.set_header(header);
    for row in rows {
        for (longest, cell) in words.iter_mut().zip(&row) {
            *longest = longest_word(cell).max(*longest);
        }
        table.add_row(row);
    }
    for (i, (column, longest)) in table.column_iter_mut().zip(words).enumerate() {
        // A number or a path that is broken in two is neither read nor copied; lines too long for a terminal are.
        let whole = longest + usize::from(column.padding_width());
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(whole as u16)));
        if i > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table of numbers that may be too wide: laid out as several below each other, each with the first column.
pub(crate) fn wide_table(header: &[&str], rows: &[Vec<String>]) -> Vec<Table> {
    let chars = |text: &str| text.chars().count();
    let columns: Vec<usize> = (0..header.len())
        .map(|c| {
            rows.iter().filter_map(|row| row.get(c)).map(|cell| chars(cell)).chain([chars(header[c])]).max()
        })
        .map(|widest| widest.unwrap_or(0))
        .collect();
    let of = |band: Vec<usize>| {
        let names: Vec<&str> = band.iter().map(|&c| header[c]).collect();
        let pick =
            |row: &Vec<String>| band.iter().map(|&c| row.get(c).cloned().unwrap_or_default()).collect();
        table(&names, rows.iter().map(pick))
    };
    bands(&columns, width() as usize).into_iter().map(of).collect()
}

/// Columns of such widths, in groups that fit beside the first one.
fn bands(columns: &[usize], width: usize) -> Vec<Vec<usize>> {
    /// A space at each side and one between.
    const AIR: usize = 3;
    let first = columns.first().map_or(0, |c| c + AIR);
    let (mut bands, mut used) = (vec![vec![0]], first);
    for (c, chars) in columns.iter().enumerate().skip(1) {
        if used + chars + AIR > width && bands.last().is_some_and(|band| band.len() > 1) {
            bands.push(vec![0]);
            used = first;
        }
        used += chars + AIR;
        bands.last_mut().into_iter().for_each(|band| band.push(c));
    }
    bands
}

/// A small probability with digits that say something.
pub(crate) fn p_value(p: f64) -> String {
    if p < 0.001 { format!("{p:.1e}") } else { format!("{p:.3}") }
}

/// A table of text alone.
pub(crate) fn text_table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = table(header, rows);
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Left);
    }
    table
}

/// A style from one of the templates here; `{rate}` is a second's work as a number that can be read.
fn bar_style(template: &str) -> ProgressStyle {
    let rate = |state: &ProgressState, line: &mut dyn std::fmt::Write| {
        let _ = write!(line, "{}/s", number(state.per_sec()));
    };
    ProgressStyle::with_template(template)
        .expect("the template is a constant that parses")
        .with_key("rate", rate)
}

/// A bar over a known amount of work, with rate and time left.
pub(crate) fn progress(total: u64, what: &str, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = bar_style("  {msg} {bar:30} {human_pos}/{human_len} rows · {rate} · {eta} left");
    let bar =
        ProgressBar::with_draw_target(Some(total), target).with_style(style).with_message(what.to_string());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A bar over the steps of a training, with rate, time left and a message of what it finds.
pub(crate) fn training_bar(steps: u64, quiet: bool) -> ProgressBar {
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    // A message that does not fit is cut: a line that wraps is drawn again below itself.
    let style = bar_style("  {bar:24} {human_pos}/{human_len} · {rate} · {eta} left · {wide_msg}");
    let bar = ProgressBar::with_draw_target(Some(steps), target).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// 1234567 → "1,234,567".
pub(crate) fn count(n: usize) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with about four significant digits.
pub(crate) fn number(x: f64) -> String {
    match x.abs() {
        a if !x.is_finite() || a == 0.0 => format!("{x}"),
        a if a >= 1000.0 => format!("{x:.0}"),
        a if a >= 100.0 => format!("{x:.1}"),
        a if a >= 1.0 => format!("{x:.2}"),
        a if a >= 1e-3 => format!("{x:.4}"),
        _ => format!("{x:.2e}"),
    }
}

/// Seconds in the unit a person would use.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
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
    }

    #[test]
    fn columns_that_do_not_fit_go_below_with_the_first_one() {
        assert_eq!(bands(&[10, 5, 5, 5], 37), [vec![0, 1, 2, 3]]);
        assert_eq!(bands(&[10, 5, 5, 5], 36), [vec![0, 1, 2], vec![0, 3]]);
        assert_eq!(bands(&[10, 90, 5], 36), [vec![0, 1], vec![0, 2]], "one always fits");
        let rows = [vec!["hopper".to_string(), "1".into()]];
        assert_eq!(wide_table(&["", "k"], &rows).len(), 1);
    }

    #[test]
    fn words_stay_whole_in_a_narrow_terminal_and_sentences_do_not() {
        let path = "runs/amorel+sumo/my-logs/s0-1234abcd";
        let row = [path, "-0.36591", "12345.678", "a sentence of some length that must go on below"];
        let text = laid_out(&["run", "lowest", "highest", "what"], [row.map(String::from).to_vec()], 60);
        let text = text.to_string();
        assert!(row[..3].iter().all(|cell| text.contains(cell)), "{text}");
        assert!(!text.contains(row[3]) && text.lines().all(|line| line.chars().count() < 90), "{text}");
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
}
