"""Estimators, terminations, rewards and dynamics written in Python."""

import numpy as np
import pytest
from conftest import SMALL

import offing

OUTCOME = ("metrics.jsonl", "policy.safetensors")
# The built-in estimators see an algorithm's units, functions of Python the log's: here they are the same.
AS_LOGGED = {"batch": 64, "units": "as-logged"}


def outcome(run):
    return [(run.path / name).read_bytes() for name in OUTCOME]


class OwnSumo:
    """Eq. 4 through offing.Index."""

    def __init__(self, data):
        self.index = offing.Index(np.hstack([data.observations, data.actions, data.next_observations]))

    def score(self, obs, act, next_obs):
        distances, _ = self.index.search(np.hstack([obs, act, next_obs]))
        return np.log1p(distances[:, 0].astype(np.float64)).astype(np.float32)

    def max_loo(self):
        return np.log1p(np.float64(self.index.max_self()))


class SumoWithMore(OwnSumo):
    def quantile(self, share):
        others = np.sort(self.index.search_self()[0][:, 0])
        return np.log1p(np.float64(others[int(len(others) * share)]))

    def gradient(self, obs, act, next_obs):
        points = np.hstack([obs, act, next_obs])
        distances, rows = self.index.search(points)
        near = self.rows[rows[:, 0]]
        d = distances[:, :1]
        slope = np.where(d > 0, (1 / (1 + d)) / np.where(d > 0, d, 1), 0).astype(np.float32) * (points - near)
        widths = np.cumsum([obs.shape[1], act.shape[1]])
        return (self.score(obs, act, next_obs), *np.hsplit(slope, widths))

    def __init__(self, data):
        super().__init__(data)
        self.rows = np.hstack([data.observations, data.actions, data.next_observations])


@pytest.mark.parametrize("algorithm", ["mopo+sumo", "amorel+sumo", "morel-sac+sumo", "morel+sumo"])
def test_sumo_written_in_python_trains_the_same_bytes(log, train, algorithm):
    # The name with its estimator: presets have hyperparameters for each.
    settings = {"steps": 150, "evaluate_every": 50, "train": AS_LOGGED}
    if algorithm == "morel+sumo":
        settings |= {"steps": 2, "evaluate_every": 1, "plan": {"starts": 5, "horizon": 10}, "rollout": None, "sac": None}
    built_in = train(algorithm, dir="built-in", **settings)
    mine = train(algorithm, dir="mine", estimator=OwnSumo(log), **settings)
    assert outcome(mine) == outcome(built_in)
    ours = train(algorithm, dir="ours", estimator=offing.Sumo(*(log[k] for k in ("observations", "actions", "next_observations"))), **settings)
    assert outcome(ours) == outcome(built_in)


def test_landfall_follows_the_gradient_of_a_python_estimator(log, train):
    settings = {"steps": 60, "evaluate_every": 30, "warm_start": {"steps": 20}, "unroll": {"starts": 32}, "rollout": None, "train": AS_LOGGED}
    built_in = train("landfall", dir="built-in", **settings)
    mine = train("landfall", dir="mine", estimator=SumoWithMore(log), **settings)
    assert outcome(mine) == outcome(built_in)
    plain = train("landfall", dir="plain", estimator=lambda obs, act, next_obs: np.abs(next_obs).sum(axis=1), **settings)
    assert plain.finished
    with pytest.raises(ValueError, match="quantile"):
        train("landfall", dir="without", estimator=OwnSumo(log), **settings)


def test_members_are_shown_to_those_who_ask(log, train):
    shapes = set()

    def spread(obs, act, next_obs, members):
        assert members.mean.shape == members.std.shape == (3, len(obs), 5)
        shapes.add(members.mean.shape[::2])
        return members.mean[:, :, :4].std(axis=0).max(axis=1)

    run = train("mopo", steps=60, estimator=spread)
    assert shapes == {(3, 5)} and run.metrics["u_max"][-1] > 0


def test_a_log_of_ones_own_is_seen_in_its_own_units(log, train):
    tank = offing.Dataset(
        observations=293 + 20 * log.observations, actions=20 + 20 * log.actions, rewards=log.rewards,
        next_observations=293 + 20 * log.next_observations, terminals=log.terminals, timeouts=log.timeouts, name="tank",
    )  # fmt: skip
    seen = []

    def see(obs, act, next_obs):
        seen.append((obs.mean(), act.min(), act.max(), next_obs.mean()))
        return np.abs(next_obs - 293).sum(axis=1)

    def ends(obs, act, next_obs):
        seen.append((obs.mean(), act.min(), act.max(), next_obs.mean()))
        return np.zeros(len(obs), bool)

    train("mopo", data=tank, steps=60, estimator=see, termination=ends, model={"ensemble": SMALL["model"]["ensemble"]})
    obs, low, high, following = np.array(seen).T
    assert (np.abs(obs - 293) < 60).all() and (np.abs(following - 293) < 60).all()
    assert low.min() > -0.1 and high.max() < 40.1 and high.max() > 30


def test_rows_belong_to_those_who_get_them(log, train):
    kept, settings = [], {"steps": 120, "rollout": {**SMALL["rollout"], "every": 30}, "train": AS_LOGGED}

    def score(obs, act, next_obs):
        return np.abs(next_obs).sum(axis=1) + np.abs(act).sum(axis=1) + 0 * obs[:, 0]

    def keep(*rows):
        assert all(x.dtype == np.float32 and x.flags.c_contiguous and x.flags.writeable and x.flags.aligned for x in rows)
        kept.append((rows, [x.tobytes() for x in rows]))
        return score(*rows)

    def scribble(*rows):
        u = score(*rows)
        for x in rows:
            x[:] = np.nan
        return u

    runs = {}
    for algorithm in ("mopo", "amorel+sumo"):  # Rows scored late are handed over, rows of a rollout copied.
        for number, estimator in enumerate((score, keep, scribble)):
            runs[algorithm, number] = outcome(train(algorithm, dir=f"{algorithm}-{number}", estimator=named(estimator), **settings))
        assert runs[algorithm, 0] == runs[algorithm, 1] == runs[algorithm, 2]
    assert len(kept) > 8 and all([x.tobytes() for x in rows] == then for rows, then in kept)


def named(function):
    """The same function under one name: names are part of a run."""

    class Named:
        score = staticmethod(function)

    return Named()


FAULTS = [
    (lambda obs, act, next_obs: 1 / 0, ZeroDivisionError, "division"),
    (lambda obs, act, next_obs: np.full(len(obs), np.nan), ValueError, "wanted finite numbers, found nan in row 0"),
    (lambda obs, act, next_obs: np.zeros(len(obs) + 1), ValueError, "one for each row"),
    (lambda obs, act, next_obs: np.zeros((len(obs), 2)), ValueError, "one number for each row"),
    (lambda obs, act, next_obs: np.zeros(len(obs), complex), ValueError, "real numbers"),
    (lambda obs, act, next_obs: ["far"] * len(obs), ValueError, "real numbers"),
    (lambda obs, act, next_obs: None, ValueError, "found None"),
    (lambda obs, act: np.zeros(len(obs)), TypeError, "positional argument"),
]


@pytest.mark.parametrize(("estimator", "kind", "words"), FAULTS)
def test_a_faulty_estimator_is_named_and_leaves_nothing(train, tmp_path, estimator, kind, words):
    with pytest.raises(kind, match=words):
        train("mopo", estimator=estimator, steps=60)
    assert not (tmp_path / "run").exists()


def test_an_exception_has_its_own_traceback(train):
    def estimator(obs, act, next_obs):
        return helper(obs)

    def helper(obs):
        raise RuntimeError("here")

    with pytest.raises(RuntimeError, match="here") as caught:
        train("mopo", estimator=estimator, steps=60)
    assert caught.traceback[-1].name == "helper" and caught.traceback[0].name.startswith("test_an_exception")


def test_integers_lists_and_torch_like_answers_will_do(log, train):
    class Tensor:
        def __init__(self, values):
            self.values = values

        def detach(self):
            return self.values

    for number, answer in enumerate((lambda x: x.astype(np.float64), lambda x: x.tolist(), Tensor, lambda x: x[:, None])):
        run = train(
            "mopo", dir=f"run-{number}", steps=40,
            estimator=lambda obs, act, next_obs, answer=answer: answer(np.abs(next_obs).sum(axis=1)),
        )  # fmt: skip
        assert run.finished


def test_an_estimator_that_fails_late_leaves_its_last_checkpoint(train, tmp_path):
    settings = {"steps": 300, "checkpoint_every": 100, "rollout": {**SMALL["rollout"], "every": 50}}

    class Score:
        fails, calls = False, 0

        def score(self, obs, act, next_obs):
            Score.calls += 1
            if Score.fails and Score.calls > 5:
                raise RuntimeError("the disk of the index is gone")
            return np.abs(next_obs).sum(axis=1)

        def max_loo(self):
            return 5.0

    whole = train("mopo", dir="whole", estimator=Score(), **settings)
    Score.fails, Score.calls = True, 0
    with pytest.raises(RuntimeError, match="the disk"):
        train("mopo", dir="cut", estimator=Score(), **settings)
    assert list((tmp_path / "cut" / "checkpoints").iterdir())
    Score.fails = False
    assert outcome(train("mopo", dir="cut", estimator=Score(), **settings)) == outcome(whole)


def test_another_estimator_does_not_go_on_with_the_run(log, train):
    train("mopo", steps=40, estimator=OwnSumo(log))
    with pytest.raises(ValueError, match="another configuration"):
        train("mopo", steps=40, estimator=lambda obs, act, next_obs: next_obs[:, 0])


def test_promises_can_be_checked_beforehand(log):
    offing.check_estimator(OwnSumo(log), log)
    offing.check_estimator(offing.Sumo(log.observations, log.actions, log.next_observations), log)
    broken = {
        "alone": lambda obs, act, next_obs: next_obs[:, 0] - next_obs[:, 0].mean(),
        "asked again": lambda obs, act, next_obs: next_obs[:, 0] + np.random.random(len(obs)),
        "every row has the score": lambda obs, act, next_obs: np.ones(len(obs)),
    }
    for words, estimator in broken.items():
        with pytest.raises(ValueError, match=words):
            offing.check_estimator(estimator, log)


def test_termination_reward_and_dynamics_of_ones_own(log, train):
    model = {"ensemble": SMALL["model"]["ensemble"]}
    steps = {"steps": 60, "model": model}
    never = train(dir="never", steps=60)
    mine = train(dir="mine", termination=lambda obs, act, next_obs: np.zeros(len(obs)), **steps)
    assert outcome(mine) == outcome(never), "a rule that never ends an episode is `never`"
    ended = train(dir="ended", termination=lambda obs, act, next_obs: np.hypot(*next_obs[:, :2].T) > 1.0, **steps)
    assert ended.metrics["terminated"][-1] > 0

    known = train(dir="reward", reward=lambda obs, act, next_obs: 1 - np.hypot(*next_obs[:, :2].T), **SMALL_STEPS)
    assert np.isfinite(known.metrics["model_return"]).all() and known.config["settings"]["model"]["reward"]
    low = train(dir="low", reward=lambda obs, act, next_obs: np.full(len(obs), -7.0) + 0 * act[:, 0] + (obs[:, 0] > 0), **SMALL_STEPS)
    # 60 steps of the followed policy, each -7 or -6.
    assert -420 <= low.metrics["model_return"][-1] <= -360

    still = train(dir="still", dynamics=lambda obs, act, next_obs: obs, reward=lambda obs, act, next_obs: next_obs[:, 0] - obs[:, 0], **SMALL_STEPS)
    assert still.metrics["model_return"][-1] == 0, "nothing moves in this model"
    assert never.config["settings"]["model"].get("dynamics") is None


SMALL_STEPS = {"steps": 40}


def test_functions_that_raise_or_answer_nonsense(log, train, tmp_path):
    model = {"ensemble": SMALL["model"]["ensemble"]}
    for name, function in {
        "termination": lambda obs, act, next_obs: 1 / 0,
        "dynamics": lambda obs, act, next_obs: 1 / 0,
    }.items():
        more = {"model": model} if name == "termination" else {}
        with pytest.raises(ZeroDivisionError):
            train(**{name: function}, steps=60, **more)
        assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="dynamics: wanted an array of shape"):
        train(dynamics=lambda obs, act, next_obs: obs[:, :2], steps=60)
    with pytest.raises(ValueError, match="reward: wanted finite"):
        train(reward=lambda obs, act, next_obs: np.full(len(obs), np.inf), steps=60)
    with pytest.raises(TypeError, match="termination: wanted a function"):
        train(termination="never", steps=60)
    with pytest.raises(ValueError, match="model.dynamics: wanted none, as Landfall differentiates the model"):
        train("landfall", dynamics=lambda obs, act, next_obs: obs, steps=60, rollout=None, unroll={"starts": 9})
    relabelled = train("td3bc", reward=lambda obs, act, next_obs: -next_obs[:, 0], steps=20, model=None, sac=None, rollout=None)
    assert relabelled.config["data"] != train("td3bc", dir="as-logged", steps=20, model=None, sac=None, rollout=None).config["data"]


def test_a_run_with_functions_is_not_gone_on_with_by_others(train, tmp_path):
    import subprocess
    import sys

    run = train("mopo", steps=40, estimator=lambda obs, act, next_obs: np.abs(next_obs).sum(axis=1))
    done = subprocess.run(
        [sys.executable, "-m", "offing", "train", "--resume", str(run.path)], capture_output=True, text=True
    )
    assert done.returncode != 0 and "\n" not in done.stderr.strip()
