//! How things look in the terminal: steps, tables, hints. Colours only where a terminal reads them and NO_COLOR is not set.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width};
use console::{Style, measure_text_width};
use offing::error::escaped;
use offing_experiments::{Document, Element, Table};

/// `println!` that does not mind when nobody reads any more (`offing data list | head -1`); any other trouble with the
/// output ends the program.
macro_rules! out {
    ($($words:tt)*) => { $crate::term::print(&format!($($words)*)) };
}

/// What [`out!`] calls. Names, keys and remarks of files are among the words: none of them speaks to the terminal.
pub(crate) fn print(text: &str) {
    use std::io::Write;
    let text = whole_words(&plain(text), terminal_width(), "  ");
    if let Err(error) = writeln!(std::io::stdout(), "{text}")
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        complain(&format!("cannot write the output: {error}"));
        std::process::exit(2);
    }
}

/// Text of several lines with everything escaped that is not a line's end.
pub(crate) fn plain(text: &str) -> String {
    text.split('\n').map(escaped).collect::<Vec<_>>().join("\n")
}

/// One line about what is being done, on stderr so that stdout stays clean for results.
pub(crate) fn step(line: &str) {
    let mark = if line.starts_with("warning:") { Style::new().yellow() } else { Style::new().cyan() };
    let line = whole_words(&format!("  {}", escaped(line)), stderr_width(), "  ");
    eprintln!("{}{}", mark.for_stderr().apply_to("·"), &line[1..]);
}

fn stderr_width() -> Option<u16> {
    console::Term::stderr().size_checked().map(|(_, columns)| columns)
}

/// The text with line breaks between words where a terminal of such a width would break one; further lines begin with
/// `hanging`, below the indentation of the first. Text for no terminal stays as it is.
pub(crate) fn whole_words(text: &str, width: Option<u16>, hanging: &str) -> String {
    let Some(width) = width.map(usize::from) else { return text.into() };
    let wrapped = |line: &str| {
        if measure_text_width(line) <= width {
            return line.to_string();
        }
        let indent = &line[..line.len() - line.trim_start().len()];
        let mut lines = vec![indent.to_string()];
        for word in line.split_whitespace() {
            let last = lines.last_mut().expect("one from the start");
            let is_new = last.trim().is_empty();
            if !is_new && measure_text_width(last) + 1 + measure_text_width(word) > width {
                lines.push(format!("{indent}{hanging}{word}"));
            } else {
                last.push_str(if is_new { "" } else { " " });
                last.push_str(word);
            }
        }
        lines.join("\n")
    };
    text.split('\n').map(wrapped).collect::<Vec<_>>().join("\n")
}

/// One line about what went wrong.
pub(crate) fn complain(line: &str) {
    let line = whole_words(&format!("error: {}", plain(line)), stderr_width(), "  ");
    let text = line.strip_prefix("error:").unwrap_or(&line);
    eprintln!("{}{text}", Style::new().red().bold().for_stderr().apply_to("error:"));
}

/// Commands to go on with, each with what it is for, on stdout below the results.
pub(crate) fn print_next(commands: &[(String, &str)]) {
    out!("next:");
    print_list(commands);
}

/// The columns of the terminal, where stdout is one.
pub(crate) fn terminal_width() -> Option<u16> {
    console::Term::stdout().size_checked().map(|(_, columns)| columns)
}

/// Commands in a column, and beside each what it is for; below it where the line would be too long.
pub(crate) fn print_list(commands: &[(String, &str)]) {
    let (bold, width) = (Style::new().bold(), usize::from(width()));
    let longest = |most: usize| {
        let lengths = commands.iter().map(|(command, _)| measure_text_width(command));
        lengths.filter(|length| *length <= most).max().unwrap_or(0)
    };
    let column = longest(width / 2);
    for (command, what) in commands {
        let padding = column.saturating_sub(measure_text_width(command));
        let beside = 4 + measure_text_width(command) + padding + what.chars().count() <= width;
        let between = if beside { " ".repeat(padding + 2) } else { "\n      ".into() };
        styled(&format!("  {}{between}{what}", bold.apply_to(plain(command))));
    }
}

/// Prints a line with styles of our own in it; all else in it must be escaped already.
fn styled(line: &str) {
    use std::io::Write;
    // As in `print`, but nobody computes with hints: trouble with them is no error.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A single rule under the header: tables are read, not boxed.
const RULE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// The width to lay tables out for: the terminal's, or a page's when there is none.
fn width() -> u16 {
    terminal_width().map_or(120, |columns| columns.max(60))
}

/// Prints a table whose first column is text and whose others are numbers.
pub(crate) fn print_table(table: &Table) {
    out!("{}", laid_out(table, width()));
}

/// Prints a table of text alone.
pub(crate) fn print_text_table(table: &Table) {
    let mut table = laid_out(table, width());
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Left);
    }
    out!("{table}");
}

/// Prints what a user at the terminal wants to see of a document: its title and its results, without figures.
pub(crate) fn print_results(document: &Document) {
    out!("{}", document.title);
    for element in &document.results {
        match element {
            Element::Heading(text) => out!("\n{text}"),
            Element::Table(table) => {
                let bands: Vec<String> =
                    in_bands(table, width()).iter().map(|band| laid_out(band, width()).to_string()).collect();
                out!("{}", bands.join("\n\n"));
            }
            Element::Text(text) | Element::Code(text) | Element::Lines(_, text) => out!("{text}"),
            Element::Figure(..)
            | Element::Drawing(..)
            | Element::Cards(_)
            | Element::Bars(..)
            | Element::Replay { .. } => {}
        }
    }
}

fn laid_out(table: &Table, width: u16) -> comfy_table::Table {
    let mut out = comfy_table::Table::new();
    out.load_style(RULE).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    let longest_word = |text: &str| text.split_whitespace().map(|w| w.chars().count()).max().unwrap_or(0);
    let cells = |row: &Vec<String>| row.iter().map(|cell| escaped(cell)).collect::<Vec<_>>();
    out.set_header(cells(&table.header)).add_rows(table.rows.iter().map(cells));
    for (i, column) in out.column_iter_mut().enumerate() {
        // A number or a path that is broken in two is neither read nor copied; lines too long for a terminal are.
        let whole = longest(table, i, longest_word) + usize::from(column.padding_width());
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(whole as u16)));
        if i > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    out
}

/// The longest cell of a column, its header included, as `length` counts.
fn longest(table: &Table, column: usize, length: impl Fn(&str) -> usize) -> usize {
    let cells = table.rows.iter().filter_map(|row| row.get(column)).chain([&table.header[column]]);
    cells.map(|cell| length(cell)).max().unwrap_or(0)
}

/// A table that may be too wide, as several below each other, each with the first column.
fn in_bands(table: &Table, width: u16) -> Vec<Table> {
    let widest = |c: usize| longest(table, c, |cell| cell.chars().count());
    let columns: Vec<usize> = (0..table.header.len()).map(widest).collect();
    let of = |band: Vec<usize>| {
        let pick = |row: &Vec<String>| -> Vec<String> {
            band.iter().map(|&c| row.get(c).cloned().unwrap_or_default()).collect()
        };
        Table::new(pick(&table.header), table.rows.iter().map(pick))
    };
    bands(&columns, width as usize).into_iter().map(of).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_do_not_fit_go_below_with_the_first_one() {
        assert_eq!(bands(&[10, 5, 5, 5], 37), [vec![0, 1, 2, 3]]);
        assert_eq!(bands(&[10, 5, 5, 5], 36), [vec![0, 1, 2], vec![0, 3]]);
        assert_eq!(bands(&[10, 90, 5], 36), [vec![0, 1], vec![0, 2]], "one always fits");
        let table = Table::new(["", "k"], [vec!["hopper".to_string(), "1".into()]]);
        assert_eq!(in_bands(&table, 60), [table]);
    }

    #[test]
    fn nothing_in_a_table_or_line_speaks_to_the_terminal() {
        let row = ["a\u{1b}[31m.csv".to_string(), "x\u{9b}2J\u{202e}y\nz".into()];
        let text = laid_out(&Table::new(["\u{7}name", "note"], [row.to_vec()]), 80).to_string();
        assert!(!text.replace('\n', "").contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
        assert!(text.contains("a\\u{1b}[31m.csv") && text.contains("y\\nz"), "{text}");
        assert_eq!(plain("one\ntwo\u{1b}]0;x\u{7}"), "one\ntwo\\u{1b}]0;x\\u{7}");
    }

    #[test]
    fn a_terminal_breaks_lines_between_words_and_a_pipe_does_not() {
        let text = "one\n  two three four five";
        assert_eq!(whole_words(text, Some(14), "  "), "one\n  two three\n    four five");
        assert_eq!(
            whole_words("  a-very-long-path/that/fits/nowhere x", Some(10), "  "),
            "  a-very-long-path/that/fits/nowhere\n    x"
        );
        assert_eq!(whole_words(text, None, "  "), text);
    }

    #[test]
    fn words_stay_whole_in_a_narrow_terminal_and_sentences_do_not() {
        let path = "runs/amorel+sumo/my-logs/s0-1234abcd";
        let row = [path, "-0.36591", "12345.678", "a sentence of some length that must go on below"];
        let table = Table::new(["run", "lowest", "highest", "what"], [row.map(String::from).to_vec()]);
        let text = laid_out(&table, 60).to_string();
        assert!(row[..3].iter().all(|cell| text.contains(cell)), "{text}");
        assert!(!text.contains(row[3]) && text.lines().all(|line| line.chars().count() < 90), "{text}");
    }
}
