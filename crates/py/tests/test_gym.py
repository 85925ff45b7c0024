"""offing's simulators judged by Gymnasium."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import offing.gym
from offing.gym import SimEnv


@pytest.mark.parametrize("task", ["point-mass", "hopper", "halfcheetah", "walker2d", "antmaze-umaze"])
def test_gymnasiums_own_check_passes(task):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Velocities have no bounds, and offing does not draw.
        warnings.filterwarnings("ignore", message=".*infinity.*")
        warnings.filterwarnings("ignore", message=".*render.*")
        check_env(gymnasium.make(f"offing/{task}-v0", disable_env_checker=True).unwrapped)


def test_episodes_follow_from_their_seed_and_states_can_be_set():
    a, b = SimEnv("hopper"), SimEnv("hopper")
    assert (a.reset(seed=3)[0] == b.reset(seed=3)[0]).all()
    act = np.full(3, 0.3, np.float32)
    for _ in range(5):
        a.step(act)
    state = a.state()
    # Both are put there: MuJoCo's solver starts from its last solution, which is not part of a state.
    assert (a.set_state(*state) == b.set_state(*state)).all()
    after = a.step(act)
    assert (after[0] == b.step(act)[0]).all()
    assert after[0].dtype == np.float64 and a.horizon == 1000


def test_the_time_limit_is_the_tasks_own():
    env = gymnasium.make("offing/point-mass-v0")
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(60)]
    assert ends == [(False, False)] * 59 + [(False, True)]


def test_bad_input_is_refused_in_one_line():
    with pytest.raises(ValueError, match="hopper"):
        SimEnv("hoper")
    with pytest.raises(ValueError, match="d4rl-v2"):
        SimEnv("hopper", physics="d4rl")
    env = SimEnv("point-mass")
    env.reset(seed=0)
    for bad in (np.zeros(3), np.array([np.nan, 0])):
        with pytest.raises(ValueError, match="wanted 2 finite numbers"):
            env.step(bad)
    with pytest.raises(ValueError, match="render_mode"):
        SimEnv("point-mass", render_mode="human")
    assert "point-mass" in offing.gym.TASKS
