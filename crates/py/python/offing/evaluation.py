"""Scoring policies in environments of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

from offing._arrays import array, count
from offing.policy import Policy

#: A Gymnasium environment, the id of one, or a function that makes one.
EnvLike: TypeAlias = Union[str, Callable[[], Any], Any]

#: Environments that step side by side.
_SIDE_BY_SIDE = 32

#: An episode this long has no time limit.
_ENDLESS = 100_000


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns and lengths of episodes."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(self.returns.mean())

    @property
    def std(self) -> float:
        """Standard deviation of the returns; 0 for one episode."""
        return float(self.returns.std(ddof=1)) if len(self.returns) > 1 else 0.0

    def __repr__(self) -> str:
        return f"Evaluation(return {self.mean:.4g} ± {self.std:.2g} over {len(self.returns)} episodes)"


def evaluate(policy: Callable[[Any], Any], env: EnvLike, episodes: int = 10, seed: int = 0) -> Evaluation:
    """Plays episodes with a policy, or with any function from an observation to an action.

    ``env`` is a Gymnasium environment, the id of one, or a function that makes one; from an id or a function, several
    environments are made and step side by side. Episode i is seeded by (``seed``, i) alone.

    >>> evaluate(lambda obs: -obs[:2] - obs[2:], lambda: SimEnv("point-mass"), episodes=5).returns.shape
    (5,)
    """
    return EnvScorer(env).play(policy, count(episodes, "episodes"), seed)


class EnvScorer:
    """Environments of one kind and the episodes in them."""

    def __init__(self, env: EnvLike) -> None:
        self._make: Callable[[], Any] | None = None
        self._envs: list[Any] = []
        if isinstance(env, str):
            try:
                import gymnasium
            except ImportError:
                raise ImportError("env: an id needs Gymnasium, which is not installed; pip install 'offing[gym]'") from None

            self._make = lambda: gymnasium.make(env)
        elif hasattr(env, "reset") and hasattr(env, "step") and not isinstance(env, type):
            self._envs = [env]
        elif callable(env):
            self._make = env
        else:
            raise TypeError(
                "env: wanted a Gymnasium environment, the id of one or a function that makes one, found "
                f"{type(env).__name__}"
            )

    @property
    def first(self) -> Any:
        """One of the environments."""
        return self._some(1)[0]

    def _some(self, wanted: int) -> list[Any]:
        while self._make is not None and len(self._envs) < wanted:
            self._envs.append(self._make())
        return self._envs[:wanted]

    def close(self) -> None:
        """Closes the environments that were made here."""
        if self._make is not None:
            for env in self._envs:
                env.close()
            self._envs = []

    def check(self, obs_dim: int, act_dim: int, low: Sequence[float], high: Sequence[float]) -> str | None:
        """Refuses an environment that a policy learnt from such data cannot act in; what is odd about it otherwise."""
        env = self.first
        for name, wanted in (("observation", obs_dim), ("action", act_dim)):
            space = getattr(env, f"{name}_space", None)
            shape = getattr(space, "shape", None)
            if space is None or shape is None or not hasattr(space, "low"):
                hint = " (wrap it in gymnasium.wrappers.FlattenObservation)" if name == "observation" else ""
                raise ValueError(f"env: wanted a Box as {name}_space, found {space}{hint}")
            found = int(np.prod(shape))
            if found != wanted:
                raise ValueError(f"env: wanted {name}s of {wanted} numbers, as in the data, found {found} ({space})")
        space = env.action_space
        beyond = (np.array(low) < space.low.ravel() - 1e-6) | (np.array(high) > space.high.ravel() + 1e-6)
        if beyond.any():
            i = int(np.flatnonzero(beyond)[0])
            return (
                f"logged actions go from {low[i]:g} to {high[i]:g} in column {i}, where env.action_space has "
                f"{space.low.ravel()[i]:g} to {space.high.ravel()[i]:g}; actions are clipped to it"
            )
        return None

    def play(self, policy: Callable[[Any], Any], episodes: int, seed: int) -> Evaluation:
        """Plays episodes; which environment plays which makes no difference."""
        act_on = _batched(policy)
        waiting = list(range(episodes))[::-1]
        returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
        envs = self._some(min(episodes, _SIDE_BY_SIDE))
        space = getattr(envs[0], "action_space", None)

        def begin(env: Any) -> tuple[Any, int, Any]:
            episode = waiting.pop()
            start = np.random.SeedSequence([seed, episode]).generate_state(1)[0] >> 1
            obs, _ = env.reset(seed=int(start))
            return env, episode, obs

        playing = [begin(env) for env in envs if waiting]
        while playing:
            seen = np.stack([np.asarray(obs, np.float32).ravel() for _, _, obs in playing])
            actions = act_on(seen)
            still = []
            for (env, episode, _), action in zip(playing, actions):
                obs, reward, terminated, truncated, *_ = env.step(_fit(action, space))
                returns[episode] += float(reward)
                lengths[episode] += 1
                if lengths[episode] >= _ENDLESS:
                    raise ValueError(
                        f"env: an episode has taken {_ENDLESS} steps; give it an end with gymnasium.wrappers.TimeLimit"
                    )
                if not (terminated or truncated):
                    still.append((env, episode, obs))
                elif waiting:
                    still.append(begin(env))
            playing = still
        return Evaluation(returns, lengths)


def _batched(policy: Callable[[Any], Any]) -> Callable[[NDArray[np.float32]], Any]:
    """A policy of ours takes all observations at once; any other function, one at a time."""
    if isinstance(policy, Policy):
        return policy
    return lambda seen: [array(policy(obs), "action").ravel() for obs in seen]


def _fit(action: NDArray[np.float32], space: Any) -> Any:
    """The action as the environment's space has it: rounding may carry a number just over the edge."""
    if space is None or not hasattr(space, "low"):
        return action
    return np.clip(action.reshape(space.shape), space.low, space.high).astype(space.dtype)
