//! Audits and columns as text.

use offing::data::audit::{Audit, ColumnStatistics, Severity, Statistics};
use offing::data::catalogue::Origin;
use offing_experiments::Table;
use offing_experiments::format::{count, counted, number};

use crate::term::{print_table, print_text_table};

/// Prints an audit for a reader: what the file holds, how it was read, what was found.
pub(crate) fn print_audit(audit: &Audit, origin: Origin) {
    out!("{} ({origin})", audit.name);
    let (transitions, obs, act) = (counted(audit.rows, "transition"), audit.obs_dim, audit.act_dim);
    let ends = format!("{} terminals, {} timeouts", count(audit.terminals), count(audit.timeouts));
    out!("{transitions}, observations {obs} wide, actions {act} wide, {ends}");
    out!("next states: {}", audit.reading.next_obs);
    for (why, rows) in &audit.reading.dropped {
        out!("left out:    {} rows, {why}", count(*rows));
    }
    for note in &audit.reading.notes {
        out!("note:        {note}");
    }
    let columns = [
        ("reward", Some(audit.reward)),
        ("episode return", audit.episode_return),
        ("episode length", audit.episode_length),
    ];
    let rows = columns.iter().filter_map(|(name, s)| s.map(|s| statistics_row(name, &s)));
    print_table(&Table::new(["", "count", "mean", "std", "min", "p25", "median", "p75", "max"], rows));
    if let Some(score) = audit.behaviour_score {
        out!("normalised score of the behaviour policy: {score:.1} (D4RL: 0 = random, 100 = expert)");
    }
    let (clean, found): (Vec<_>, Vec<_>) = audit.findings.iter().partition(|f| f.severity == Severity::Ok);
    let rows = found.iter().map(|f| {
        let mark = if f.severity == Severity::Poison { "POISON" } else { "note" };
        let first = f.first_row.map_or("-".into(), count);
        vec![mark.to_string(), f.check.to_string(), count(f.count), first, f.detail.clone()]
    });
    if !found.is_empty() {
        print_text_table(&Table::new(["", "check", "rows", "first", "what it means"], rows));
    }
    let clean: Vec<&str> = clean.iter().map(|f| f.check).collect();
    out!("nothing found: {}", clean.join(", "));
    // A column that may be misspelt is nothing wrong with the rows, but nothing to call clean either.
    let misspelt = audit.reading.notes.iter().any(|note| note.contains("did you mean"));
    match audit.verdict() {
        Severity::Poison => {
            out!("verdict: POISON. A dynamics model or a neighbour index would learn these rows as facts.")
        }
        Severity::Ok if !misspelt => out!("verdict: clean."),
        _ => out!("verdict: usable, with the notes above."),
    }
}

fn statistics_row(name: &str, s: &Statistics) -> Vec<String> {
    let values = [s.mean, s.std, s.min, s.p25, s.median, s.p75, s.max].map(number);
    [name.to_string(), count(s.count)].into_iter().chain(values).collect()
}

/// Most columns that are printed unless all are asked for: those of the widest MuJoCo body but the ant.
const SHOWN: usize = 26;

/// Prints what each column holds; the first ones of a wide dataset, and what is remarkable about the others.
pub(crate) fn print_columns(columns: &[ColumnStatistics], all: bool) {
    let shown = if all || columns.len() <= SHOWN { columns.len() } else { SHOWN - 1 };
    print_table(&Table::new(
        ["column", "min", "1 %", "median", "mean", "sd", "99 %", "max", ""],
        columns[..shown].iter().map(column_row),
    ));
    let hidden = &columns[shown..];
    if hidden.is_empty() {
        return;
    }
    let constant = hidden.iter().filter(|c| c.is_constant()).count();
    let spoilt = hidden.iter().filter(|c| c.non_finite > 0.0).count();
    let kinds = [(constant, "constant"), (spoilt, "with values that are no numbers")];
    let kinds: Vec<String> =
        kinds.iter().filter(|(n, _)| *n > 0).map(|(n, kind)| format!(", {} {kind}", count(*n))).collect();
    out!("and {}{} (--all-columns)", counted(hidden.len(), "more column"), kinds.concat());
}

fn column_row(c: &ColumnStatistics) -> Vec<String> {
    let values = [c.min, c.p1, c.median, c.mean, c.std, c.p99, c.max]
        .map(|x| if x.is_nan() { "-".into() } else { number(x) });
    let mut remarks = Vec::new();
    match c.distinct {
        Some(1) => remarks.push("constant".to_string()),
        Some(n) => remarks.push(format!("{n} values")),
        None => (),
    }
    if c.non_finite > 0.0 {
        remarks.push(format!("{} % NaN or infinite", number(100.0 * c.non_finite)));
    }
    [c.column.clone()].into_iter().chain(values).chain([remarks.join(", ")]).collect()
}
