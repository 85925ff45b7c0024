"""What a notebook user does: edits arrays, sweeps, passes dicts and NumPy numbers, brings an environment and callbacks."""

import copy
import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from conftest import SMALL

import offing
from offing.gym import SimEnv

OUTCOME = ("metrics.jsonl", "policy.safetensors")


def outcome(run):
    return [(run.path / name).read_bytes() for name in OUTCOME]


def test_arrays_train_as_they_are_now(log, train):
    before = train(dir="before").config["data"]
    edited = copy.deepcopy(log)
    edited.rewards *= 2  # in place
    doubled = train(data=edited, dir="doubled")
    assert doubled.config["data"] != before
    edited.rewards = edited.rewards / 2  # a new array in its place, in another type
    edited.observations = edited.observations.astype(np.float64).tolist()
    assert train(data=edited, dir="back").config["data"] == before
    # Also where the arrays came from a file, and after a first training.
    loaded = offing.load_dataset(log.save(doubled.path.parent / "point-mass-log.npz"))
    assert train(data=loaded, dir="loaded").config["data"] == before
    loaded.rewards[:] *= 2
    again = train(data=loaded, dir="again")
    assert again.config["data"] == doubled.config["data"] and outcome(again) == outcome(doubled)


def test_nothing_is_left_behind(train, tmp_path, monkeypatch):
    for name in ("temporary", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path / "work")
    train(dir="ok")
    for bad in ({"pessimism__lamda": 1}, {"uncertainty": {"kind": "sumo", "k": 100_000}}, {"rows": 0}):
        with pytest.raises(ValueError):
            train(dir=None, **bad)
    with pytest.raises(ZeroDivisionError):
        train(dir=None, estimator=lambda obs, act, next_obs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(dir=None, reward=lambda obs, act, next_obs: next_obs[:, 0] if len(obs) == 1200 else 1 / 0)
    for name in ("temporary", "work"):
        assert list((tmp_path / name).iterdir()) == [], name


def test_runs_of_a_sweep_never_meet(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = set()
    for size in (16, 32):
        for weight in np.linspace(0.5, 1.5, 2, dtype=np.float32):
            run = train("bc", dir=None, steps=20, model=None, sac=None, rollout=None, hidden=[size, size], lr=weight / 1000)
            paths.add(run.path)
    assert len(paths) == 4
    again = train("bc", dir=None, steps=20, model=None, sac=None, rollout=None, hidden=[32, 32], lr=np.float32(1.5) / 1000)
    assert again.path in paths, "the same settings are the same run"


def test_runs_with_functions_of_the_same_name_never_meet(train, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Scaled:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, obs, act, next_obs):
            return self.factor * np.abs(next_obs).sum(axis=1)

    runs = [train(dir=None, steps=60, estimator=estimator) for estimator in (Scaled(1), Scaled(9))]
    assert runs[0].path != runs[1].path and runs[1].finished
    other = train(dir=None, steps=60, estimator=lambda obs, act, next_obs: np.abs(next_obs).sum(axis=1))
    assert other.config["settings"]["uncertainty"]["name"] != runs[0].config["settings"]["uncertainty"]["name"]


@dataclasses.dataclass
class Pessimism:
    kind: str = "penalize"
    lam: float = 3.0


def test_settings_as_python_has_them(log, tmp_path):
    @dataclasses.dataclass
    class Sac:
        hidden: tuple = (32, 32)
        gamma: np.float32 = np.float32(0.9)

    ways = {
        "dict": {"pessimism": {"lambda": np.float32(0.3)}, "sac": {"hidden": np.array([32, 32]), "gamma": 0.9}},
        "dataclass": {"pessimism": {"lambda": 0.3}, "sac": Sac()},
        "dotted": {"pessimism.lambda": np.float64(0.3), "sac.hidden": [32, 32], "sac.gamma": 0.9, "model.seed": None},
        "underscored": {"pessimism__lambda": 0.3, "sac__hidden": (np.int64(32), 32), "sac__gamma": np.float32(0.9)},
    }
    rest = {key: value for key, value in SMALL.items() if key != "sac"}
    found = {}
    for way, settings in ways.items():
        run = offing.train("mopo", log, dir=tmp_path / way, steps=np.int32(20), progress=False, **rest, **settings)
        found[way] = run.config["settings"]
    assert all(settings == found["dict"] for settings in found.values())
    assert found["dict"]["pessimism"]["lambda"] == 0.3 and found["dict"]["sac"]["gamma"] == 0.9
    with pytest.raises(TypeError, match="sac.hidden: wanted a number, a text"):
        offing.train("mopo", log, sac={"hidden": object()})
    with pytest.raises(ValueError, match="None"):
        offing.train("mopo", log, sac={"hidden": [None, 3]})


def test_landfall_is_the_default_and_a_mapping_will_do(log, tmp_path):
    columns = {key: log[key] for key in log.keys()}
    small = {"model": SMALL["model"], "sac": SMALL["sac"], "warm_start": {"steps": 20}, "unroll": {"starts": 16}}
    run = offing.train({**columns, "name": "mine"}, dir=tmp_path / "run", steps=40, progress=False, **small)
    assert run.config["algorithm"].startswith("landfall") and run.config["dataset"] == "mine"
    with pytest.raises(ValueError, match="observation"):
        offing.train({"observation": columns["observations"]})
    with pytest.raises(TypeError, match="found int"):
        offing.train("mopo", 3)


def test_warnings_reach_python_and_quiet_hides_none(log, train):
    ending = copy.deepcopy(log)
    ending.terminals[59::60] = True
    ending.timeouts[:] = False
    for quiet in (True, False):
        with pytest.warns(offing.TrainingWarning, match="termination rule finds 0 of 20 logged ends"):
            train(data=ending, dir=f"quiet-{quiet}", steps=20, quiet=quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(offing.TrainingWarning):
            train(data=ending, dir="error", steps=20)


def test_notes_go_to_the_logger(train, caplog):
    with caplog.at_level("INFO", logger="offing"):
        train(steps=20)
    assert any("dynamics model" in record.message for record in caplog.records)


class Drift(gymnasium.Env):
    """The point mass in other clothes: offing does not know it."""

    def __init__(self, horizon=60):
        self.inner = SimEnv("point-mass")
        self.horizon, self.steps = horizon, 0
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.inner.reset(seed=seed)

    def step(self, action):
        self.steps += 1
        obs, reward, terminated, _, info = self.inner.step(action)
        return obs, reward, terminated, self.steps >= self.horizon, info


def own(log):
    data = copy.copy(log)
    data.name = "drift"
    return data


def test_policies_are_scored_in_an_environment_of_ones_own(log, train):
    made = []

    def make():
        made.append(Drift())
        return made[-1]

    arguments = {"data": own(log), "steps": 200, "evaluate_every": 100, "episodes": 3}
    run = train(dir="factory", env=make, **arguments)
    assert run.metrics["return"].shape == (2,) and np.isfinite(run.metrics["return"]).all()
    assert (run.metrics["length"] <= 60).all() and len(made) == 3
    assert run.best is not None and run.behaviour_return is not None
    # One environment plays the same episodes, one after another.
    alone = train(dir="instance", env=Drift(), **arguments)
    assert outcome(alone) == outcome(run)
    gymnasium.register("Drift-v0", entry_point=Drift, max_episode_steps=7)
    short = train(dir="id", env="Drift-v0", **arguments)
    assert short.metrics["length"].tolist() == [7.0, 7.0], "the id's own time limit"
    found = offing.evaluate(run.policy, make, episodes=4, seed=1)
    assert found.returns.shape == (4,) and "episodes" in repr(found)


def test_spaces_are_checked_against_the_data(log, train, tmp_path):
    class Wide(Drift):
        def __init__(self):
            super().__init__()
            self.observation_space = gymnasium.spaces.Box(-1, 1, (5,))

    class Words(Drift):
        def __init__(self):
            super().__init__()
            self.action_space = gymnasium.spaces.Discrete(3)

    class Narrow(Drift):
        def __init__(self):
            super().__init__()
            self.action_space = gymnasium.spaces.Box(-0.1, 0.1, (2,))

    with pytest.raises(ValueError, match="wanted observations of 4 numbers, as in the data, found 5"):
        train(dir="wide", env=Wide)
    with pytest.raises(ValueError, match="wanted a Box as action_space"):
        train(dir="words", env=Words())
    assert not (tmp_path / "wide").exists() and not (tmp_path / "words").exists()
    with pytest.warns(offing.TrainingWarning, match="clipped"):
        train(dir="narrow", env=Narrow, steps=20, data=own(log))


def test_an_environment_that_raises_leaves_a_run_to_go_on_with(log, train):
    arguments = {"data": own(log), "steps": 300, "evaluate_every": 100, "episodes": 2, "checkpoint_every": 100}
    arguments["rollout"] = {**SMALL["rollout"], "every": 50}
    whole = train(dir="whole", env=Drift, **arguments)

    class Broken(Drift):
        resets = 0

        def reset(self, **arguments):
            Broken.resets += 1
            if Broken.resets > 4:
                raise ConnectionError("the plant does not answer")
            return super().reset(**arguments)

    with pytest.raises(ConnectionError, match="the plant does not answer"):
        train(dir="cut", env=Broken, **arguments)
    assert outcome(train(dir="cut", env=Drift, **arguments)) == outcome(whole)


def test_callbacks_see_the_live_policy(log, train):
    seen, evaluated = [], []

    def watch(state):
        assert state.policy(log.observations[:2]).shape == (2, 2) and state.path.exists()
        seen.append((state.step, state.steps, state.policy(log.observations[0]).tolist()))

    callbacks = [offing.Every(40, watch), lambda state: evaluated.append((state.step, state.metrics["step"]))]
    run = train(steps=120, evaluate_every=60, callbacks=callbacks, snapshot_every=40)
    assert [(step, steps) for step, steps, _ in seen] == [(40, 120), (80, 120), (120, 120)]
    assert evaluated == [(60, 60), (120, 120)]
    assert list(run.snapshots) == [40, 80, 120]
    for (_, _, action), path in zip(seen, run.snapshots.values()):
        assert offing.Policy.load(path)(log.observations[0]).tolist() == action
    assert seen[-1][2] == run.policy(log.observations[0]).tolist()
    assert run.config["settings"]["train"]["snapshot_every"] == 40
    bare = train(dir="bare", steps=120, evaluate_every=60)
    assert outcome(bare) == outcome(run), "watching changes nothing"
    assert "snapshot_every" not in bare.config["settings"]["train"]


def test_act_reads_a_snapshot(log, train, tmp_path):
    path = train("bc", steps=20, snapshot_every=10, model=None, sac=None, rollout=None).snapshots[10]
    np.save(tmp_path / "obs.npy", log.observations[:9])
    command = [sys.executable, "-m", "offing", "-q", "act", path, tmp_path / "obs.npy", tmp_path / "act.npy"]
    subprocess.run(command, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "act.npy"), offing.Policy(path)(log.observations[:9]), atol=1e-6)


@pytest.mark.parametrize("algorithm", ["landfall", "mobile", "amorel", "morel", "morel-sac", "combo", "rambo", "td3bc", "iql", "bc"])
def test_every_algorithm_shows_its_policy(log, train, algorithm):
    settings = {"steps": 4, "evaluate_every": 2}
    if algorithm == "landfall":
        settings |= {"warm_start": {"steps": 2}, "unroll": {"starts": 16}, "rollout": None}
    if algorithm == "rambo":
        settings |= {"cloning": {"steps": 5}}
    if algorithm == "morel":
        settings |= {"plan": {"starts": 5, "horizon": 5}, "rollout": None, "sac": None}
    if algorithm in ("td3bc", "iql", "bc"):
        settings |= {"rollout": None, "sac": None, "model": None}
    seen = []
    run = train(algorithm, callbacks=[offing.Every(1, lambda state: seen.append(state.policy(log.observations[0])))], **settings)
    assert len(seen) == 4 and (seen[-1] == run.policy(log.observations[0])).all()


def test_a_callback_that_raises_stops_after_its_step_and_the_run_goes_on(train, tmp_path):
    whole = train(dir="whole", steps=200)

    def fail(state):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        train(dir="cut", steps=200, callbacks=[offing.Every(70, fail)])
    assert [p.name for p in (tmp_path / "cut" / "checkpoints").iterdir()], "it saved its state"
    resumed = []
    run = train(dir="cut", steps=200, callbacks=[offing.Every(1, lambda state: resumed.append(state.step))])
    assert resumed[0] == 71 and outcome(run) == outcome(whole)


def test_ctrl_c_in_a_callback_and_in_an_estimator(train, log):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        whole = train(dir="whole", steps=200)

        def interrupt(state):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):
                pass

        with pytest.raises(KeyboardInterrupt):
            train(dir="callback", steps=200, callbacks=[offing.Every(70, interrupt)])
        assert outcome(train(dir="callback", steps=200)) == outcome(whole)

        calls = []

        def estimator(obs, act, next_obs):
            calls.append(len(obs))
            if len(calls) == 2:
                os.kill(os.getpid(), signal.SIGINT)
            return np.abs(next_obs).sum(axis=1)

        with pytest.raises(KeyboardInterrupt):
            train(dir="estimator", steps=200, rollout={**SMALL["rollout"], "every": 50}, estimator=estimator)
        run = train(dir="estimator", steps=200, rollout={**SMALL["rollout"], "every": 50}, estimator=estimator)
        calls.append(0)
        straight = train(dir="straight", steps=200, rollout={**SMALL["rollout"], "every": 50}, estimator=estimator)
        assert outcome(run) == outcome(straight)
    finally:
        signal.signal(signal.SIGINT, handler)


def test_policies_datasets_and_indexes_pickle_copy_and_show_themselves(log, train, rows):
    run = train("bc", steps=20, model=None, sac=None, rollout=None)
    policy, index = run.policy, offing.Index(rows, metric="manhattan")
    for again in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy), copy.copy(policy)):
        assert (again(log.observations) == policy(log.observations)).all() and again.path == policy.path
    saved = offing.Policy(policy.save(run.path / "copy.safetensors"))
    assert (saved(log.observations) == policy(log.observations)).all()
    for again in (pickle.loads(pickle.dumps(index)), copy.deepcopy(index)):
        assert again.metric == "manhattan" and (again.search(rows, 3)[1] == index.search(rows, 3)[1]).all()
    for again in (pickle.loads(pickle.dumps(log)), copy.deepcopy(log)):
        assert all((again[key] == log[key]).all() for key in log.keys())
    again = pickle.loads(pickle.dumps(run))
    assert again.path == run.path and again.config == run.config
    assert repr(policy) == "Policy(4 observed, 2 acted)"
    assert repr(index) == "Index(800 rows of 6 columns, manhattan)"
    assert "1,200 rows" in repr(log) and "bc on point-mass-log, seed 0, finished" in repr(run)


def test_a_run_gives_its_numbers(log, train):
    run = train(steps=100, evaluate_every=50)
    frame = run.metrics.to_pandas()
    assert frame["step"].tolist() == [50, 100] and list(frame.columns) == list(run.metrics)
    assert run.metrics["critic_loss"].dtype == np.float64 and "critic_loss" in repr(run.metrics)
    with pytest.raises(KeyError, match="wanted one of step"):
        run.metrics["losses"]
    page = run._repr_html_()
    assert "mopo+sumo on point-mass-log, seed 0" in page and "<svg" in page and "<script" not in page
    assert run.report().read_text().startswith("<!")
    assert offing.Run(run.path).config == run.config


def test_columns_of_a_table_by_name(tmp_path, log):
    frame = np.column_stack([log.observations, log.actions, log.rewards, np.repeat(np.arange(20), 60)])
    header = "x,y,u,v,left,right,gain,trial"
    np.savetxt(tmp_path / "table.csv", frame, delimiter=",", header=header, comments="")
    columns = {"obs": ["x", "y"], "act": ("left", "right"), "rew": "gain", "episode": "trial"}
    found = offing.load_dataset(tmp_path / "table.csv", columns=columns)
    assert found.observations.shape == (1180, 2) and np.allclose(found.observations[:59], log.observations[:59, :2])
    single = offing.load_dataset(tmp_path / "table.csv", columns={**columns, "act": "left"})
    assert single.actions.shape[1] == 1
    with pytest.raises(ValueError, match="obz"):
        offing.load_dataset(tmp_path / "table.csv", columns={"obz": ["x"]})


def test_studies_return_data(log, train, tmp_path):
    runs = [train(dir=f"s{seed}", seed=seed, steps=60) for seed in (0, 1)]
    found = offing.rank(runs, data=log, steps=50, length=5)
    assert {policy["seed"] for policy in found["policies"]} == {0, 1}
    other = copy.deepcopy(log)
    other.rewards += 1
    with pytest.raises(ValueError, match="other transitions"):
        offing.rank(runs, data=other, steps=50)
    with pytest.raises(ValueError, match="alpha or threshold"):
        offing.score(log, log, alpha=1.0, threshold=1.0)
    spoilt = copy.deepcopy(log)
    spoilt.observations[100:110] += 50
    beyond = offing.score(log, spoilt, alpha=1.0)
    assert beyond.alarms[100:110].all() and beyond.alarms.sum() <= 11 and "beyond" in repr(beyond)
    assert offing.audit(log)["verdict"] == "ok"
    assert offing.audit(log)["rows"] == 1200


def test_calibration_compares_ones_own_with_ours_on_edited_arrays(log, tmp_path):
    def mine(obs, act, next_obs):
        return np.abs(next_obs).sum(axis=1)

    settings = {**SMALL, "starts": 10, "length": 5, "train": {"batch": 64, "steps": 100}}
    estimators = {"sumo": "sumo", "mine": mine}
    found = offing.calibrate(log, estimators=estimators, seeds=1, dir=tmp_path, **settings)
    (study,) = found["studies"]
    assert {finding["estimator"] for finding in study["findings"]} >= {"step", "sumo"}
    assert any("mine" in finding["estimator"] for finding in study["findings"])
    before = len(list((tmp_path / "point-mass-log").iterdir()))
    edited = copy.deepcopy(log)
    edited.rewards *= 2
    offing.calibrate(edited, estimators=["sumo"], seeds=1, dir=tmp_path, **settings)
    assert len(list((tmp_path / "point-mass-log").iterdir())) == before + 1, "another dataset is another study"
