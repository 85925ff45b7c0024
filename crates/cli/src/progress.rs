//! A training in the terminal: a bar, or JSON lines on stdout.

use indicatif::ProgressBar;
use offing::algorithms::{Event, Status};
use offing::data::resolve::DataEvent;
use offing_experiments::format::number;
use offing_experiments::runtime::EventView;

use crate::term;

/// Shows one training: a progress bar, or JSON lines.
pub(crate) fn view(quiet: bool, json: bool) -> EventView {
    let mut view = View { bar: None, json, quiet };
    Box::new(move |event| view.show(event))
}

/// The progress of a run in the terminal.
struct View {
    bar: Option<(Phase, ProgressBar)>,
    json: bool,
    quiet: bool,
}

/// What a bar counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Rows,
    Steps,
}

impl View {
    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Note(line) | Event::Data(DataEvent::Note(line)) => {
                if !self.json && !self.quiet {
                    self.say(line);
                }
            }
            Event::Warning(line) => self.say(line),
            Event::Data(DataEvent::Generated { name, rows, total }) => {
                self.bar(Phase::Rows, *total as u64, name).set_position(*rows as u64);
            }
            Event::Fit(p) => {
                let best = p.holdout.iter().copied().fold(f64::INFINITY, f64::min);
                let words =
                    format!("dynamics model: epoch {}, best hold-out error {}", p.epoch, number(best));
                self.bar(Phase::Steps, 0, "").set_message(words);
            }
            Event::Step(status) => self.step(status),
            Event::Recorded(metrics) if self.json => out!("{}", serde_json::json!(metrics)),
            Event::Recorded(_) | Event::Policy(..) => {}
        }
    }

    fn say(&self, line: &str) {
        match &self.bar {
            Some((_, bar)) => bar.suspend(|| term::step(line)),
            None => term::step(line),
        }
    }

    /// The bar of a phase; that of the phase before is cleared.
    fn bar(&mut self, phase: Phase, total: u64, name: &str) -> &ProgressBar {
        if self.bar.as_ref().is_none_or(|(shown, _)| *shown != phase) {
            self.clear();
            let template = if phase == Phase::Rows { term::ROWS_BAR } else { term::TRAINING_BAR };
            let bar = term::bar(template, total, self.quiet || self.json);
            self.bar = Some((phase, bar.with_message(name.to_string())));
        }
        let (_, bar) = self.bar.as_ref().expect("set just above");
        bar.set_length(total);
        bar
    }

    fn clear(&mut self) {
        self.bar.take().into_iter().for_each(|(_, bar)| bar.finish_and_clear());
    }

    fn step(&mut self, status: &Status) {
        let mut words = Vec::new();
        if let Some(value) = status.scores.last {
            let score = status.last_score.map_or(String::new(), |s| format!(" (score {s:.1})"));
            words.push(format!("return {}{score}", number(value)));
        }
        let l = &status.losses;
        if l.critic > 0.0 {
            words.push(format!("critic {} · Q {}", number(l.critic), number(l.q)));
        } else {
            words.push(format!("loss {}", number(l.actor)));
        }
        if let Some(rollout) = &status.rollout {
            words.extend(rollout.mean_score().map(|u| format!("u {u:.2}")));
            if rollout.truncated > 0 {
                let share = rollout.truncated as f64 / rollout.imagined.max(1) as f64;
                words.push(format!("cut {:.0} %", 100.0 * share));
            }
        }
        let bar = self.bar(Phase::Steps, status.steps, "");
        bar.set_position(status.step);
        bar.set_message(words.join(" · "));
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.clear();
    }
}
