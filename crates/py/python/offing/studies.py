"""Studies that return data: calibration, ranking, scores, audits, the paper's tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offing import _offing
from offing._own import Estimator
from offing._settings import name_of, to_lines
from offing.data import DataLike, Dataset, as_dataset
from offing.run import Run
from offing.uncertainty import Sumo


def calibrate(
    data: DataLike,
    *,
    estimators: Sequence[str] | Mapping[str, Any] | None = None,
    seeds: int = 5,
    profile: str | None = None,
    rows: int | None = None,
    dir: str | Path = "runs/calibrate",
    threads: int | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Finds out which estimator knows where the model is wrong; what ``offing calibrate --json`` writes.

    ``estimators`` is a list of ids, or a mapping from names to your own, as :func:`offing.train` takes them; an id in place of an
    estimator stands for itself: ``{"mine": f, "sumo": "sumo"}``. Without it, all of offing's are compared.
    """
    named = estimators if isinstance(estimators, Mapping) else dict.fromkeys(estimators or ())
    ids = [name if given is None else given for name, given in named.items() if given is None or isinstance(given, str)]
    own = [(n, Estimator(given)) for n, given in named.items() if given is not None and not isinstance(given, str)]
    findings: dict[str, Any] = json.loads(
        _offing.calibrate(
            _native(data), estimators=ids, custom=own, seeds=seeds, profile=profile, rows=rows, dir=Path(dir),
            settings=to_lines(settings), threads=threads,
        )  # fmt: skip
    )
    return findings


def check_estimator(estimator: Any, data: DataLike) -> None:
    """Raises ``ValueError`` with the first promise of an estimator that yours does not keep on steps near these data.

    One finite score a row; the same answer each time; each row's score a function of that row alone, to the last bit; ``exceeds``
    in step with ``score``. Functions that look at ``members`` are not checked here: there is no model.

    >>> check_estimator(lambda obs, act, next_obs: abs(next_obs).sum(axis=1), data)
    >>> check_estimator(lambda obs, act, next_obs: next_obs[:, 0] - next_obs[:, 0].mean(), data)
    Traceback (most recent call last):
    ...
    ValueError: estimator: row 0 scores 0 alone and ...
    """
    wrapped = Estimator(estimator)
    if wrapped.members:
        raise ValueError("estimator: wanted one that scores (obs, act, next_obs), found one that looks at members")
    broken = _offing.check_estimator(wrapped, as_dataset(data).columns())
    if broken is not None:
        raise ValueError(f"estimator: {broken}")


def audit(data: DataLike) -> dict[str, Any]:
    """Looks for what would ruin a training: what ``offing data audit --json`` finds, and its verdict.

    >>> found = audit(data)
    >>> found["verdict"], found["rows"]
    ('ok', 1200)
    """
    text, verdict = _offing.audit(_native(data))
    found: dict[str, Any] = {"verdict": json.loads(verdict), **json.loads(text)}
    return found


@dataclass(frozen=True)
class Scores:
    """How far transitions are from a dataset."""

    u: NDArray[np.float32]
    """Score of each transition (Eq. 4)."""
    rows: NDArray[np.uint32]
    """The dataset rows nearest to each transition, nearest first."""
    distances: NDArray[np.float32]
    """Their distances."""
    threshold: float | None
    """The u beyond which a transition raises an alarm."""
    largest: float
    """The largest leave-one-out u of the dataset's own rows."""

    @property
    def alarms(self) -> NDArray[np.bool_]:
        """Which transitions lie beyond the threshold; none without one."""
        return self.u > (np.inf if self.threshold is None else self.threshold)

    def __repr__(self) -> str:
        alarms = "" if self.threshold is None else f", {int(self.alarms.sum())} beyond {self.threshold:.4g}"
        return f"Scores({len(self.u):,} transitions, median u {float(np.median(self.u)):.4g}{alarms})"


def score(
    data: DataLike,
    transitions: DataLike,
    *,
    alpha: float | None = None,
    threshold: float | None = None,
    support: int = 1,
    k: int = 1,
    vector: str = "s+a+s'",
    metric: str = "euclidean",
    columns: str = "raw",
    threads: int | None = None,
) -> Scores:
    """Scores how far transitions are from a dataset, and names the logged rows behind each score.

    Beyond ``alpha`` times the dataset's largest leave-one-out score, or beyond ``threshold``, a transition raises an alarm.

    >>> found = score(data, data, alpha=1.0)
    >>> float(found.u.max()), int(found.alarms.sum()), bool((found.rows[:, 0] == np.arange(1200)).all())
    (0.0, 0, True)
    """
    if alpha is not None and threshold is not None:
        raise ValueError("score: wanted alpha or threshold, found both; leave one out")
    logged, asked = (as_dataset(x).transitions() for x in (data, transitions))
    steps = ("observations", "actions", "next_observations", "rewards")
    sumo = Sumo(*(logged[key] for key in steps), k=k, vector=vector, metric=metric, columns=columns, threads=threads)
    obs, act, next_obs, rewards = (asked[key] for key in steps)
    u, distances, rows = sumo.support(obs, act, next_obs, rewards, rows=support)
    beyond = threshold if alpha is None else sumo.epsilon(alpha)
    return Scores(u, rows, distances, beyond, sumo.epsilon(1.0))


def rank(
    runs: Sequence[str | Path | Run],
    *,
    data: DataLike | None = None,
    online: int = 0,
    seed: int = 0,
    steps: int | None = None,
    length: int | None = None,
    gamma: float | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Ranks the policies of runs without a simulator: what ``offing rank --json`` writes.

    The runs must have learnt from the same transitions. ``data`` gives them where the runs learnt from arrays, which no file holds.
    """
    paths = [run.path if isinstance(run, Run) else Path(run) for run in runs]
    found: dict[str, Any] = json.loads(
        _offing.rank(
            paths, data=None if data is None else _native(data), online=online, seed=seed, steps=steps, length=length,
            gamma=gamma, threads=threads,
        )  # fmt: skip
    )
    return found


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of the paper, as far as it was computed."""

    cells: list[dict[str, Any]]
    """Each cell: what it is, and its state with the numbers found."""
    page: Path
    """The page with the published numbers beside ours."""


def reproduce(
    name: str,
    *,
    profile: str = "quick",
    seeds: int | None = None,
    only: Sequence[str] = (),
    columns: Sequence[str] = (),
    rows: int | None = None,
    dir: str | Path | None = None,
    out: str | Path | None = None,
    threads: int | None = None,
    **settings: Any,
) -> Reproduction:
    """Computes a table or figure of the paper, one cell after another; finished cells are found. See ``offing reproduce``."""
    cells, page = _offing.reproduce(
        name, profile=profile, seeds=seeds, only=list(only), columns=list(columns), rows=rows,
        settings=to_lines(settings), dir=None if dir is None else Path(dir), out=None if out is None else Path(out),
        threads=threads,
    )  # fmt: skip
    return Reproduction(json.loads(cells), Path(page))


def _native(data: DataLike) -> str | dict[str, Any]:
    """Names stay names; arrays go as they are now."""
    return str(data) if isinstance(data, (str, Path)) else as_dataset(data).columns()


__all__ = [
    "Dataset",
    "Reproduction",
    "Scores",
    "audit",
    "calibrate",
    "check_estimator",
    "rank",
    "reproduce",
    "score",
]
