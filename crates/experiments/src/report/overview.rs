//! What a reader wants first: how well it went, beside the data and beside other policies, and how long it took.

use std::collections::BTreeMap;

use super::charts::colours;
use super::labels::{LabelledRun, colour_key, distinct, short};
use crate::bars::Bar;
use crate::document::Card;
use crate::format::{count, counted, duration, number};
use crate::mean_std::MeanStd;
use crate::run_record::{BEST_POLICY, LAST_POLICY, PICKED, RunKind, RunRecord};
use crate::{Element, Table};

/// What a run's evaluations found.
pub(super) struct Found {
    pub(super) last: Option<f64>,
    pub(super) picked: Option<f64>,
    pub(super) best: Option<f64>,
    pub(super) data: Option<f64>,
}

impl Found {
    /// Normalised scores; returns where there are none.
    pub(super) fn of(record: &RunRecord) -> Self {
        let scores = record.series("score");
        let values = if scores.is_empty() { record.series("return") } else { scores };
        let picked_at = record.last("picked_step");
        let data = record.data.as_ref();
        Self {
            last: values.last().map(|v| v.1),
            picked: values.iter().find(|v| Some(v.0) == picked_at).map(|v| v.1),
            best: values.iter().map(|v| v.1).filter(|v| v.is_finite()).max_by(f64::total_cmp),
            data: data.and_then(|data| data.score.or(data.mean_return)),
        }
    }
}

/// Whether any run was evaluated in a simulator.
pub(super) fn evaluated(runs: &[LabelledRun]) -> bool {
    runs.iter().any(|run| run.record.last("return").is_some())
}

fn normalised(runs: &[LabelledRun]) -> bool {
    runs.iter().any(|run| run.record.last("score").is_some())
}

/// What the numbers of these runs are.
pub(super) fn lead(runs: &[LabelledRun]) -> String {
    let running = runs.iter().filter(|run| !run.record.is_finished()).count();
    let mut text = match evaluated(runs) {
        true => {
            let unit = if normalised(runs) {
                "Scores are normalised: 0 is a random policy, 100 D4RL's expert."
            } else {
                "Numbers are returns of episodes."
            };
            format!(
                "{unit} “Last” is what a run ends with. “Picked” returns most in the run's model, so it is chosen without a \
                 simulator. “Best” was chosen by evaluating in the simulator, which offline learning does not have."
            )
        }
        false => "No simulator knows this task, so policies have no scores. What follows is what model and critics say of them; \
                  `offing rank` orders policies from the data alone."
            .into(),
    };
    if running > 0 {
        text.push_str(&format!(
            " {} not finished yet.",
            if running == 1 { "One run is".into() } else { format!("{running} runs are") }
        ));
    }
    text
}

/// The values of a group's runs as text, with their deviation where there are several.
fn over_seeds(values: impl Iterator<Item = Option<f64>>) -> Option<MeanStd> {
    MeanStd::of_some(&values.flatten().filter(|v| v.is_finite()).collect::<Vec<f64>>())
}

fn spread_text(of: &MeanStd) -> String {
    let digits = if of.mean.abs() < 1000.0 { 1 } else { 0 };
    match of.seeds {
        2.. => format!("{:.digits$} ± {:.digits$}", of.mean, of.std),
        _ => format!("{:.digits$}", of.mean),
    }
    .replace('-', "−")
}

/// Figures of an overview.
pub(super) fn cards(runs: &[LabelledRun]) -> Element {
    let records: Vec<&RunRecord> = runs.iter().map(|run| &run.record).collect();
    let one_group = runs.windows(2).all(|pair| pair[0].group == pair[1].group);
    let mut cards = if one_group { of_one_group(&records) } else { of_several(runs) };
    let seconds: f64 = records.iter().filter_map(|r| Some(r.times.as_ref()?.elapsed())).sum();
    if seconds > 0.0 {
        let note = if runs.len() > 1 { format!("all {} runs", runs.len()) } else { "in all".into() };
        cards.push(Card::new("time", duration(seconds), note));
    }
    Element::Cards(cards)
}

fn of_one_group(records: &[&RunRecord]) -> Vec<Card> {
    let found: Vec<Found> = records.iter().map(|record| Found::of(record)).collect();
    let seeds =
        if records.len() > 1 { format!("mean of {} seeds", records.len()) } else { "one seed".into() };
    let mut cards = Vec::new();
    let mut add = |name: &str, value: Option<MeanStd>, note: &str| {
        cards.extend(value.map(|v| Card::new(name, spread_text(&v), note)));
    };
    add(LAST_POLICY, over_seeds(found.iter().map(|f| f.last)), &seeds);
    add(PICKED, over_seeds(found.iter().map(|f| f.picked)), "without a simulator");
    add(BEST_POLICY, over_seeds(found.iter().map(|f| f.best)), "chosen in the simulator");
    if found.iter().all(|f| f.last.is_none()) {
        // Without a simulator the model's word is all there is.
        add(
            "return in the model",
            over_seeds(records.iter().map(|r| r.last("model_return"))),
            "of the last policy, undiscounted",
        );
        add("Q", over_seeds(records.iter().map(|r| r.last("q"))), "the critics' value");
    }
    add("the data", over_seeds(found.iter().take(1).map(|f| f.data)), "mean of their episodes");
    if let Some(card) = cards.first_mut() {
        card.main = true;
    }
    let (taken, wanted) = records[0].progress();
    let of = wanted
        .filter(|wanted| *wanted > taken)
        .map_or("finished".into(), |n| format!("of {}", count(n as usize)));
    cards.push(Card::new("steps", count(taken as usize), of));
    if let Some(data) = records[0].data.as_ref().filter(|data| data.transitions > 0) {
        cards.push(Card::new("logged rows", count(data.transitions), counted(data.episodes, "episode")));
    }
    cards
}

fn of_several(runs: &[LabelledRun]) -> Vec<Card> {
    let mut datasets: Vec<String> = runs.iter().filter_map(dataset_of).collect();
    datasets.sort();
    datasets.dedup();
    let mut cards = vec![Card::new("runs", count(runs.len()), counted(datasets.len(), "dataset"))];
    let last = |run: &&LabelledRun| Found::of(&run.record).last.filter(|v| v.is_finite());
    if let Some(best) = runs
        .iter()
        .filter(|run| last(run).is_some())
        .max_by(|a, b| last(a).partial_cmp(&last(b)).unwrap_or(std::cmp::Ordering::Equal))
    {
        let value = last(&best).map_or(String::new(), number);
        let note = format!("{}, seed {}", best.group, best.record.seed);
        cards.insert(0, Card { main: true, ..Card::new("highest last policy", value, note) });
    }
    cards
}

fn dataset_of(run: &LabelledRun) -> Option<String> {
    match &run.record.kind {
        RunKind::Training { dataset, .. } => Some(short(dataset)),
        _ => None,
    }
}

/// Last policies beside each other and beside the data, dataset by dataset.
pub(super) fn bars(runs: &[LabelledRun]) -> Vec<Element> {
    let colours = colours(runs);
    let mut datasets: BTreeMap<String, BTreeMap<&str, Vec<Found>>> = BTreeMap::new();
    for run in runs {
        let groups = datasets.entry(dataset_of(run).unwrap_or_default()).or_default();
        groups.entry(&run.group).or_default().push(Found::of(&run.record));
    }
    let several = datasets.len() > 1;
    let mut elements = Vec::new();
    for (dataset, groups) in &datasets {
        let names: Vec<&str> = groups.keys().copied().collect();
        let mut bars: Vec<Bar> = Vec::new();
        for ((group, found), name) in groups.iter().zip(distinct(&names)) {
            let slot = colours.get(&colour_key(group)).copied().unwrap_or(0);
            let mut add =
                |name: &str, value: Option<MeanStd>| {
                    bars.extend(value.map(|v| Bar {
                        spread: v.std,
                        ..Bar::new(name, v.mean, spread_text(&v)).in_slot(slot)
                    }));
                };
            let label =
                |which: &str| if name.is_empty() { which.to_string() } else { format!("{name}, {which}") };
            add(&label(LAST_POLICY), over_seeds(found.iter().map(|f| f.last)));
            if groups.len() <= 3 {
                add(&label(PICKED), over_seeds(found.iter().map(|f| f.picked)));
                add(&label(BEST_POLICY), over_seeds(found.iter().map(|f| f.best)));
            }
        }
        if bars.is_empty() {
            continue;
        }
        let data = groups.values().flatten().find_map(|f| f.data);
        bars.extend(data.map(|value| Bar::new("the data", value, number(value)).reference()));
        let whisker = if groups.values().any(|g| g.len() > 1) {
            " Thin lines: one standard deviation over seeds."
        } else {
            ""
        };
        let unit = if normalised(runs) { "Normalised scores." } else { "Returns." };
        elements.extend(several.then(|| Element::heading(dataset.clone())));
        elements.push(Element::Bars(bars, format!("{unit}{whisker}")));
    }
    elements
}

/// Steps, returns, scores and minutes of every run; columns that no run has a number for are left out.
pub(super) fn table(runs: &[LabelledRun]) -> Table {
    let header = [
        "run",
        "seed",
        "steps",
        "last return",
        "last score",
        "picked",
        "best",
        "data's",
        "in the model",
        "minutes",
    ];
    let row = |run: &LabelledRun| {
        let (record, found) = (&run.record, Found::of(&run.record));
        let in_model = record.last("model_return").filter(|_| found.last.is_none());
        let numbers =
            [record.last("return"), record.last("score"), found.picked, found.best, found.data, in_model];
        let mut row = vec![run.label(), record.seed.to_string(), count(record.progress().0 as usize)];
        row.extend(numbers.map(|n| n.map_or("-".into(), number)));
        row.push(record.times.as_ref().map_or("-".into(), |timer| format!("{:.1}", timer.elapsed() / 60.0)));
        row
    };
    Table::new(header, runs.iter().map(row)).without_empty_columns()
}

#[cfg(test)]
mod tests {
    use super::super::labels::label_runs;
    use super::super::labels::tests::record;
    use super::*;
    use crate::run_record::DataCard;

    fn run(seed: u64, metrics: serde_json::Value) -> RunRecord {
        let kind = RunKind::Training { algorithm: "landfall".into(), dataset: "hopper".into() };
        let data = DataCard { score: Some(7.0), transitions: 100, episodes: 3, ..DataCard::default() };
        let metrics = metrics.as_array().unwrap().iter().map(|m| m.as_object().unwrap().clone()).collect();
        let config = "[settings.train]\nsteps = 20";
        RunRecord { seed, metrics, data: Some(data), ..record(kind, config) }
    }

    #[test]
    fn an_overview_has_last_picked_and_best_beside_the_data() {
        let lines = |last: f64| {
            serde_json::json!([
                { "step": 10, "return": 900.0, "score": 50.0 },
                { "step": 20, "return": 700.0, "score": last, "picked_step": 10 },
            ])
        };
        let runs = label_runs(vec![run(0, lines(30.0)), run(1, lines(40.0))]);
        let Element::Cards(cards) = cards(&runs) else { panic!("cards") };
        let shown: Vec<(&str, &str)> = cards.iter().map(|c| (c.name.as_str(), c.value.as_str())).collect();
        assert_eq!(shown[0], (LAST_POLICY, "35.0 ± 7.1"));
        assert_eq!((shown[1].1, shown[2].1, shown[3]), ("50.0 ± 0.0", "50.0 ± 0.0", ("the data", "7.0")));
        assert!(cards[0].main && shown.contains(&("steps", "20")) && shown.contains(&("logged rows", "100")));
        let Element::Bars(bars, _) = &bars(&runs)[0] else { panic!("bars") };
        assert_eq!(bars.iter().map(|b| b.value).collect::<Vec<_>>(), [35.0, 50.0, 50.0, 7.0]);
        assert!(bars[3].slot != bars[0].slot, "the data are grey");
        assert!(lead(&runs).contains("normalised") && !lead(&runs).contains("not finished"));
    }

    #[test]
    fn without_a_simulator_nothing_speaks_of_scores() {
        let mut own = run(0, serde_json::json!([{ "step": 10, "model_return": 12.5, "q": 3.0 }]));
        own.data = Some(DataCard { mean_return: Some(9.0), transitions: 5, ..DataCard::default() });
        let runs = label_runs(vec![own]);
        let Element::Cards(cards) = cards(&runs) else { panic!("cards") };
        assert_eq!((cards[0].name.as_str(), cards[0].value.as_str()), ("return in the model", "12.5"));
        assert!(bars(&runs).is_empty());
        let table = table(&runs);
        assert_eq!(table.header, ["run", "seed", "steps", "data's", "in the model"], "no column of dashes");
        assert!(
            lead(&runs).contains("No simulator knows this task")
                && lead(&runs).contains("One run is not finished")
        );
    }
}
