//! A table of text: what the terminal, pages, Markdown, LaTeX and CSV files all show.

use serde::Serialize;

/// A header and rows of cells. The first column is text, the others are numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Names of the columns.
    pub header: Vec<String>,
    /// Cells, one for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table of these rows.
    pub fn new<S: Into<String>>(
        header: impl IntoIterator<Item = S>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: rows.into_iter().collect() }
    }

    /// A table whose last column is the paper's; without it where the paper has none of these numbers.
    pub(crate) fn with_paper(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        let mut table = Self::new(header.iter().copied(), rows);
        if !table.rows.iter().any(|row| row.last().is_some_and(|cell| cell != "-")) {
            table.header.pop();
            table.rows.iter_mut().for_each(|row| drop(row.pop()));
        }
        table
    }

    /// The table without columns in which every cell is a dash; the first column stays.
    pub fn without_empty_columns(mut self) -> Self {
        let kept: Vec<bool> =
            (0..self.header.len()).map(|i| i == 0 || self.rows.iter().any(|row| row[i] != "-")).collect();
        for cells in self.rows.iter_mut().chain([&mut self.header]) {
            let mut kept = kept.iter();
            cells.retain(|_| *kept.next().unwrap_or(&true));
        }
        self
    }

    /// As a CSV file.
    pub fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let mut write =
            |row: &[String]| writer.write_record(row).expect("rows have one width, memory takes all");
        write(&self.header);
        self.rows.iter().for_each(|row| write(row));
        let bytes = writer.into_inner().expect("memory takes all");
        String::from_utf8(bytes).expect("every cell is text")
    }
}

/// A first cell, then others: one row of a table.
pub(crate) fn row(first: impl Into<String>, rest: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(first.into()).chain(rest).collect()
}

/// A number as a field of a CSV file; nothing where there is none.
pub(crate) fn csv_number(x: impl Into<Option<f64>>) -> String {
    x.into().filter(|x| x.is_finite()).map_or(String::new(), |x| x.to_string())
}

/// A choice as the word its files use.
pub(crate) fn file_word(choice: impl Serialize) -> String {
    serde_json::to_value(choice).ok().and_then(|v| v.as_str().map(str::to_string)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be_and_unknown_numbers_are_empty() {
        let table = Table::new(["a", "b"], [row("x,\"y\"", [csv_number(f64::NAN)])]);
        assert_eq!(table.csv(), "a,b\n\"x,\"\"y\"\"\",\n");
        assert_eq!([csv_number(52.0), csv_number(None)], ["52", ""]);
    }

    #[test]
    fn a_column_of_dashes_alone_is_left_out() {
        let cells = |a: &str, b: &str| vec!["x".to_string(), a.into(), b.into()];
        let table = Table::new(["", "a", "b"], [cells("-", "-"), cells("-", "1")]).without_empty_columns();
        assert_eq!(
            (table.header, table.rows[1].clone()),
            (vec![String::new(), "b".into()], vec!["x".to_string(), "1".into()])
        );
    }

    #[test]
    fn a_table_without_any_number_of_the_papers_has_no_column_for_them() {
        let cells = |paper: &str| vec!["mopo".to_string(), "1.0".into(), paper.into()];
        let width = |rows: Vec<Vec<String>>| {
            let table = Table::with_paper(&["", "ours", "paper"], rows);
            (table.header.len(), table.rows[0].len())
        };
        assert_eq!(width(vec![cells("-"), cells("2.0")]), (3, 3));
        assert_eq!(width(vec![cells("-"), cells("-")]), (2, 2));
    }
}
