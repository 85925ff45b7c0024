"""Policies: what a training brings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offing import _offing
from offing._arrays import array


class Policy:
    """A trained policy. Calling it gives actions, so it fits into a Gymnasium loop: ``env.step(policy(obs))``.

    ``path`` is a policy file (.safetensors) or a run directory, whose last policy is taken. Observations and actions are in
    the units of the log. A policy pickles and copies with its weights, so it goes to other processes and machines.

    >>> policy = run.policy          # of a training; see :func:`offing.train`
    >>> policy
    Policy(4 observed, 2 acted)
    >>> import pickle, numpy as np
    >>> obs = np.ones(4)
    >>> bool((pickle.loads(pickle.dumps(policy))(obs) == policy(obs)).all())
    True
    """

    __slots__ = ("_native", "path")

    def __init__(self, path: str | Path) -> None:
        found = Path(path)
        self.path: Path | None = found / "policy.safetensors" if found.is_dir() else found
        self._native = _offing.Policy(self.path)

    @classmethod
    def load(cls, path: str | Path) -> Policy:
        """The policy of a file or of a run directory; the same as ``Policy(path)``."""
        return cls(path)

    @classmethod
    def _of(cls, native: _offing.Policy, path: Path | None = None) -> Policy:
        policy = object.__new__(cls)
        policy._native, policy.path = native, path
        return policy

    def save(self, path: str | Path) -> Path:
        """Writes the policy as .safetensors, for ``Policy.load`` and ``offing act``."""
        path = Path(path)
        path.write_bytes(self._native.to_bytes())
        return path

    def __call__(self, obs: Any, seed: int | None = None) -> NDArray[np.float32]:
        """The mean action for an observation or a batch of them; a sampled one with a ``seed``."""
        found = array(obs, "obs")
        if found.ndim not in (1, 2):
            raise ValueError(f"obs: wanted one observation or a matrix of them, found {found.ndim} axes")
        act = self._native.act(np.atleast_2d(found), seed)
        return act if found.ndim == 2 else act[0]

    @property
    def obs_dim(self) -> int:
        """Width of an observation."""
        return self._native.obs_dim

    @property
    def act_dim(self) -> int:
        """Width of an action."""
        return self._native.act_dim

    def __repr__(self) -> str:
        return f"Policy({self.obs_dim} observed, {self.act_dim} acted)"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self._native.to_bytes(), self.path)


def _unpickle(content: bytes, path: Path | None) -> Policy:
    return Policy._of(_offing.Policy.from_bytes(content), path)
