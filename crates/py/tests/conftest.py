"""What the tests share."""

import numpy as np
import pytest

import offing


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(800, 6)).astype(np.float32)


@pytest.fixture
def data():
    """Transitions: observations, actions, next observations, rewards."""
    rng = np.random.default_rng(0)
    obs, act = rng.normal(size=(600, 3)), rng.normal(size=(600, 2))
    return obs.astype(np.float32), act.astype(np.float32), (obs + 0.1).astype(np.float32), rng.random(600)


@pytest.fixture(scope="session")
def log():
    """A logged dataset of offing's point mass: noisy steps towards the origin, in episodes of 60."""
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
