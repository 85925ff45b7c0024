//! An estimator of one's own, written against the public API alone: how far an imagined next state lies from every logged
//! state. It is checked, calibrated beside SUMO in a simulator, and used by MOPO and AMOReL.
//!
//! ```console
//! $ cargo run --release --example my_estimator
//! ```

use ndarray::Array1;
use offing::algorithms::{ModelConfig, RolloutConfig, TrainConfig};
use offing::calibration::{StudyConfig, TruthSource, prepare, study};
use offing::data::Dataset;
use offing::data::generate::{BehaviourBlock, generate};
use offing::dynamics::{EnsembleConfig, Members, ModelStep, Oracle, TerminationConfig};
use offing::env::point_mass::{PointMass, PointMassSimulators};
use offing::env::{Env, EnvPool, Physics, Simulators};
use offing::policy::UniformPolicy;
use offing::run::RunDir;
use offing::sac::SacConfig;
use offing::train::{Hooks, RunConfig, mean_return, train_with};
use offing::uncertainty::{
    BuildContext, CustomConfig, CustomEstimator, Uncertainty, UncertaintyConfig, conformance,
};
use offing::{Error, Result};
use offing_knn::{NeighborIndex, Tree, TreeConfig};

/// u = log(1 + distance of s' to the nearest logged state).
#[derive(Debug)]
struct StateDistance {
    states: Tree,
    /// The same for the data's own states, each against all others.
    max_loo: f32,
}

impl StateDistance {
    fn build(context: &BuildContext<'_>) -> Result<Box<dyn Uncertainty>> {
        let states = Tree::new(&TreeConfig::default(), context.data.obs.view()).map_err(of_search)?;
        let max_loo = states.max_self(1).map_err(of_search)?.ln_1p();
        Ok(Box::new(Self { states, max_loo }))
    }
}

impl Uncertainty for StateDistance {
    fn score(&self, step: &ModelStep) -> Result<Array1<f32>> {
        let found = self.states.search(step.batch.next_obs.view(), 1).map_err(of_search)?;
        Ok(found.kth().into_iter().map(f32::ln_1p).collect())
    }

    fn needs(&self) -> Members {
        Members::One // it looks at rows, not at the members' predictions
    }

    fn max_loo_score(&self) -> f32 {
        self.max_loo
    }
}

fn of_search(error: offing_knn::Error) -> Error {
    Error::Invalid(format!("state-distance: {error}"))
}

fn mine<'a>() -> CustomEstimator<'a> {
    CustomEstimator::new("state-distance", StateDistance::build)
}

fn main() -> Result<()> {
    let dir = tempfile::tempdir().map_err(|e| Error::io("the temporary directory", "create", e))?;
    let mut hooks = Hooks::new(dir.path().join("home")).with_simulators(&PointMassSimulators);
    let data = logged()?;

    // Does it keep the promises of an estimator? Written as a test, this line would be all of it.
    let built = StateDistance::build(&BuildContext::of_data(&data.rows))?;
    let few = ModelStep::of_rows(data.rows.select(&(0..100).collect::<Vec<_>>()));
    conformance::check(built.as_ref(), &few).map_err(Error::Invalid)?;

    calibrate(&data, &dir.path().join("study"), &mut hooks)?;

    for algorithm in ["mopo", "amorel"] {
        let config = RunConfig::new(algorithm, data.clone()).dir(dir.path().join(algorithm));
        let config = small().iter().fold(config, |config, set| config.set(*set));
        let trained = train_with(&config, mine(), &mut hooks)?;
        let [learnt, data] = [trained.scores.last, mean_return(&trained.data)].map(|r| r.unwrap_or(f64::NAN));
        println!("{algorithm} with state-distance: mean return {learnt:.1}, the data {data:.1}");
    }
    Ok(())
}

/// Compares its scores, and SUMO's, with the model's true error in the simulator. Without one,
/// `TruthSource::HeldOut` takes transitions that the model has not seen.
fn calibrate(data: &Dataset, dir: &std::path::Path, hooks: &mut Hooks<'_>) -> Result<()> {
    let make = || PointMassSimulators.make("point-mass", Physics::default());
    let oracle = Oracle::new(EnvPool::new(make))?;
    let cfg = StudyConfig { model: small_model(), ..small_study() };
    let estimators = [
        ("sumo".to_string(), UncertaintyConfig::from_id("sumo")?),
        ("mine".to_string(), UncertaintyConfig::Custom(CustomConfig { name: "state-distance".into() })),
    ];
    hooks.estimators.push(mine());
    let mut run = RunDir::open_or_create(dir, "")?;
    let found = hooks.in_session(data, Physics::default(), 0, &mut run, |session| {
        let subject = prepare(&cfg, session)?.ok_or(Error::Stopped)?;
        study(&cfg, &estimators, &subject, TruthSource::Simulator(&oracle), session)
    })?;
    for (name, _) in &estimators {
        let result = found.findings.iter().find(|result| result.estimator == *name);
        let rho = result.map_or(f64::NAN, |result| result.rho.value);
        println!("{name}: rank correlation of u with the model's true error {rho:.2}");
    }
    hooks.estimators.clear();
    Ok(())
}

/// Settings for seconds instead of hours.
fn small() -> [&'static str; 12] {
    [
        "train.steps=1000",
        "train.evaluate_every=500",
        "train.batch=128",
        "rollout.every=100",
        "rollout.starts=400",
        "model.termination={kind=\"expression\",alive=\"obs[0] * obs[0] + obs[1] * obs[1] < 9\"}",
        "model.ensemble={members=3,elites=2,hidden=[48,48],decay=[0.0,0.0,0.0],max_epochs=12}",
        "sac.hidden=[64,64]",
        "sac.actor_lr=1e-3",
        "sac.critic_lr=1e-3",
        "sac.gamma=0.95",
        "sac.tau=0.01",
    ]
}

fn small_model() -> ModelConfig {
    let ensemble = EnsembleConfig {
        members: 3,
        elites: 2,
        hidden: vec![48, 48],
        decay: vec![0.0; 3],
        max_epochs: Some(12),
        ..EnsembleConfig::default()
    };
    ModelConfig { ensemble, termination: Some(TerminationConfig::Never {}), ..ModelConfig::default() }
}

fn small_study() -> StudyConfig {
    StudyConfig {
        starts: 20,
        length: 20,
        train: TrainConfig { steps: 200, ..TrainConfig::default() },
        rollout: RolloutConfig { starts: 400, ..RolloutConfig::default() },
        sac: SacConfig { hidden: vec![64, 64], ..SacConfig::default() },
        ..StudyConfig::default()
    }
}

/// A log of random actions in a small simulator: what would be your own data.
fn logged() -> Result<Dataset> {
    let make = || -> Result<Box<dyn Env>> { Ok(Box::new(PointMass::new())) };
    let block = BehaviourBlock { rows: 6000, behaviour: &UniformPolicy };
    generate("point-mass", &EnvPool::new(make), &[block], 0, &mut |_| ())
}
