"""Training."""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, Union

from offing import _offing
from offing._own import Estimator, StepFunction
from offing._progress import view
from offing._settings import name_of, to_lines
from offing.data import Dataset, DataLike, as_dataset
from offing.evaluation import EnvLike, EnvScorer
from offing.policy import Policy
from offing.run import Run

_log = logging.getLogger("offing")


class TrainingWarning(UserWarning):
    """Something about the data or the training that a user should know."""


@dataclass(frozen=True)
class TrainingState:
    """What a callback sees."""

    step: int
    """Gradient steps taken."""
    steps: int
    """Gradient steps in all."""
    policy: Policy
    """The policy as it is now."""
    metrics: Mapping[str, Any]
    """The last line of metrics; empty before the first evaluation."""
    path: Path
    """The run directory."""


@dataclass(frozen=True)
class Every:
    """A callback to be called every so many steps.

    >>> seen = []
    >>> log_step = Every(50, lambda state: seen.append(state.step))
    >>> again = train("bc", data, dir=folder / "every", steps=200, callbacks=[log_step], progress=False)
    >>> seen
    [50, 100, 150, 200]
    """

    steps: int
    """Steps between two calls."""
    call: Callable[[TrainingState], Any]
    """What is called."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"callbacks: wanted at least 1 step between two calls, found {self.steps}")


Callback: TypeAlias = Union[Callable[[TrainingState], Any], Every]


def train(
    algorithm: str | DataLike = "landfall",
    data: DataLike | None = None,
    *,
    env: EnvLike | None = None,
    estimator: Any = None,
    termination: Callable[..., Any] | None = None,
    reward: Callable[..., Any] | None = None,
    dynamics: Callable[..., Any] | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = True,
    quiet: bool | None = None,
    dir: str | Path | None = None,
    seed: int = 0,
    profile: str | None = None,
    preset: str | None = None,
    rows: int | None = None,
    threads: int | None = None,
    **settings: Any,
) -> Run:
    """Trains a policy from logged data: ``train(data)`` with Landfall, or ``train("mopo+sumo", data)``.

    The same call goes on with an interrupted run, and finds a finished one. A run's directory is
    ``runs/ALGORITHM/NAME/sSEED-HASH``, where the hash is of all settings and of the data, so the runs of a sweep never meet.

    ``algorithm``
        ``landfall``, ``mopo``, ``amorel``, ``morel``, ``mobile``, ``combo``, ``rambo``, ``td3bc``, ``iql``, ``bc``; with an
        estimator behind a plus: ``mopo+sumo``.
    ``data``
        A :class:`Dataset`, a mapping with its columns, a path, an id or a name. Arrays count as they are now.
    ``env``
        Where policies are scored, every ``evaluate_every`` steps: a Gymnasium environment, the id of one, or a function that
        makes one.
    ``estimator``
        ``u(obs, act, next_obs)``, or ``u(obs, act, next_obs, members)`` to see what every member of the ensemble predicts; or an
        object with ``score`` and, if it likes, ``max_loo()``, ``exceeds(…, threshold)``, ``quantile(share)`` and ``gradient(…)``.
        It takes and gives arrays in the log's units, many rows at once; each row's score depends on that row alone.
    ``termination``, ``reward``
        Functions of ``(obs, act, next_obs)``: which imagined steps end their episode, and what steps are worth. With ``reward`` the
        data's own rewards are replaced, too.
    ``dynamics``
        A function of ``(obs, act, next_obs)`` that changes the next states the model sampled: limits, known physics. Not for
        ``landfall``, which differentiates the model.
    ``callbacks``
        Functions of a :class:`TrainingState`, called at every evaluation; ``Every(n, f)`` calls f every n steps.
    ``progress``
        Shows a bar in a terminal or a notebook. Warnings come as Python's ``warnings`` either way; what else there is to say goes
        to the logger ``offing``. ``quiet=True`` is ``progress=False``.
    ``settings``
        Any of docs/settings.md: ``sac={"hidden": [64, 64]}``, ``sac__hidden=[64, 64]`` or ``**{"sac.hidden": [64, 64]}``; values may
        be NumPy's, tables may be dicts or dataclasses, and ``None`` leaves a setting as it is. ``steps``, ``evaluate_every``,
        ``episodes``, ``checkpoint_every`` and ``snapshot_every`` go without ``train.``.

    Ctrl-C saves a checkpoint and raises ``KeyboardInterrupt``. An exception in a function of yours comes back as it was raised; the
    run keeps its last checkpoint, and the same call goes on from there.

    >>> run = train("bc", data, dir=folder / "run", steps=200, evaluate_every=100, progress=False)
    >>> run.policy(data.observations[:3]).shape
    (3, 2)
    """
    if data is None:
        algorithm, data = "landfall", algorithm
    if not isinstance(algorithm, str):
        raise TypeError(f"algorithm: wanted a name such as \"landfall\", found {type(algorithm).__name__}")
    settings = dict(settings)
    parts: dict[str, Any] = {}
    for kind, function in (("termination", termination), ("reward", reward), ("dynamics", dynamics)):
        parts[kind] = None if function is None else (name_of(function), StepFunction(function, kind))
        if function is not None:
            name = name_of(function)
            settings[f"model.{kind}"] = {"kind": "custom", "name": name} if kind == "termination" else name
    if reward is not None:
        data = _with_rewards(as_dataset(data), parts["reward"][1])
        if _has_no_model(algorithm):
            del settings["model.reward"]
            parts["reward"] = None
    host = Host(env, callbacks, view(progress if quiet is None else not quiet))
    request: dict[str, object] = {
        "algorithm": algorithm,
        "data": data.columns() if isinstance(data := _native_data(data), Dataset) else data,
        "dir": None if dir is None else Path(dir),
        "base_dir": Path("runs"),
        "seed": seed,
        "profile": profile,
        "preset": preset,
        "rows": rows,
        "settings": to_lines(settings),
        "threads": threads,
        "estimator": None if estimator is None else (name_of(estimator), Estimator(estimator)),
        "parts": parts,
        "evaluates": env is not None,
        "watch_every": host.watch_every,
        "progress": host.view is not None,
    }
    try:
        return Run(_offing.train(request, host))
    finally:
        host.close()


def _has_no_model(algorithm: str) -> bool:
    return algorithm.split("+")[0] in ("td3bc", "iql", "bc")


def _native_data(data: DataLike) -> Dataset | str:
    """Names stay names: the library finds and remembers them."""
    return str(data) if isinstance(data, (str, Path)) else as_dataset(data)


def _with_rewards(data: Dataset, reward: StepFunction) -> Dataset:
    """The same transitions with other rewards."""
    columns = data.transitions()
    columns["rewards"] = reward(columns["observations"], columns["actions"], columns["next_observations"])
    return Dataset(**columns)


class Host:
    """What the native half tells about a training; it calls on the thread that called :func:`train`."""

    def __init__(self, env: EnvLike | None, callbacks: Iterable[Callback], shown: Any) -> None:
        self.scorer = None if env is None else EnvScorer(env)
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            if not isinstance(callback, Every) and not callable(callback):
                raise TypeError(f"callbacks: wanted functions or Every(n, f), found {type(callback).__name__}")
        self.view = shown
        self.metrics: dict[str, Any] = {}
        self.path, self.steps = Path(), 0

    @property
    def watch_every(self) -> int | None:
        """Steps after which one of the callbacks is due at the latest; 0 for evaluations only."""
        own = [callback.steps for callback in self.callbacks if isinstance(callback, Every)]
        return math.gcd(*own) if self.callbacks else None

    def begin(
        self, path: Path, steps: int, obs_dim: int, act_dim: int, low: Sequence[float], high: Sequence[float]
    ) -> None:
        """Settings and data are in order; nothing is written yet."""
        self.path, self.steps = Path(path), steps
        odd = None if self.scorer is None else self.scorer.check(obs_dim, act_dim, low, high)
        if odd is not None:
            self.warn(odd, stacklevel=4)

    def note(self, line: str) -> None:
        """Something to say."""
        _log.info(line)

    def warn(self, line: str, stacklevel: int = 3) -> None:
        """Something to worry about."""
        if self.view is not None:
            self.view.clear()
        warnings.warn(TrainingWarning(line), stacklevel=stacklevel)

    def progress(self, what: str, done: int, total: int, last: float | None) -> None:
        """How far it is."""
        if self.view is not None:
            self.view.show(what, done, total, last)

    def recorded(self, line: str) -> None:
        """A line of metrics."""
        self.metrics = json.loads(line)

    def evaluate(self, policy: _offing.Policy, episodes: int, seed: int) -> tuple[list[float], list[int]]:
        """Scores a policy in the user's environment."""
        assert self.scorer is not None
        found = self.scorer.play(Policy._of(policy), episodes, seed)
        return found.returns.tolist(), found.lengths.tolist()

    def policy(self, step: int, policy: _offing.Policy) -> None:
        """Calls the callbacks that are due."""
        state = TrainingState(step, self.steps, Policy._of(policy), dict(self.metrics), self.path)
        for callback in self.callbacks:
            if isinstance(callback, Every):
                if step % callback.steps == 0:
                    callback.call(state)
            elif self.metrics.get("step") == step:
                callback(state)

    def close(self) -> None:
        """Leaves nothing behind."""
        if self.view is not None:
            self.view.clear()
        if self.scorer is not None:
            self.scorer.close()
