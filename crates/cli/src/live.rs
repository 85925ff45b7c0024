//! One live line for what is going on: how far, how fast, how much longer, and what was found on the way.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use console::{Style, Term, measure_text_width};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use offing::error::escaped;
use offing_experiments::format::{count, duration};

/// Columns of the bar itself; fewer in a narrow terminal.
const BAR: usize = 20;

/// What a line counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Things with a name, such as rows.
    Count(&'static str),
    /// Bytes of a file.
    Bytes,
}

/// A line on stderr that is drawn again as the work goes on. Nothing where stderr is no terminal.
pub(crate) struct LiveLine {
    bar: ProgressBar,
    findings: Arc<Mutex<Vec<String>>>,
}

impl LiveLine {
    /// A line for work of `total` pieces, where that is known.
    pub(crate) fn new(label: &str, unit: Unit, total: Option<u64>, quiet: bool) -> Self {
        let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let findings = Arc::new(Mutex::new(Vec::new()));
        let (label, shown) = (escaped(label), Arc::clone(&findings));
        let draw = move |state: &ProgressState, line: &mut dyn std::fmt::Write| {
            let amount = Amount {
                done: state.pos(),
                total: state.len(),
                rate: state.per_sec(),
                left: state.eta().as_secs_f64(),
                unit,
            };
            let findings = shown.lock().unwrap_or_else(PoisonError::into_inner);
            // The last column stays free: some terminals wrap there.
            let width = usize::from(Term::stderr().size().1).saturating_sub(1);
            let _ = write!(
                line,
                "{}",
                compose(&label, &amount, &findings, width, &Style::new().cyan().for_stderr())
            );
        };
        let style = ProgressStyle::with_template("{line}").expect("the template is a constant that parses");
        let bar = ProgressBar::with_draw_target(total, target).with_style(style.with_key("line", draw));
        bar.enable_steady_tick(Duration::from_millis(300));
        Self { bar, findings }
    }

    /// So much is done. What was done before the first call is not counted as this process's speed.
    pub(crate) fn set(&self, done: u64, total: Option<u64>) {
        let first = self.bar.position() == 0 && done > 1;
        total.into_iter().for_each(|total| self.bar.set_length(total));
        self.bar.set_position(done);
        if first {
            self.bar.reset_eta();
        }
    }

    /// What was found, the most interesting first: what does not fit is left out from the end.
    pub(crate) fn show(&self, findings: Vec<String>) {
        *self.findings.lock().unwrap_or_else(PoisonError::into_inner) = findings;
    }

    /// Prints something above the line.
    pub(crate) fn above(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Takes the line away.
    pub(crate) fn clear(self) {
        self.bar.finish_and_clear();
    }
}

/// How far the work is.
struct Amount {
    done: u64,
    total: Option<u64>,
    /// Pieces a second, 0 while unknown.
    rate: f64,
    /// Seconds.
    left: f64,
    unit: Unit,
}

impl Amount {
    fn of(&self, pieces: f64) -> String {
        match self.unit {
            Unit::Bytes => format!("{:.1} MB", pieces / 1e6),
            Unit::Count(_) if pieces >= 10.0 => count(pieces.round() as usize),
            Unit::Count(_) => format!("{pieces:.1}"),
        }
    }

    /// `3,400/12,000 updates`, or without the unit.
    fn progress(&self, unit: bool) -> String {
        let so_far = |pieces: u64| match self.unit {
            Unit::Bytes => self.of(pieces as f64),
            Unit::Count(_) => count(pieces as usize),
        };
        let name = match self.unit {
            Unit::Count(name) if unit => format!(" {name}"),
            _ => String::new(),
        };
        match self.total {
            Some(total) => format!("{}/{}{name}", so_far(self.done), so_far(total)),
            None => format!("{}{name}", so_far(self.done)),
        }
    }

    /// The speed and, where the end is known, the time until then; nothing before anything is known.
    fn speed(&self) -> Vec<String> {
        if !self.rate.is_finite() || self.rate <= 0.0 {
            return Vec::new();
        }
        let left = match self.left {
            seconds if seconds < 100.0 => format!("{seconds:.0} s left"),
            seconds => format!("{} left", duration(seconds)),
        };
        let ends = self.total.is_some_and(|total| total > self.done);
        [format!("{}/s", self.of(self.rate))].into_iter().chain(ends.then_some(left)).collect()
    }
}

/// The line, of whole words, at most `width` columns wide where its label and numbers allow. How far, how fast, how long and
/// the first finding matter most: the bar is smaller, and goes, before one of them does.
fn compose(label: &str, amount: &Amount, findings: &[String], width: usize, paint: &Style) -> String {
    let bar = |columns: usize| match amount.total {
        Some(total) if total > 0 && columns > 0 => {
            let full = (amount.done.min(total) as f64 / total as f64 * columns as f64) as usize;
            format!("{}{} ", paint.apply_to("━".repeat(full)), "─".repeat(columns - full))
        }
        _ => String::new(),
    };
    let of = |columns: usize, unit: bool| {
        let start = format!("  {label} {}{}", bar(columns), amount.progress(unit));
        [start]
            .into_iter()
            .chain(amount.speed())
            .chain(findings.first().cloned())
            .collect::<Vec<_>>()
            .join(" · ")
    };
    let fits = |line: &String| measure_text_width(line) <= width;
    let sizes = [(BAR, true), (BAR / 2, true), (BAR / 2, false), (BAR / 4, false), (0, false)];
    let mut line = match sizes.into_iter().map(|(columns, unit)| of(columns, unit)).find(fits) {
        Some(line) => line,
        None => format!("  {label} {}", amount.progress(false)),
    };
    for part in findings.iter().skip(1) {
        let longer = format!("{line} · {part}");
        if !fits(&longer) {
            break;
        }
        line = longer;
    }
    line
}

/// How many values a sparkline has room for in this terminal.
pub(crate) fn sparkline_length() -> usize {
    if Term::stderr().size().1 < 100 { 8 } else { 16 }
}

/// Values as a row of bars, the last `most` of them, between the smallest and the largest of them and of `beside`.
pub(crate) fn sparkline(values: &[f64], beside: Option<f64>, most: usize) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values = &values[values.len().saturating_sub(most)..];
    let finite = || values.iter().copied().chain(beside).filter(|x| x.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let level = |x: f64| match high - low {
        _ if !x.is_finite() => ' ',
        range if range <= 0.0 => LEVELS[3],
        range => LEVELS[((x - low) / range * 7.0).round() as usize],
    };
    values.iter().map(|&x| level(x)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(done: u64, total: Option<u64>, rate: f64, left: f64) -> Amount {
        Amount { done, total, rate, left, unit: Unit::Count("updates") }
    }

    #[test]
    fn a_line_says_how_far_how_fast_and_how_long_in_whole_words() {
        let findings = ["score 83.0 ▁▄█ (data 57.4)".to_string(), "u 0.52".into(), "critic 0.01".into()];
        let of = |width: usize| {
            compose("learning", &amount(3400, Some(12_000), 85.4, 130.0), &findings, width, &Style::new())
        };
        let (speed, score) = ("85/s · 2 min left", "score 83.0 ▁▄█ (data 57.4)");
        let wide = format!(
            "  learning ━━━━━─────────────── 3,400/12,000 updates · {speed} · {score} · u 0.52 · critic 0.01"
        );
        assert_eq!(of(130), wide);
        assert_eq!(
            of(80),
            format!("  learning ━──── 3,400/12,000 · {speed} · {score}"),
            "numbers stay, the bar gives way"
        );
        for width in 24..130 {
            let line = of(width);
            assert!(line.chars().count() <= width, "{width}: {line}");
            assert!(
                line.split(" · ").skip(1).all(|part| wide.split(" · ").any(|whole| whole == part)),
                "{line}"
            );
        }
    }

    #[test]
    fn nothing_is_said_of_a_speed_that_is_not_known() {
        let line = |a: &Amount| compose("model", a, &[], 100, &Style::new());
        assert_eq!(line(&amount(0, Some(10), 0.0, 0.0)), format!("  model {} 0/10 updates", "─".repeat(20)));
        assert_eq!(line(&amount(7, None, 250.0, 0.0)), "  model 7 updates · 250/s");
        assert_eq!(
            line(&amount(10, Some(10), 250.0, 0.0)),
            format!("  model {} 10/10 updates · 250/s", "━".repeat(20))
        );
        let bytes = Amount { unit: Unit::Bytes, ..amount(1_500_000, Some(3_000_000), 1e6, 1.5) };
        assert!(line(&bytes).ends_with("1.5 MB/3.0 MB · 1.0 MB/s · 2 s left"), "{}", line(&bytes));
    }

    #[test]
    fn a_sparkline_shows_the_last_values_beside_a_mark() {
        assert_eq!(sparkline(&[0.0, 1.0, 7.0], None, 8), "▁▂█");
        assert_eq!(sparkline(&[0.0, 1.0, 7.0], Some(14.0), 8), "▁▂▅", "the scale holds the data's score too");
        assert_eq!(sparkline(&[9.0, 0.0, 1.0], None, 2), "▁█");
        assert_eq!(sparkline(&[3.0, f64::NAN], None, 8), "▄ ");
        assert_eq!(sparkline(&[], None, 8), "");
    }
}
