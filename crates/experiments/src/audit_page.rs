//! An audit as a page: the verdict, what was found, episodes over the file, columns.

use offing::data::Dataset;
use offing::data::audit::{Audit, AuditFinding, ColumnStatistics, Severity};

use crate::document::Card;
use crate::format::{count, counted, number};
use crate::plot::{Axis, Plot, Series};
use crate::table::{Table, row};
use crate::{Document, Element};

/// Episodes drawn at most: enough to see how a log went on.
const EPISODES: usize = 3000;

/// The audit for readers. `command` is how to make it again.
pub fn document(data: &Dataset, audit: &Audit, columns: &[ColumnStatistics], command: &str) -> Document {
    let mut page = Document::new(format!("Audit of {}", audit.name));
    let (verdict, lead) = match audit.verdict() {
        Severity::Poison => {
            ("POISON", "A dynamics model or a neighbour index would learn some of these rows as facts.")
        }
        Severity::Note => ("usable", "Nothing here would poison a model; some things are worth knowing."),
        Severity::Ok => ("clean", "No check found anything."),
    };
    page.intro.push(Element::text(lead));
    page.intro.push(Element::Code(command.into()));
    page.intro.push(Element::text(format!("Next states: {}.", audit.reading.next_obs)));
    let left_out =
        audit.reading.dropped.iter().map(|(why, rows)| format!("Left out: {} rows, {why}.", count(*rows)));
    let notes = audit.reading.notes.iter().map(|note| format!("Note: {note}."));
    page.intro.extend(left_out.chain(notes).map(Element::Text));
    let mut cards = vec![
        Card { main: true, ..Card::new("verdict", verdict, counted(audit.findings.len(), "check")) },
        Card::new("transitions", count(audit.rows), format!("{} + {} columns", audit.obs_dim, audit.act_dim)),
        Card::new(
            "episodes",
            count(data.episodes.len()),
            format!("{} terminals, {} timeouts", count(audit.terminals), count(audit.timeouts)),
        ),
    ];
    cards.extend(audit.episode_return.map(|r| {
        Card::new("mean return", number(r.mean), format!("{} to {}", number(r.min), number(r.max)))
    }));
    cards.extend(
        audit
            .behaviour_score
            .map(|s| Card::new("normalised score", format!("{s:.1}"), "0 random, 100 expert")),
    );
    page.results.push(Element::Cards(cards));
    let (clean, found): (Vec<&AuditFinding>, Vec<_>) =
        audit.findings.iter().partition(|f| f.severity == Severity::Ok);
    if !found.is_empty() {
        let line = |f: &&AuditFinding| {
            let mark = if f.severity == Severity::Poison { "POISON" } else { "note" };
            row(
                f.check,
                [mark.into(), count(f.count), f.first_row.map_or("-".into(), count), f.detail.clone()],
            )
        };
        let table = Table::new(["check", "", "rows", "first", "what it means"], found.iter().map(line));
        page.results.extend(Element::section("Findings", Element::Table(table.without_empty_columns())));
    }
    let clean: Vec<&str> = clean.iter().map(|f| f.check).collect();
    page.results.push(Element::text(format!("Nothing found by: {}.", clean.join(", "))));
    page.results.push(Element::heading("Episodes over the file"));
    let rewards = |e: &std::ops::Range<usize>| e.clone().map(|i| f64::from(data.rows.rew[i])).sum::<f64>();
    page.results.push(over_file("return", "Undiscounted, one dot an episode.", data, rewards));
    page.results.push(over_file("length", "Steps, one dot an episode.", data, |e| e.len() as f64));
    let header = ["column", "min", "1 %", "median", "mean", "sd", "99 %", "max"];
    let cells = |c: &ColumnStatistics| {
        let values = [c.min, c.p1, c.median, c.mean, c.std, c.p99, c.max];
        row(&c.column, values.map(|x| if x.is_nan() { "-".into() } else { number(x) }))
    };
    page.details
        .extend(Element::section("Columns", Element::Table(Table::new(header, columns.iter().map(cells)))));
    page
}

fn over_file(
    what: &str,
    caption: &str,
    data: &Dataset,
    of: impl Fn(&std::ops::Range<usize>) -> f64,
) -> Element {
    let every = data.episodes.len().div_ceil(EPISODES).max(1);
    let points = data.episodes.iter().enumerate().step_by(every).map(|(i, e)| (i as f64, of(e))).collect();
    let plot = Plot::new(
        format!("{what}s of episodes"),
        Axis::linear("episode"),
        Axis::linear(what),
        vec![Series::scatter("", points)],
    );
    Element::figure(plot, caption)
}

#[cfg(test)]
mod tests {
    use super::*;
    use offing::data::LogColumns;
    use offing::data::audit::audit;

    #[test]
    fn a_page_begins_with_the_verdict_and_has_every_column() {
        let states = |later: usize| {
            ndarray::Array2::from_shape_fn((60, 2), |(i, j)| (i % 20 + later + j) as f32 * 0.1)
        };
        let columns = LogColumns {
            next_obs: Some(states(1)),
            rew: ndarray::Array1::ones(60),
            done: (0..60).map(|i| i % 20 == 19).collect(),
            act: ndarray::Array2::zeros((60, 1)),
            obs: states(0),
            timeout: None,
        };
        let data = Dataset::from_columns("mine", columns).unwrap();
        let page = document(
            &data,
            &audit(&data, None),
            &ColumnStatistics::of(&data),
            "offing data audit mine -o page.html",
        );
        let Element::Cards(cards) = &page.results[0] else { panic!("cards") };
        assert_eq!((cards[0].name.as_str(), cards[2].value.as_str()), ("verdict", "3"));
        let html = page.html();
        assert!(html.contains("\"y\":[20,20,20]"), "three episodes of twenty rewards, one each");
        assert!(html.contains("obs[1]") && html.contains("act[0]"));
        // The page's code knows the word, too.
        assert!(!["[NaN", ",NaN", ">NaN"].iter().any(|bad| html.contains(bad)));
    }
}
