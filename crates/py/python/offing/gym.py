"""offing's simulators as Gymnasium environments.

Importing this module registers them, so ``gymnasium.make("offing.gym:offing/hopper-v0")`` works as well.

>>> env = SimEnv("point-mass")
>>> obs, info = env.reset(seed=0)
>>> obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
>>> obs.shape, env.action_space.shape
((4,), (2,))
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from offing import _offing
from offing._arrays import array

TASKS: tuple[str, ...] = ("point-mass", *_offing.TASKS)


class SimEnv(gymnasium.Env[NDArray[np.float64], NDArray[np.float32]]):
    """A task of offing: hopper, halfcheetah, walker2d, ant, antmaze-umaze, antmaze-medium, antmaze-large, point-mass.

    ``physics`` is ``d4rl-v2`` (what D4RL's datasets were recorded with), ``gymnasium-v4``,
    ``gymnasium-v5`` or ``mujoco-1.50`` (gym-v2 before D4RL's v2 data).
    ``reset(seed=n)`` starts the very episode that offing's own evaluation starts with seed n. MuJoCo is fetched on first use.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, task: str, physics: str = "d4rl-v2", render_mode: str | None = None) -> None:
        if render_mode is not None:
            raise ValueError(f"render_mode: wanted None, found {render_mode!r}; offing does not draw its simulators")
        self._sim = _offing.Simulator(task, physics)
        self.render_mode = None
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (self._sim.obs_dim,), np.float64)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self._sim.act_dim,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        """Starts an episode; without a seed, one drawn from the generator that the last seed began."""
        super().reset(seed=seed)
        start = int(self.np_random.integers(2**63)) if seed is None else seed
        return self._sim.reset(start), {}

    def step(
        self, action: Any
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        """One control interval. ``truncated`` tells that the task's own time limit is reached."""
        obs, reward, terminated, truncated = self._sim.step(array(action, "action").ravel())
        return obs, reward, terminated, truncated, {}

    @property
    def horizon(self) -> int:
        """Steps after which an episode is cut."""
        return self._sim.horizon

    def state(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Positions, velocities and goal (empty where the task has none)."""
        return self._sim.state()

    def set_state(self, qpos: Any, qvel: Any, goal: Any = ()) -> NDArray[np.float64]:
        """Puts the simulator into exactly this state and returns its observation."""
        return self._sim.set_state(*(np.asarray(x, dtype=np.float64).ravel() for x in (qpos, qvel, goal)))

    def resume_from(self, obs: Any) -> list[int]:
        """Puts the simulator where an observation was made; returns the entries whose true value it hides (clipped)."""
        return self._sim.resume_from(np.asarray(obs, dtype=np.float64).ravel())


def register() -> None:
    """Makes the tasks known to Gymnasium as ``offing/<task>-v0``."""
    for task in TASKS:
        name = f"offing/{task}-v0"
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point="offing.gym:SimEnv", kwargs={"task": task})


register()
