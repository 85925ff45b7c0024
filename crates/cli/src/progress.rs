//! A training in the terminal: one live line for each phase, or JSON lines on stdout.

use offing::algorithms::{Event, Status};
use offing::data::resolve::DataEvent;
use offing::dynamics::FitProgress;
use offing_experiments::format::number;
use offing_experiments::runtime::EventView;
use serde_json::{Map, Value};

use crate::live::{LiveLine, Unit, sparkline, sparkline_length};
use crate::term;

/// Shows one training: live lines, or JSON lines.
pub(crate) fn view(quiet: bool, json: bool) -> EventView {
    let mut view = View { line: None, json, quiet, errors: Vec::new(), worth: Worth::default() };
    Box::new(move |event| view.show(event))
}

/// The progress of a run in the terminal.
struct View {
    line: Option<(Phase, LiveLine)>,
    json: bool,
    quiet: bool,
    /// Hold-out errors of the model, one for each epoch.
    errors: Vec<f64>,
    /// What policies on the way were worth.
    worth: Worth,
}

/// What a line counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Rows,
    Model,
    Learning,
}

/// What the evaluated policies and the data are worth, on one scale.
#[derive(Default)]
struct Worth {
    data_return: Option<f64>,
    data_score: Option<f64>,
    scale: Option<Scale>,
    values: Vec<f64>,
}

/// Where a number about a policy comes from, the most telling first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    Score,
    Return,
    ModelReturn,
}

impl Worth {
    /// Takes down a line of metrics.
    fn record(&mut self, metrics: &Map<String, Value>) {
        let number = |key: &str| metrics.get(key).and_then(Value::as_f64);
        let found = [
            (Scale::Score, number("score")),
            (Scale::Return, number("return")),
            (Scale::ModelReturn, number("model_return")),
        ];
        let Some((scale, value)) = found.into_iter().find_map(|(scale, value)| Some((scale, value?))) else {
            return;
        };
        if self.scale.replace(scale) != Some(scale) {
            self.values.clear();
        }
        self.values.push(value);
    }

    /// `score 83.0 ▁▄█ (data 57.4)`.
    fn words(&self) -> Option<String> {
        let (scale, last) = (self.scale?, *self.values.last()?);
        let (name, data) = match scale {
            Scale::Score => ("score", self.data_score),
            Scale::Return => ("return", self.data_return),
            Scale::ModelReturn => ("return in the model", self.data_return),
        };
        let text = |x: f64| if scale == Scale::Score { format!("{x:.1}") } else { number(x) };
        let data_words = data.map(|data| format!(" (data {})", text(data))).unwrap_or_default();
        Some(format!(
            "{name} {} {}{data_words}",
            text(last),
            sparkline(&self.values, data, sparkline_length())
        ))
    }
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
                self.line(Phase::Rows, name, "rows").set(*rows as u64, Some(*total as u64));
            }
            Event::Behaviour { mean_return, score } => {
                (self.worth.data_return, self.worth.data_score) = (*mean_return, *score);
            }
            Event::Fit(progress) => self.fit(progress),
            Event::Step(status) => self.step(status),
            // Of all else, lines of metrics are shown.
            other => {
                if let Event::Recorded(metrics) = other {
                    self.worth.record(metrics);
                    if self.json {
                        out!("{}", serde_json::json!(metrics));
                    }
                }
            }
        }
    }

    fn say(&self, text: &str) {
        match &self.line {
            Some((_, line)) => line.above(|| term::step(text)),
            None => term::step(text),
        }
    }

    /// The line of a phase; that of the phase before is taken away.
    fn line(&mut self, phase: Phase, label: &str, unit: &'static str) -> &LiveLine {
        if self.line.as_ref().is_none_or(|(shown, _)| *shown != phase) {
            self.clear();
            self.line = Some((phase, LiveLine::new(label, Unit::Count(unit), None, self.quiet || self.json)));
        }
        &self.line.as_ref().expect("set just above").1
    }

    fn clear(&mut self) {
        self.line.take().into_iter().for_each(|(_, line)| line.clear());
    }

    fn fit(&mut self, progress: &FitProgress) {
        let best = progress.best.iter().copied().fold(f64::INFINITY, f64::min);
        if progress.epoch_ended {
            self.errors.push(progress.holdout.iter().copied().fold(f64::INFINITY, f64::min));
        }
        let error = best.is_finite().then(|| {
            format!("hold-out error {} {}", number(best), sparkline(&self.errors, None, sparkline_length()))
        });
        let epoch = format!("epoch {}", progress.epoch + u64::from(!progress.epoch_ended));
        let line = self.line(Phase::Model, "model", "updates");
        line.set(progress.updates, progress.most_updates);
        line.show(error.into_iter().chain([epoch]).collect());
    }

    fn step(&mut self, status: &Status) {
        let mut words: Vec<String> = self.worth.words().into_iter().collect();
        if let Some(rollout) = &status.rollout {
            words.extend(rollout.mean_score().map(|u| format!("u {u:.2}")));
            if rollout.truncated > 0 {
                let share = rollout.truncated as f64 / rollout.imagined.max(1) as f64;
                words.push(format!("cut {:.0} %", 100.0 * share));
            }
        }
        let l = &status.losses;
        if l.critic > 0.0 {
            words.extend([format!("critic {}", number(l.critic)), format!("Q {}", number(l.q))]);
        } else {
            words.push(format!("loss {}", number(l.actor)));
        }
        let line = self.line(Phase::Learning, "learning", "steps");
        line.set(status.step, Some(status.steps));
        line.show(words);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let learnt = matches!(self.line, Some((Phase::Learning, _)));
        self.clear();
        // What the line showed last stays to be read.
        if let Some(words) =
            self.worth.words().filter(|_| learnt && self.worth.values.len() > 1 && !self.quiet)
        {
            term::step(&words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(worth: &mut Worth, pairs: &[(&str, f64)]) {
        worth.record(&pairs.iter().map(|(key, value)| (key.to_string(), serde_json::json!(value))).collect());
    }

    #[test]
    fn policies_are_shown_on_one_scale_beside_the_data() {
        let mut worth = Worth { data_return: Some(1000.0), data_score: Some(30.0), ..Worth::default() };
        assert_eq!(worth.words(), None);
        for score in [10.0, 80.0] {
            recorded(&mut worth, &[("score", score), ("return", 33.0 * score), ("model_return", 5.0)]);
        }
        assert_eq!(worth.words().unwrap(), "score 80.0 ▁█ (data 30.0)");
        let mut own = Worth { data_return: Some(540.0), ..Worth::default() };
        recorded(&mut own, &[("critic_loss", 1.0)]);
        assert_eq!(own.words(), None, "no simulator and no model: nothing to show");
        recorded(&mut own, &[("model_return", 553.2)]);
        assert_eq!(own.words().unwrap(), "return in the model 553.2 █ (data 540.0)");
    }
}
