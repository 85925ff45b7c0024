//! Files that hold less than they seem to: one row, the same row again and again, rows out of order, one reward, no
//! terminals left.

use super::super::super::Dataset;
use super::{AuditFinding, Severity, about, is_constant};

/// With fewer rows their order says nothing.
const FEWEST: usize = 20;

/// A log of one transition passes every check, because there is nothing to compare it with.
pub(super) fn single_row(data: &Dataset) -> AuditFinding {
    let rows: Vec<usize> = if data.rows.len() == 1 { vec![0] } else { Vec::new() };
    let detail =
        "one transition: too little to learn from, and the other checks have nothing to compare it with";
    about("single row", Severity::Note, &rows, detail)
}

/// Whether all rows are one and the same. Then it says little that its columns do not change.
pub(super) fn all_identical(data: &Dataset) -> bool {
    let b = &data.rows;
    let same = |i: usize| {
        b.obs.row(i) == b.obs.row(0)
            && b.act.row(i) == b.act.row(0)
            && b.next_obs.row(i) == b.next_obs.row(0)
            && b.rew[i] == b.rew[0]
    };
    b.len() > 1 && (1..b.len()).all(same)
}

pub(super) fn identical_rows(data: &Dataset) -> AuditFinding {
    let rows: Vec<usize> = if all_identical(data) { (0..data.rows.len()).collect() } else { Vec::new() };
    let detail = format!(
        "all {} rows are the same transition: the log holds one step; check the program that wrote it",
        data.rows.len()
    );
    about("identical rows", Severity::Note, &rows, detail)
}

/// Whether rows are out of order: hardly any of them goes on from the one before, and no mark says why.
pub(super) fn is_shuffled(data: &Dataset) -> bool {
    let unmarked = |i: &usize| !data.rows.done[*i] && !data.timeout[*i];
    let broken = super::inner_ends(data).filter(unmarked).count();
    let n = data.rows.len();
    n >= FEWEST && 2 * broken > n && !all_identical(data)
}

pub(super) fn shuffled_rows(data: &Dataset) -> AuditFinding {
    let rows: Vec<usize> = if is_shuffled(data) { super::inner_ends(data).collect() } else { Vec::new() };
    let detail = "the rows are shuffled or episodes are interleaved: the next state of most rows is not the state of the row \
         after them, so returns and lengths of episodes are unknown; sort by episode and step";
    about("shuffled rows", Severity::Note, &rows, detail)
}

pub(super) fn constant_reward(data: &Dataset) -> AuditFinding {
    let rew = &data.rows.rew;
    let rows: Vec<usize> =
        if is_constant(rew.view()) && !all_identical(data) { (0..rew.len()).collect() } else { Vec::new() };
    let why = match data.reading.dropped_terminals {
        0 => "is this the right column?".into(),
        n => format!("was it earned in the {n} terminal rows that had to be dropped?"),
    };
    let reward = rew.first().unwrap_or(&0.0);
    let detail = format!("every reward is {reward}, so no policy is better than another; {why}");
    about("constant reward", Severity::Note, &rows, detail)
}

/// Terminal rows that the reader had to leave out. Their rewards are gone, and so is what a terminal looks like.
pub(super) fn dropped_terminals(data: &Dataset) -> AuditFinding {
    let dropped = data.reading.dropped_terminals;
    let left = match data.rows.done.iter().any(|&done| done) {
        true => "",
        false => ", and none is left: a model cannot learn where episodes end",
    };
    let (are, them) = if dropped == 1 { ("row is", "it") } else { ("rows are", "them") };
    let detail = format!(
        "{dropped} terminal {are} not used, because the file has no next state for {them}{left}; add next_obs"
    );
    let severity = if dropped > 0 { Severity::Note } else { Severity::Ok };
    let detail = if dropped > 0 { detail } else { String::new() };
    AuditFinding { check: "dropped terminals", severity, count: dropped, first_row: None, detail }
}
