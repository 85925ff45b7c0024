//! Where the time of a run goes. The only timer in the library; its readings never reach the metrics.

use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::TIMING;

/// Time spent by phase, over all processes that worked on a run.
#[derive(Clone, Debug)]
pub struct PhaseTimer {
    started: Instant,
    /// Seconds of the processes before.
    before: f64,
    phases: Vec<(Cow<'static, str>, Duration)>,
}

impl Default for PhaseTimer {
    fn default() -> Self {
        Self { started: Instant::now(), before: 0.0, phases: Vec::new() }
    }
}

impl PhaseTimer {
    /// A timer that resumes from the run at `path`, or starts from 0 without a readable file there. It lacks what a killed process
    /// did after its last checkpoint.
    pub fn resume(path: &Path) -> Self {
        let kept = std::fs::read(path.join(TIMING)).ok();
        let kept: Value = kept.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let seconds =
            |v: &Value| v.as_f64().and_then(|s| Duration::try_from_secs_f64(s).ok()).unwrap_or_default();
        let phases = kept["phases"].as_object().into_iter().flatten();
        Self {
            before: seconds(&kept["seconds"]).as_secs_f64(),
            phases: phases.map(|(name, s)| (name.clone().into(), seconds(s))).collect(),
            ..Self::default()
        }
    }

    /// Runs `work` and counts its time under `phase`.
    pub fn time<T>(&mut self, phase: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.add(phase, start.elapsed());
        result
    }

    /// Counts time under a phase.
    pub fn add(&mut self, phase: &'static str, time: Duration) {
        match self.phases.iter_mut().find(|(name, _)| *name == phase) {
            Some((_, total)) => *total += time,
            None => self.phases.push((phase.into(), time)),
        }
    }

    /// Seconds since the timer was made, and those before.
    pub fn elapsed(&self) -> f64 {
        self.before + self.started.elapsed().as_secs_f64()
    }

    /// Seconds by phase, in the order of first use.
    pub fn phases(&self) -> Vec<(&str, f64)> {
        self.phases.iter().map(|(name, time)| (&**name, time.as_secs_f64())).collect()
    }

    /// As a run keeps it.
    pub fn to_json(&self) -> Value {
        let phases: Map<String, Value> =
            self.phases().into_iter().map(|(name, s)| (name.to_string(), s.into())).collect();
        json!({ "seconds": self.elapsed(), "phases": phases })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up() {
        let mut timer = PhaseTimer::default();
        timer.add("search", Duration::from_millis(250));
        timer.add("sac", Duration::from_secs(1));
        timer.add("search", Duration::from_millis(500));
        assert_eq!(timer.phases(), [("search", 0.75), ("sac", 1.0)]);
        assert_eq!(timer.time("sac", || 7), 7);
    }

    #[test]
    fn a_clock_goes_on_where_another_process_left_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(PhaseTimer::resume(dir.path()).elapsed() < 100.0, "nothing before");
        let kept = json!({ "seconds": 1000.5, "phases": { "sac": 700.25 } });
        std::fs::write(dir.path().join(TIMING), kept.to_string()).unwrap();
        let mut timer = PhaseTimer::resume(dir.path());
        timer.add("sac", Duration::from_millis(500));
        timer.add("rollout", Duration::from_millis(250));
        assert_eq!(timer.phases(), [("sac", 700.75), ("rollout", 0.25)]);
        assert!(timer.elapsed() >= 1000.5);
        std::fs::write(dir.path().join(TIMING), "{\"seconds\": -1, \"phases\": {\"sac\": \"x\"}}").unwrap();
        assert_eq!(PhaseTimer::resume(dir.path()).phases(), [("sac", 0.0)], "what is no time counts nothing");
    }
}
