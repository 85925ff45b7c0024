"""d3rlpy: its datasets in, policies that its evaluators take out.

``offing.train("landfall", mdp_dataset)`` takes an ``MDPDataset`` as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from offing.data import Dataset
from offing.policy import Policy


def from_mdp_dataset(dataset: Any, name: str = "mdp-dataset") -> Dataset:
    """A d3rlpy ``MDPDataset`` (or any of its replay buffers) as a :class:`Dataset`.

    d3rlpy keeps no observation after the last step of an episode, so next observations follow from the next row, and a last step
    without one is left out where a training needs it.
    """
    parts: dict[str, list[Any]] = {key: [] for key in ("observations", "actions", "rewards", "terminals", "timeouts")}
    for episode in dataset.episodes:
        last = np.zeros(len(episode.rewards), bool)
        last[-1] = True
        for key in ("observations", "actions"):
            values = getattr(episode, key)
            if not isinstance(values, np.ndarray):
                raise ValueError(f"{key}: wanted one array for an episode, found {type(values).__name__}")
            parts[key].append(values.reshape(len(last), -1))
        parts["rewards"].append(np.asarray(episode.rewards).reshape(-1))
        parts["terminals"].append(last & bool(episode.terminated))
        parts["timeouts"].append(last & (not episode.terminated))
    columns: dict[str, Any] = {key: np.concatenate(values) for key, values in parts.items()}
    return Dataset(**columns, name=name)


class D3RLPolicy:
    """A policy as d3rlpy's evaluators call one: ``EnvironmentEvaluator(env)(D3RLPolicy(policy), dataset)``."""

    action_scaler = None
    observation_scaler = None
    reward_scaler = None

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def predict(self, x: Any) -> NDArray[np.float32]:
        """Mean actions for a batch of observations."""
        found: NDArray[np.float32] = self.policy(np.asarray(x))
        return found

    def sample_action(self, x: Any) -> NDArray[np.float32]:
        """Sampled actions for a batch of observations."""
        return self.policy(np.asarray(x), seed=int(np.random.default_rng().integers(2**31)))
