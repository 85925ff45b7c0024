"""What the tests share."""

import numpy as np
import pytest

import offing

# Small enough for seconds, large enough to learn something.
SMALL = {
    "model": {
        "ensemble": {"members": 3, "elites": 2, "hidden": [32, 32], "decay": [0.0, 0.0, 0.0], "max_epochs": 5},
        "termination": {"kind": "never"},
    },
    "sac": {"hidden": [32, 32]},
    "train": {"batch": 64},
    "rollout": {"starts": 200, "length": 2},
}


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(800, 6)).astype(np.float32)


@pytest.fixture
def data():
    """Transitions: observations, actions, next observations, rewards."""
    rng = np.random.default_rng(0)
    obs, act = rng.normal(size=(600, 3)), rng.normal(size=(600, 2))
    return obs.astype(np.float32), act.astype(np.float32), (obs + 0.1).astype(np.float32), rng.random(600)


def point_mass_log():
    from offing.gym import SimEnv

    env, rng = SimEnv("point-mass"), np.random.default_rng(0)
    columns = {key: [] for key in ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")}
    for episode in range(20):
        obs, _ = env.reset(seed=episode)
        over = False
        while not over:
            act = np.clip(-obs[:2] - obs[2:] + rng.normal(scale=0.5, size=2), -1, 1).astype(np.float32)
            after, reward, terminated, truncated, _ = env.step(act)
            for key, value in zip(columns, (obs, act, reward, after, terminated, truncated)):
                columns[key].append(value)
            obs, over = after, terminated or truncated
    return offing.Dataset(**{key: np.array(value) for key, value in columns.items()}, name="point-mass-log")


@pytest.fixture(scope="session")
def log():
    """A logged dataset of offing's point mass: noisy steps towards the origin, in episodes of 60."""
    return point_mass_log()


@pytest.fixture
def train(log, tmp_path):
    """A training of a second or two; ``dir`` is a name in the test's own directory."""

    def run(algorithm="mopo+sumo", data=None, *, dir="run", steps=600, **more):
        settings = {**SMALL, **{key: value for key, value in more.items() if key in SMALL}}
        arguments = {key: value for key, value in more.items() if key not in SMALL}
        where = None if dir is None else tmp_path / dir
        return offing.train(
            algorithm, log if data is None else data, dir=where, steps=steps, progress=False, **settings, **arguments
        )

    return run
