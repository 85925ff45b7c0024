//! Landfall's losses beside PyTorch's, and its parts alone. The other side: scripts/golden/landfall.py.

use ndarray::{Array1, Array2};

use super::guard::Guard;
use super::learn::{critic_step, value_loss, weights_of};
use super::*;
use crate::algorithms::PICKED_POLICY;
use crate::algorithms::model_based_sac::ModelBasedSacConfig;
use crate::algorithms::tests::{
    behaviour_return, in_session, outcome, penalise, point_mass_data, small, train_by,
};
use crate::dynamics::{EnsembleConfig, Expression, Termination};
use crate::nn::ThreadPool;
use crate::rng::Rng;
use crate::run::{METRICS, Record, read_metrics};
use crate::sac::SacConfig;
use crate::uncertainty::{ColumnScale, Sumo, SumoConfig, Uncertainty, UncertaintyConfig};
use crate::unroll::UnrollGradient;

const BATCH: usize = 16;

fn mat(from: &Tensors, name: &str, rows: usize, cols: usize) -> Mat {
    Array2::from_shape_vec((rows, cols), from.f32(name, &[rows, cols]).unwrap()).unwrap()
}

fn column(from: &Tensors, name: &str, rows: usize) -> Array1<f32> {
    from.f32(name, &[rows]).unwrap().into()
}

/// Everything that goes into a step of the golden file.
struct Case {
    golden: Tensors,
    cfg: LandfallConfig,
    agent: Sac,
    model: Ensemble,
    sumo: Sumo,
    data: Batch,
    batch: Batch,
    weight: Array1<f32>,
    returns: Returns,
    pool: ThreadPool,
}

impl Case {
    fn new(threads: usize) -> Self {
        let golden =
            Tensors::from_foreign_bytes(include_bytes!("../../../tests/golden/landfall.safetensors"))
                .unwrap();
        let (given, rows) = (golden.under("data"), 60);
        let data = Batch {
            obs: mat(&given, "obs", rows, 5),
            act: mat(&given, "act", rows, 2),
            rew: column(&given, "rew", rows),
            next_obs: mat(&given, "next_obs", rows, 5),
            done: Array1::from_elem(rows, false),
        };
        let given = golden.under("batch");
        let mut batch = data.select(&(0..BATCH).collect::<Vec<_>>());
        batch.done = column(&given, "done", BATCH).mapv(|d| d > 0.5);
        let sac =
            SacConfig { hidden: vec![32, 20], critics: 3, critic_layer_norm: true, ..SacConfig::default() };
        let cfg = LandfallConfig {
            unroll: UnrollConfig { length: 4, lambda: 0.9, ..UnrollConfig::default() },
            anchor: Anchor { weight: 0.4, selectivity: 0.0, ..Anchor::default() },
            pessimism: Pessimism::PenalizeExcess { lambda: 0.5, quantile: 0.5 },
            sac,
            ..LandfallConfig::default()
        };
        let pool = ThreadPool::new(threads);
        let mut agent = Sac::new(&cfg.sac, 5, 2, &pool, &mut Rng::stream(0, "init", 0)).unwrap();
        agent.load(&golden.under("before")).unwrap();
        let alive = Expression::parse("obs[0] < 2.5", 5, 2).unwrap();
        let model = Ensemble::load(&golden.under("model"), &pool).unwrap();
        let model = model.with_termination(Termination::Alive(alive));
        let sumo = SumoConfig { columns: ColumnScale::Standardised, ..SumoConfig::default() };
        let sumo = Sumo::new(&sumo, &data, threads).unwrap();
        let returns = Returns { values: Vec::new(), scale: 0.1, least: -1e6, most: 1e6, mean: 0.0 };
        let weight = column(&given, "weight", BATCH);
        Self { golden, cfg, agent, model, sumo, data, batch, weight, returns, pool }
    }

    fn guard(&self) -> Guard<'_> {
        let rule = self.cfg.pessimism.calibrate(self.sumo.max_loo_score(), &self.data.rew).unwrap();
        let level = self.sumo.loo_quantile(0.5).unwrap();
        Guard { estimator: Some(&self.sumo), rule: rule.from_level(level) }
    }
}

#[test]
fn a_step_of_actor_and_critics_equals_pytorch() {
    for threads in [1, 2] {
        let mut case = Case::new(threads);
        let standardiser = Standardiser::identity(5);
        let mut unroll = Unroll::new(&case.agent.actor, &case.model, (BATCH, 4), BATCH, &case.pool);
        unroll.forward(
            &case.agent.actor,
            (&case.model, 0),
            &standardiser,
            &case.pool,
            &case.batch.next_obs,
            || 0.0,
        );
        let looked_at: Vec<usize> =
            column(&case.golden.under("batch"), "looked_at", BATCH).iter().map(|&t| t as usize).collect();
        let scored = case.guard().score(&unroll, &case.model, &case.returns, &looked_at).unwrap();
        assert!(
            scored.fate.iter().any(|&f| f == Fate::Ends)
                && scored.fate.iter().any(|&f| f == Fate::Unbelieved)
        );
        let mut found = Found::default();
        let anchored = unroll.anchor(&case.agent.actor, &case.pool, &case.batch.obs);
        let danchored =
            case.cfg.anchor_gradient(anchored, &case.batch.act, (0.4, |i| case.weight[i]), &mut found);
        let (gradient, y) = case.cfg.return_gradient(
            &mut case.agent,
            &unroll,
            &standardiser,
            &scored,
            &case.batch.done,
            &mut found,
        );
        unroll.train_actor(&mut case.agent, &case.model, &standardiser, &case.pool, (&gradient, &danchored));
        let wanted = mat(&case.golden, "returns", 4, BATCH);
        let worst = (&y - &wanted).iter().fold(0.0f32, |worst, d| worst.max(d.abs()));
        assert!(worst < 1e-5, "returns differ by {worst}");
        let goal = wanted.row(0).to_owned();
        let rows = (&case.batch.obs, &case.batch.act);
        let loss = critic_step(&mut case.agent, rows, &goal, |i| case.weight[i], 0.5) * 3.0;
        case.agent.sync_targets();
        let theirs = f64::from(case.golden.f32("critic_loss", &[1]).unwrap()[0]);
        assert!((loss - theirs).abs() < 1e-5, "{loss} against {theirs}");
        let (ours, theirs) = (case.agent.save(), case.golden.under("after"));
        for name in ours.names().filter(|name| !["steps", "log_alpha"].contains(name)) {
            let shape = ours.shape(name).unwrap();
            let values = |from: &Tensors| from.f32(name, shape).unwrap();
            let worst =
                values(&ours).iter().zip(values(&theirs)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst <= 1e-5, "{name} differs by {worst}");
        }
    }
}

#[test]
fn returns_are_discounted_sums_and_a_cut_episode_goes_on_at_its_mean_reward() {
    let mut data = point_mass_data();
    data.rows = data.rows.select(&(0..5).collect::<Vec<_>>());
    data.rows.rew = ndarray::arr1(&[1.0, 2.0, 3.0, 1.0, 3.0]);
    data.rows.done = ndarray::arr1(&[false, false, true, false, false]);
    data.episodes = vec![0..3, 3..5];
    let found = Returns::of(&data, 0.5);
    // The second episode was cut off: from then on 2 a step, which is worth 4.
    let wanted = [1.0 + 1.0 + 0.75, 3.5, 3.0, 1.0 + 0.5 * 5.0, 3.0 + 2.0];
    for (got, want) in found.values.iter().zip(wanted) {
        assert!((got / found.scale - want).abs() < 1e-5, "{got} against {want}");
    }
    let square = found.values.iter().map(|v| v * v).sum::<f32>() / 5.0;
    assert!((square.sqrt() - 10.0).abs() < 1e-4);
    assert!(
        (found.most / found.scale - 6.0).abs() < 1e-5 && found.least == 0.0,
        "3 a step for ever, or nothing"
    );
}

#[test]
fn the_anchor_goes_in_a_straight_line_to_its_end() {
    let stays = Anchor { weight: 0.4, ..Anchor::default() };
    assert_eq!([0.0, 0.5, 1.0].map(|done| stays.weight_at(done)), [0.4; 3]);
    let goes = Anchor { weight_end: Some(0.0), ..stays };
    assert_eq!([0.0, 0.5, 1.0].map(|done| goes.weight_at(done)), [0.4, 0.2, 0.0]);
}

#[test]
fn weights_have_mean_one_and_grow_with_the_advantage() {
    let weights = weights_of(&[-1.0, 0.0, 1.0, 2.0], 1.0);
    assert!((weights.iter().sum::<f32>() - 4.0).abs() < 1e-5);
    assert!(weights.windows(2).all(|w| w[0] < w[1]));
    let ratio = weights[1] / weights[0];
    assert!((f64::from(ratio).ln() - 1.0 / 1.25f64.sqrt()).abs() < 1e-5, "one step is 1/deviation: {ratio}");
    let outlier: Vec<f64> = (0..1000).map(|i| if i == 0 { 1e6 } else { 0.0 }).collect();
    assert!(weights_of(&outlier, 1.0)[0] < 21.0, "no row counts for everything");
    assert!(weights_of(&[3.0; 5], 1.0).is_empty(), "nothing to choose from");
}

fn landfall_config(steps: u64) -> LandfallConfig {
    let ModelBasedSacConfig { train, mut model, sac, .. } = small(penalise(), "sumo", steps);
    model.ensemble = EnsembleConfig { layer_norm: true, ..model.ensemble };
    let sac = SacConfig { critics: 3, critic_layer_norm: true, ..sac };
    let warm_start = WarmStart { steps: steps / 4, ..WarmStart::default() };
    let unroll = UnrollConfig { starts: 64, noise: 0.1, average: 0.5, ..UnrollConfig::default() };
    LandfallConfig { train, model, sac, warm_start, unroll, ..LandfallConfig::default() }
}

#[test]
fn the_average_spans_its_share_of_the_updates() {
    let rate = |average, updates| UnrollConfig { average, ..UnrollConfig::default() }.average_rate(updates);
    assert_eq!(rate(0.2, 9000), Some(1.0 / 1800.0));
    assert_eq!(rate(0.2, 3), Some(1.0), "less than an update: the weights themselves");
    assert_eq!([rate(0.0, 9000), rate(0.2, 0)], [None, None]);
}

#[test]
fn landfall_beats_the_behaviour_policy_with_any_guard() {
    let data = point_mass_data();
    let behaviour = behaviour_return(&data);
    let penalty = landfall_config(1200);
    for pessimism in [penalty.pessimism, Pessimism::Truncate { alpha: 1.0 }, Pessimism::Ignore {}] {
        let dir = tempfile::tempdir().unwrap();
        let cfg = LandfallConfig { pessimism, ..penalty.clone() };
        let returns = train_by(&cfg, &data, dir.path(), 2, u64::MAX);
        assert!(returns[3] > behaviour + 5.0, "{pessimism:?}: {returns:?} against {behaviour}");
    }
}

#[test]
fn landfall_resumes_bit_for_bit_on_any_number_of_threads() {
    let (data, mut cfg) = (point_mass_data(), landfall_config(400));
    cfg.sac.actor_layer_norm = true;
    cfg.final_policy = FinalPolicy::Picked;
    cfg.model.ensemble.members = cfg.model.ensemble.elites + 1;
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train_by(&cfg, &data, whole.path(), 1, u64::MAX);
    // Before and after rows are weighed, and after the warm start.
    for stop_at in [40, 80, 200, u64::MAX] {
        train_by(&cfg, &data, parts.path(), 2, stop_at);
    }
    assert!(outcome(whole.path()) == outcome(parts.path()));
    // The policy that promises most is kept, the lines say which it is, and the training ends with it.
    let lines = read_metrics(&whole.path().join("run").join(METRICS)).unwrap();
    let number = |line: &Record, key: &str| line[key].as_f64().unwrap();
    let (last, before) = lines.split_last().unwrap();
    let most = before.iter().max_by(|a, b| number(a, "model_return").total_cmp(&number(b, "model_return")));
    let most = most.unwrap();
    assert!(number(last, "model_return") >= number(most, "model_return"));
    if number(last, "picked_step") < 400.0 {
        assert_eq!(number(last, "picked_step"), number(most, "step"));
        assert_eq!(number(last, "model_return"), number(most, "model_return"), "the same states and draws");
    }
    assert!(lines.iter().all(|line| number(line, "climbed_return") != number(line, "model_return")));
    let file = |name: &str| std::fs::read(whole.path().join("run").join(name)).unwrap();
    assert_eq!(file(PICKED_POLICY), file("policy.safetensors"));
}

#[test]
fn a_training_that_spoils_its_policy_ends_with_a_better_one_of_before() {
    // A learning rate that ruins a good clone.
    let (data, mut cfg) = (point_mass_data(), landfall_config(400));
    cfg.model.ensemble.members = cfg.model.ensemble.elites + 2;
    cfg.sac.actor_lr = 0.5;
    let run = |final_policy| {
        let dir = tempfile::tempdir().unwrap();
        let returns =
            train_by(&LandfallConfig { final_policy, ..cfg.clone() }, &data, dir.path(), 2, u64::MAX);
        (*returns.last().unwrap(), std::fs::read(dir.path().join("run/policy.safetensors")).unwrap())
    };
    let [(last, spoilt), (picked, kept)] = [run(FinalPolicy::Last), run(FinalPolicy::Picked)];
    assert!(spoilt != kept && picked > last + 5.0, "{picked} against {last}");
}

#[test]
fn a_model_that_predicts_nothing_leaves_the_clone() {
    let (mut data, mut rng) = (point_mass_data(), Rng::stream(0, "shuffle", 0));
    for row in 0..data.rows.len() {
        let other = rng.below(data.rows.len());
        let next = data.rows.obs.row(other).to_owned();
        data.rows.next_obs.row_mut(row).assign(&next);
        data.rows.rew[row] = rng.normal() as f32;
    }
    let cfg = landfall_config(80);
    let run = |cfg: &LandfallConfig| {
        let dir = tempfile::tempdir().unwrap();
        train_by(cfg, &data, dir.path(), 2, u64::MAX);
        let picked = dir.path().join("run").join(PICKED_POLICY).is_file();
        (std::fs::read(dir.path().join("run/policy.safetensors")).unwrap(), picked)
    };
    let (stays, picked) = run(&cfg);
    assert!(!picked, "nor does such a model pick a policy");
    let clone = LandfallConfig { warm_start: cfg.warm_start.over(80), ..cfg.clone() };
    assert!(stays == run(&clone).0);
    let unroll = UnrollConfig { despite_bad_model: true, ..cfg.unroll.clone() };
    assert!(stays != run(&LandfallConfig { unroll, ..cfg.clone() }).0);
}

/// One step of the actor on −Σ a over trajectories with this noise: the actions it was taken at, and those without noise
/// before and after it.
fn climb_actions(noise: f32) -> [Mat; 3] {
    let mut case = Case::new(1);
    let standardiser = Standardiser::identity(5);
    let mut unroll = Unroll::new(&case.agent.actor, &case.model, (BATCH, 4), BATCH, &case.pool);
    let (model, pool, start) = (&case.model, &case.pool, &case.batch.next_obs);
    let act = |unroll: &mut Unroll, agent: &Sac, noise: f32| {
        unroll.forward(&agent.actor, (model, 0), &standardiser, pool, start, || noise);
        unroll.act().clone()
    };
    let agent = &mut case.agent;
    let plain = act(&mut unroll, agent, 0.0);
    let noisy = act(&mut unroll, agent, noise);
    let anchored = unroll.anchor(&agent.actor, pool, &case.batch.obs).dim();
    let gradient = UnrollGradient {
        obs: Mat::zeros(unroll.obs().dim()),
        act: Mat::from_elem(unroll.act().dim(), -1.0),
        rew: Array2::zeros(unroll.rew().dim()),
    };
    unroll.train_actor(agent, model, &standardiser, pool, (&gradient, &Mat::zeros(anchored)));
    [noisy, plain, act(&mut unroll, agent, 0.0)]
}

#[test]
fn critics_learn_the_expectile_of_their_targets() {
    let targets = [0.1f32, 0.2, 0.4, 0.9];
    for expectile in [0.5f32, 0.3, 0.1] {
        let mut q = 0.0f32;
        for _ in 0..2000 {
            q -= 0.05 * targets.iter().map(|y| value_loss(q - y, expectile).1).sum::<f32>();
        }
        // By definition: τ Σ (y − q)⁺ = (1 − τ) Σ (q − y)⁺.
        let [above, below] =
            [1.0f32, -1.0].map(|s| targets.iter().map(|y| (s * (y - q)).max(0.0)).sum::<f32>());
        assert!((expectile * above - (1.0 - expectile) * below).abs() < 1e-5, "{expectile}: {q}");
    }
    for (error, expectile) in [(0.4, 0.3), (-0.4, 0.3), (2.5, 0.1), (-2.5, 0.1), (0.7, 0.5)] {
        let h = 1e-3;
        let rise = value_loss(error + h, expectile).0 - value_loss(error - h, expectile).0;
        assert!((rise / (2.0 * h) - value_loss(error, expectile).1).abs() < 1e-3, "{error}");
    }
}

#[test]
fn noise_moves_actions_and_an_action_carried_to_its_bound_teaches_nothing() {
    let [noisy, plain, after] = climb_actions(0.05);
    let first = |act: &Mat| act.slice(s![..BATCH, ..]).to_owned();
    let wanted = first(&plain).mapv(|a| (a + 0.05).min(1.0));
    assert!((first(&noisy) - wanted).iter().all(|d| d.abs() < 1e-6), "it is added to the actor's own action");
    assert!(after.sum() > plain.sum(), "the step climbs");
    let [noisy, plain, after] = climb_actions(3.0);
    assert!(noisy.iter().all(|&a| a == 1.0));
    assert_eq!(after, plain, "no gradient, no step");
}

#[test]
fn the_asked_for_share_of_starts_are_first_states() {
    let (data, dir) = (point_mass_data(), tempfile::tempdir().unwrap());
    let starts = in_session(&data, (dir.path(), dir.path()), 1, u64::MAX, |session| {
        Ok(session.sample_starts_with_first(40, 0.25, &mut Rng::stream(0, "start", 0)))
    });
    let starts = starts.unwrap();
    let is_first = |row: usize| data.episodes.iter().any(|e| data.rows.obs.row(e.start) == starts.row(row));
    assert!((0..10).all(is_first) && !(10..40).all(is_first));
}

#[test]
fn odd_logs_are_learnt_from_and_too_short_ones_refused() {
    let mut cfg = landfall_config(80);
    let columns = ColumnScale::Standardised;
    cfg.uncertainty = UncertaintyConfig::Sumo(SumoConfig { columns, ..SumoConfig::default() });
    type Change = fn(&mut crate::data::Dataset);
    let odd: [(&str, Change); 3] = [
        ("no terminals", |data| data.rows.done.fill(false)),
        ("one episode", |data| {
            data.rows.done.fill(false);
            data.episodes = std::iter::once(0..data.rows.len()).collect();
        }),
        ("one action", |data| data.rows.act.fill(0.3)),
    ];
    for (name, change) in odd {
        let (mut data, dir) = (point_mass_data(), tempfile::tempdir().unwrap());
        change(&mut data);
        let returns = train_by(&cfg, &data, dir.path(), 2, u64::MAX);
        assert!(returns.len() == 4 && returns.iter().all(|r| r.is_finite()), "{name}: {returns:?}");
    }
    let (mut data, dir) = (point_mass_data(), tempfile::tempdir().unwrap());
    data.rows = data.rows.select(&(0..100).collect::<Vec<_>>());
    data.episodes = std::iter::once(0..100).collect();
    let run = |session: &mut Session<'_>| crate::algorithms::train(&cfg, session);
    let error = in_session(&data, (dir.path(), dir.path()), 1, u64::MAX, run).err().unwrap().to_string();
    assert!(error.contains("too few rows"), "{error}");
}
