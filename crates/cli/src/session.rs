//! A training in the terminal: its progress, and Ctrl-C.

use indicatif::ProgressBar;
use offing::algorithms::{Event, Status};
use offing::data::resolve::DataEvent;
use offing::run::ControlFlow;
use offing::train::Hooks;

use crate::context::Context;
use crate::{signals, term};

/// What surrounds a training started from the command line: MuJoCo, a progress bar or JSON lines on stdout, and a stop at
/// the first Ctrl-C.
pub(crate) fn hooks(context: &Context, json: bool) -> Hooks<'_> {
    signals::listen();
    let mut view = View { bar: None, json, shown: None, context };
    Hooks {
        catalogue: context.catalogue.clone(),
        program: crate::version(),
        ..Hooks::new(context.home().root())
            .with_simulators(&context.mujoco)
            .with_events(move |event: Event<'_>| {
                view.show(&event);
                if signals::asked_to_stop() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
    }
}

/// The progress of a run in the terminal.
struct View<'a> {
    bar: Option<(Phase, ProgressBar)>,
    json: bool,
    /// The step of the evaluation that was shown last.
    shown: Option<u64>,
    context: &'a Context,
}

/// What a bar counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Rows,
    Steps,
}

impl View<'_> {
    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Note(line) | Event::Data(DataEvent::Note(line)) => self.note(line),
            Event::Data(DataEvent::Generated { name, rows, total }) => {
                self.bar(Phase::Rows, *total as u64, name).set_position(*rows as u64);
            }
            Event::Fit(p) => {
                let best = p.holdout.iter().copied().fold(f64::INFINITY, f64::min);
                let words =
                    format!("dynamics model: epoch {}, best hold-out error {}", p.epoch, term::number(best));
                self.bar(Phase::Steps, 0, "").set_message(words);
            }
            Event::Step(status) => self.step(status),
        }
    }

    fn note(&self, line: &str) {
        match &self.bar {
            _ if self.json => {}
            Some((_, bar)) => bar.suspend(|| self.context.say(line)),
            None => self.context.say(line),
        }
    }

    /// The bar of a phase; that of the phase before is cleared.
    fn bar(&mut self, phase: Phase, total: u64, name: &str) -> &ProgressBar {
        if self.bar.as_ref().is_none_or(|(shown, _)| *shown != phase) {
            let quiet = self.context.quiet || self.json;
            let bar = match phase {
                Phase::Rows => term::progress(total, name, quiet),
                Phase::Steps => term::training_bar(total, quiet),
            };
            self.clear();
            self.bar = Some((phase, bar));
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
            words.push(format!("return {}{score}", term::number(value)));
        }
        let l = &status.losses;
        if l.critic > 0.0 {
            words.push(format!("critic {} · Q {}", term::number(l.critic), term::number(l.q)));
        } else {
            words.push(format!("loss {}", term::number(l.actor)));
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
        if self.json && status.evaluated != self.shown {
            self.shown = status.evaluated;
            let (last, best) = (status.scores.last, status.scores.best);
            let line = serde_json::json!({ "step": status.evaluated, "return": last, "best": best, "score": status.last_score });
            out!("{line}");
        }
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}
