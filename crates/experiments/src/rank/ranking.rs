//! A ranking in words: tables, agreement with the simulator, what it cost, JSON.

use offing::stats::spearman;
use serde_json::{Map, Value, json};

use super::{ESTIMATES, RankedPolicy, Ranking, ValueEstimate};
use crate::Table;
use crate::format::{count, number, or_dash};

impl Ranking {
    /// One table for each estimate, best first.
    pub fn tables(&self) -> Vec<Table> {
        ESTIMATES.iter().filter_map(|estimate| self.table(estimate)).collect()
    }

    fn table(&self, by: &ValueEstimate) -> Option<Table> {
        let mut order: Vec<(&RankedPolicy, f64)> =
            self.policies.iter().filter_map(|p| Some((p, (by.value)(p)?))).collect();
        // However much a policy promises: one that has learnt to fail comes after all that have not.
        order.sort_by(|a, b| (a.0.ends_early.cmp(&b.0.ends_early)).then(b.1.total_cmp(&a.1)));
        let row = |(place, (p, value)): (usize, &(&RankedPolicy, f64))| {
            let early = if p.ends_early { ", ends early" } else { "" };
            let name = format!("{}. {} s{}{early}", place + 1, p.algorithm, p.seed);
            let mut row = vec![name, p.which.to_string(), number(*value), or_dash((by.aside)(p), number)];
            row.extend(p.online.map(number));
            row.push(p.run.display().to_string());
            row
        };
        let title = format!("by {}", by.name);
        let online = (self.config.online > 0).then_some("true return");
        let header = [&title, "policy", "value", by.aside_name].into_iter().chain(online).chain(["run"]);
        (!order.is_empty()).then(|| Table::new(header, order.iter().enumerate().map(row)))
    }

    /// Spearman's correlation of each estimate with the true return; nothing where there is none, or too few policies to rank.
    fn correlations(&self) -> Vec<(&'static str, Option<f64>)> {
        let of = |value: fn(&RankedPolicy) -> Option<f64>| {
            let pairs = self.policies.iter().filter_map(|p| value(p).zip(p.online));
            let (estimated, truth): (Vec<f64>, Vec<f64>) = pairs.unzip();
            let rho = spearman(&estimated, &truth);
            (estimated.len() > 1 && rho.is_finite()).then_some(rho)
        };
        ESTIMATES.iter().map(|estimate| (estimate.name, of(estimate.value))).collect()
    }

    /// How well the rankings agree with the simulator; `None` without its answer.
    pub fn agreement(&self) -> Option<String> {
        let known = |(name, rho): (&str, Option<f64>)| Some(format!("{name} {:.2}", rho?));
        let found: Vec<String> = self.correlations().into_iter().filter_map(known).collect();
        let words = format!("Spearman's ρ with the true return over {} policies: ", self.policies.len());
        (!found.is_empty()).then(|| words + &found.join(", "))
    }

    /// What the rankings cost in the simulator, and what was spent before them.
    pub fn budget(&self) -> String {
        let mut words = "0 episodes in the simulator were used for this ranking".to_string();
        if self.config.online > 0 {
            words += &format!(", {} to check it", self.config.online * self.policies.len());
        }
        let chosen: usize = self.policies.iter().map(|p| p.chosen_by).sum();
        if chosen > 0 {
            words +=
                &format!("; the best policies had been picked by {} episodes in training", count(chosen));
        }
        words
    }

    /// Everything.
    pub fn json(&self) -> Value {
        let policies = self.policies.iter().map(|p| {
            json!({
                "run": p.run, "algorithm": p.algorithm, "seed": p.seed, "policy": p.which,
                "fitted_q": p.fitted, "model_return": p.model, "true_return": p.online,
                "episodes_that_chose_it": p.chosen_by, "ends_early": p.ends_early,
            })
        });
        let correlations: Map<_, _> =
            self.correlations().into_iter().map(|(name, rho)| (name.to_string(), json!(rho))).collect();
        let config = &self.config;
        json!({
            "policies": policies.collect::<Vec<_>>(), "spearman": correlations, "seed": config.seed,
            "gamma": config.gamma, "fitted_q_steps": config.steps, "model_steps": config.length,
            "online_episodes_for_ranking": 0,
            "online_episodes_for_checking": config.online * self.policies.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use offing::Rng;
    use offing::rank::FittedQ;
    use offing::sac::Actor;

    use super::super::RankConfig;
    use super::*;

    fn ranking(online: usize, policies: &[(f64, Option<f64>, usize)]) -> Ranking {
        let policy = |&(value, online, chosen_by): &(f64, Option<f64>, usize)| RankedPolicy {
            run: "runs/x".into(),
            algorithm: "mopo".into(),
            seed: 0,
            which: "last policy",
            policy: Actor::new(2, 1, &[], [-5.0, 2.0], &mut Rng::stream(0, "t", 0)),
            chosen_by,
            fitted: Some(FittedQ { value, error: 0.1 }),
            model: None,
            ends_early: false,
            online,
        };
        let config = RankConfig { runs: vec![], online, seed: 0, steps: 1, length: 1, gamma: 0.9 };
        Ranking { config, policies: policies.iter().map(policy).collect() }
    }

    #[test]
    fn the_budget_is_stated_plainly() {
        let both = ranking(0, &[(1.0, None, 0), (2.0, None, 0)]);
        assert_eq!(both.budget(), "0 episodes in the simulator were used for this ranking");
        assert_eq!(both.agreement(), None);
        let words = ranking(10, &[(1.0, None, 0), (2.0, None, 1500)]).budget();
        assert!(words.contains("20 to check it") && words.contains("picked by 1,500 episodes"), "{words}");
    }

    #[test]
    fn who_ends_early_never_comes_first() {
        let mut ranked = ranking(0, &[(9.0, None, 0), (1.0, None, 0), (2.0, None, 0)]);
        ranked.policies[0].ends_early = true;
        let table = ranked.table(&ESTIMATES[0]).unwrap();
        let values: Vec<&str> = table.rows.iter().map(|row| row[2].as_str()).collect();
        assert_eq!(values, ["2.00", "1.00", "9.00"]);
        assert!(table.rows[2][0].ends_with("ends early"), "{:?}", table.rows[2]);
    }

    #[test]
    fn agreement_is_rank_correlation() {
        let four = [(1.0, 10.0), (2.0, 30.0), (3.0, 20.0), (4.0, 40.0)].map(|(v, o)| (v, Some(o), 0));
        assert_eq!(
            ranking(1, &four).agreement().unwrap(),
            "Spearman's ρ with the true return over 4 policies: fitted Q 0.80"
        );
    }
}
