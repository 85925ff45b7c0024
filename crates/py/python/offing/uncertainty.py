"""SUMO: how far an imagined step (s, a, s') is from everything in the dataset."""

from __future__ import annotations

import json
import os
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from offing import _offing
from offing._arrays import column, count, matrix, threads_or_all

_F32: TypeAlias = NDArray[np.float32]
_Steps: TypeAlias = tuple[_F32, _F32, _F32, "_F32 | None"]


class Sumo:
    """u(s, a, s') = log(1 + distance to the k-th nearest dataset transition) (Eq. 4 of the paper).

    ``vector`` says what is compared: ``s+a+s'``, ``s+a``, ``s+s'`` or ``s+a+r+s'``; ``metric`` is ``euclidean``,
    ``manhattan`` or ``cosine``; ``columns`` is ``raw`` (the paper's) or ``standardised``.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> s, a = rng.normal(size=(500, 3)), rng.normal(size=(500, 2))
    >>> sumo = Sumo(s, a, s + 0.1, rewards=rng.random(500))
    >>> float(sumo(s, a, s + 0.1).max())        # dataset rows are certain
    0.0
    >>> bool((sumo(s, a, s + 5) > 0).all())
    True
    """

    __slots__ = ("_native", "_settings", "_wants_rewards")

    def __init__(
        self,
        obs: Any,
        act: Any,
        next_obs: Any,
        rewards: Any = None,
        *,
        k: int = 1,
        vector: str = "s+a+s'",
        metric: str = "euclidean",
        columns: str = "raw",
        threads: int | None = None,
    ) -> None:
        settings = {"k": count(k, "k"), "vector": vector, "metric": metric, "columns": columns}
        self._settings = settings
        self._wants_rewards = vector == "s+a+r+s'"
        threads = threads_or_all(threads) or os.cpu_count() or 1
        self._native = _offing.Sumo(self._steps(obs, act, next_obs, rewards), json.dumps(settings), threads)

    def __call__(self, obs: Any, act: Any, next_obs: Any, rewards: Any = None) -> NDArray[np.float32]:
        """u of each row."""
        return self._native.score(self._steps(obs, act, next_obs, rewards))

    def support(
        self, obs: Any, act: Any, next_obs: Any, rewards: Any = None, rows: int = 1
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint32]]:
        """u of each row, and the distances and numbers of the ``rows`` dataset rows nearest to it."""
        steps = self._steps(obs, act, next_obs, rewards)
        u, (distances, numbers) = self._native.support(steps, count(rows, "rows"))
        return u, distances, numbers

    def epsilon(self, alpha: float = 1.0) -> float:
        """ε = alpha · the dataset's largest leave-one-out u (Eq. 7)."""
        return self._native.epsilon(alpha)[0]

    def radius(self, alpha: float = 1.0) -> float:
        """ε as a distance: steps farther than this from every dataset row are beyond it."""
        return self._native.epsilon(alpha)[1]

    def truncate(
        self, obs: Any, act: Any, next_obs: Any, rewards: Any = None, alpha: float = 1.0
    ) -> NDArray[np.bool_]:
        """Which rows to cut: u > ε. Searches for yes or no only."""
        return self._native.truncate(self._steps(obs, act, next_obs, rewards), alpha)

    def max_loo(self) -> float:
        """The dataset's largest leave-one-out u: what makes this usable as ``train(…, estimator=sumo)``, with the next three."""
        return self.epsilon(1.0)

    def exceeds(self, obs: Any, act: Any, next_obs: Any, threshold: float) -> NDArray[np.bool_]:
        """Which rows have u > ``threshold``. Searches for yes or no only."""
        return self._native.exceeds(self._steps(obs, act, next_obs, None), threshold)

    def quantile(self, share: float) -> float:
        """The leave-one-out u that this share of the dataset's rows stay below."""
        return self._native.quantile(share)

    def gradient(self, obs: Any, act: Any, next_obs: Any) -> tuple[_F32, _F32, _F32, _F32]:
        """u of each row, and its gradients by s, a and s': away from the nearest logged transition."""
        return self._native.gradient(self._steps(obs, act, next_obs, None))

    def penalty(
        self, rewards: Any, u: Any, lam: float = 1.0, reward_range: float | None = None
    ) -> NDArray[np.float32]:
        """Rewards less ``lam`` · u / (the dataset's largest leave-one-out u) · r_max (Eq. 6).

        r_max is ``reward_range``, or the range of the rewards that the dataset was given with.
        """
        return self._native.penalise(column(rewards, "rewards"), column(u, "u"), lam, reward_range)

    def __len__(self) -> int:
        return len(self._native)

    def __repr__(self) -> str:
        chosen = ", ".join(f"{key}={value}" for key, value in self._settings.items())
        return f"Sumo({len(self):,} transitions, {chosen})"

    def _steps(self, obs: Any, act: Any, next_obs: Any, rewards: Any) -> _Steps:
        if self._wants_rewards and rewards is None:
            raise ValueError("Sumo: the search vector s+a+r+s' needs rewards, found none")
        rewards = None if rewards is None else column(rewards, "rewards")
        return matrix(obs, "obs"), matrix(act, "act"), matrix(next_obs, "next_obs"), rewards
