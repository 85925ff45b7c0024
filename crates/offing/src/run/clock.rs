//! Where the time of a run goes. The only clock in the library; its readings never reach the metrics.

use std::time::{Duration, Instant};

/// Time spent by phase.
#[derive(Clone, Debug)]
pub struct Clock {
    started: Instant,
    phases: Vec<(&'static str, Duration)>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { started: Instant::now(), phases: Vec::new() }
    }
}

impl Clock {
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
            None => self.phases.push((phase, time)),
        }
    }

    /// Seconds since the clock was made.
    pub fn elapsed(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Seconds by phase, in the order of first use.
    pub fn phases(&self) -> Vec<(&'static str, f64)> {
        self.phases.iter().map(|(name, time)| (*name, time.as_secs_f64())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up() {
        let mut clock = Clock::default();
        clock.add("search", Duration::from_millis(250));
        clock.add("sac", Duration::from_secs(1));
        clock.add("search", Duration::from_millis(500));
        assert_eq!(clock.phases(), [("search", 0.75), ("sac", 1.0)]);
        assert_eq!(clock.time("sac", || 7), 7);
    }
}
