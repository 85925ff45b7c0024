"""What a user's own functions must answer: shapes and types are checked here, before the native half sees them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from offing._arrays import column, matrix

_F32: TypeAlias = NDArray[np.float32]


class Members(NamedTuple):
    """What every member of the ensemble predicts for (s', r): arrays of (member, row, observation width + 1), reward last."""

    mean: _F32
    std: _F32


class Estimator:
    """An estimator as the native half calls it. ``given`` is a function, or an object with ``score``."""

    def __init__(self, given: Any) -> None:
        self.given = given
        self._score: Callable[..., Any] = given.score if hasattr(given, "score") else given
        if not callable(self._score):
            raise TypeError(
                f"estimator: wanted a function u(obs, act, next_obs) or an object with `score`, found {type(given).__name__}"
            )
        self.members = _wants_members(self._score)
        self.own_exceeds = hasattr(given, "exceeds")
        self.own_max_loo = hasattr(given, "max_loo")
        self.own_quantile = hasattr(given, "quantile")
        self.own_gradient = hasattr(given, "gradient")

    def score(self, obs: _F32, act: _F32, next_obs: _F32, members: tuple[_F32, _F32] | None) -> _F32:
        """One finite score a row."""
        return _finite(_column(self._score(*self._args(obs, act, next_obs, members)), len(obs), "estimator"))

    def exceeds(
        self, obs: _F32, act: _F32, next_obs: _F32, members: tuple[_F32, _F32] | None, threshold: float
    ) -> NDArray[np.bool_]:
        """Whether each row's score is above the threshold."""
        answer = self.given.exceeds(*self._args(obs, act, next_obs, members), threshold)
        return np.ascontiguousarray(_column(answer, len(obs), "estimator.exceeds") != 0)

    def gradient(
        self, obs: _F32, act: _F32, next_obs: _F32, members: tuple[_F32, _F32] | None
    ) -> tuple[_F32, _F32, _F32, _F32]:
        """Scores and their gradients by (s, a, s')."""
        found = self.given.gradient(*self._args(obs, act, next_obs, members))
        if not isinstance(found, tuple) or len(found) != 4:
            raise ValueError("estimator.gradient: wanted four arrays (u, du/ds, du/da, du/ds'), found something else")
        u = _finite(_column(found[0], len(obs), "estimator.gradient"))
        parts = [
            _finite(_like(part, rows.shape, "estimator.gradient")) for part, rows in zip(found[1:], (obs, act, next_obs))
        ]
        return u, parts[0], parts[1], parts[2]

    def max_loo(self) -> float:
        """The largest score of the data's own rows, each without help from itself."""
        largest = float(_called(self.given.max_loo))
        if not np.isfinite(largest):
            raise ValueError(f"estimator.max_loo: wanted a finite number, found {largest}")
        return largest

    def quantile(self, share: float) -> float:
        """The score that this share of the data's own rows stay below."""
        return float(self.given.quantile(share))

    def _args(self, obs: _F32, act: _F32, next_obs: _F32, members: tuple[_F32, _F32] | None) -> tuple[Any, ...]:
        return (obs, act, next_obs) if members is None else (obs, act, next_obs, Members(*members))


class StepFunction:
    """A function of steps (s, a, s') as the native half calls it."""

    def __init__(self, given: Callable[..., Any], kind: str) -> None:
        if not callable(given):
            raise TypeError(f"{kind}: wanted a function of (obs, act, next_obs), found {type(given).__name__}")
        self.given, self.kind = given, kind

    def __call__(self, obs: _F32, act: _F32, next_obs: _F32) -> NDArray[Any]:
        answer = self.given(obs, act, next_obs)
        if self.kind == "dynamics":
            return _like(answer, next_obs.shape, "dynamics")
        found = _column(answer, len(obs), self.kind)
        if self.kind == "termination":
            return np.ascontiguousarray(found != 0)
        return _finite(found, "reward")


def _wants_members(function: Callable[..., Any]) -> bool:
    """Whether a function has a fourth argument without a default, or one called ``members``."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if any(parameter.name == "members" for parameter in parameters):
        return True
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [p for p in parameters if p.kind in places and p.default is inspect.Parameter.empty]
    return len(needed) >= 4


def _called(thing: Any) -> Any:
    return thing() if callable(thing) else thing


def _column(answer: Any, rows: int, kind: str) -> _F32:
    if answer is None:
        raise ValueError(f"{kind}: wanted {rows} numbers, found None; does the function return?")
    found = column(answer, kind)
    if len(found) != rows:
        raise ValueError(f"{kind}: wanted {rows} numbers, one for each row, found {len(found)}")
    return found


def _like(answer: Any, shape: tuple[int, ...], kind: str) -> _F32:
    found = matrix(answer, kind)
    if found.shape != shape:
        raise ValueError(f"{kind}: wanted an array of shape {shape}, found {found.shape}")
    return found


def _finite(found: _F32, kind: str = "estimator") -> _F32:
    bad = np.flatnonzero(~np.isfinite(found).reshape(len(found), -1).all(axis=1))
    if len(bad):
        raise ValueError(f"{kind}: wanted finite numbers, found {found[bad[0]]} in row {bad[0]} of {len(found)}")
    return found
