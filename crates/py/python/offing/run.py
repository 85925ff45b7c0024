"""Runs: trainings in their directories."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offing import _offing
from offing.policy import Policy


class Metrics(Mapping[str, NDArray[Any]]):
    """What a run recorded: one array for each name, one entry for each evaluation. docs/metrics.md says what they are.

    >>> run.metrics["step"].tolist()
    [100, 200]
    >>> list(run.metrics)
    ['step', 'cloning_loss']
    """

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        names = dict.fromkeys(name for line in lines for name in line)
        self._columns = {name: _array([line.get(name) for line in lines]) for name in names}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._columns:
            raise KeyError(f"{name}: wanted one of {', '.join(self._columns)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        count = len(next(iter(self._columns.values()), ()))
        return f"Metrics({count} evaluations: {', '.join(self._columns)})"

    def to_pandas(self) -> Any:
        """A pandas DataFrame with one row for each evaluation."""
        import pandas

        return pandas.DataFrame(self._columns)


def _array(values: list[Any]) -> NDArray[Any]:
    if all(isinstance(value, int) for value in values):
        return np.array(values, np.int64)
    numbers = [np.nan if value is None else value for value in values]
    return np.array(numbers, None if any(isinstance(v, (str, list, dict)) for v in numbers) else np.float64)


class Run:
    """A training in its directory: its policies, metrics, configuration and report.

    :func:`offing.train` returns one; ``Run(path)`` opens any that exists.

    >>> run.finished, run.policy
    (True, Policy(4 observed, 2 acted))
    >>> run.config["algorithm"], run.config["settings"]["train"]["steps"]
    ('bc', 200)
    >>> run.report().name
    'report.html'
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config: dict[str, Any] = json.loads(_offing.read_config(self.path))

    @property
    def finished(self) -> bool:
        """Whether it has taken all its steps; the call that began it goes on with it otherwise."""
        return (self.path / "policy.safetensors").is_file()

    @property
    def policy(self) -> Policy:
        """The policy after the last step."""
        if not self.finished:
            raise ValueError(f"{self.path}: wanted a finished run, found one to go on with; repeat the call that began it")
        return Policy(self.path)

    @property
    def best(self) -> Policy | None:
        """The policy of the evaluation with the highest return. Choosing by it uses the environment: report both."""
        return self._maybe("best.safetensors")

    @property
    def picked(self) -> Policy | None:
        """The policy with the highest return in the model, chosen from the data alone."""
        return self._maybe("picked.safetensors")

    @property
    def snapshots(self) -> dict[int, Path]:
        """Policies kept on the way (``snapshot_every``), by step; :meth:`Policy.load` reads them."""
        found = {int(path.stem.split("-")[1]): path for path in self.path.glob("snapshots/step-*.safetensors")}
        return dict(sorted(found.items()))

    @property
    def metrics(self) -> Metrics:
        """What it recorded so far."""
        lines = (self.path / "metrics.jsonl").read_text().splitlines()
        return Metrics([json.loads(line) for line in lines if line])

    @property
    def behaviour_return(self) -> float | None:
        """Mean return of the data's own finished episodes: what a policy has to beat."""
        found: float | None = json.loads((self.path / "data.json").read_text())["return"]
        return found

    def report(self) -> Path:
        """Writes the run's page of curves and tables; its path."""
        return Path(_offing.write_report(self.path))

    def _maybe(self, name: str) -> Policy | None:
        path = self.path / name
        return Policy(path) if path.is_file() else None

    def __repr__(self) -> str:
        state = "finished" if self.finished else "unfinished"
        return f"Run({self.config['algorithm']} on {self.config['dataset']}, seed {self.config['seed']}, {state}: {self.path})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the last numbers, and the curve of returns where there is one."""
        metrics = self.metrics
        rows = [("run", str(self.path)), ("state", "finished" if self.finished else "unfinished")]
        if self.behaviour_return is not None:
            rows.append(("return of the data's episodes", f"{self.behaviour_return:.4g}"))
        for name in ("return", "score", "model_return"):
            if name in metrics and np.isfinite(metrics[name]).any():
                rows.append((f"{name}, last / best", f"{metrics[name][-1]:.4g} / {np.nanmax(metrics[name]):.4g}"))
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in rows
        )
        title = html.escape(f"{self.config['algorithm']} on {self.config['dataset']}, seed {self.config['seed']}")
        return f"<div><b>{title}</b><table>{cells}</table>{_curve(metrics, self.behaviour_return)}</div>"


def _curve(metrics: Metrics, level: float | None) -> str:
    """The returns over the steps as a small drawing, with the data's own level dashed."""
    name = "return" if "return" in metrics else "model_return"
    if name not in metrics:
        return ""
    kept = np.isfinite(metrics[name])
    x, y = metrics["step"][kept].astype(float), metrics[name][kept]
    if len(x) < 2:
        return ""
    levels = [level] if level is not None and name == "return" else []
    low, high = min([*y, *levels]), max([*y, *levels])
    width, height, left, pad = 460, 150, 64, 12
    spread = (high - low) or 1.0

    def across(value: float) -> float:
        return float(left + (width - left - pad) * (value - x[0]) / ((x[-1] - x[0]) or 1.0))

    def up(value: float) -> float:
        return float(height - 22 - (height - 22 - pad) * (value - low) / spread)

    text = "font-size='11' fill='currentColor' font-family='sans-serif'"
    points = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in zip(x, y))
    dashed = "".join(
        f"<line x1='{left}' x2='{width - pad}' y1='{up(v):.1f}' y2='{up(v):.1f}' stroke='#888' stroke-dasharray='4 3'/>"
        f"<text x='{width - pad}' y='{up(v) - 4:.1f}' text-anchor='end' {text}>the data's episodes</text>"
        for v in levels
    )
    labels = (
        f"<text x='{left - 6}' y='{up(high) + 4:.0f}' text-anchor='end' {text}>{high:.4g}</text>"
        f"<text x='{left - 6}' y='{up(low) + 4:.0f}' text-anchor='end' {text}>{low:.4g}</text>"
        f"<text x='{left}' y='{height - 6}' {text}>step {x[0]:,.0f}</text>"
        f"<text x='{width - pad}' y='{height - 6}' text-anchor='end' {text}>{x[-1]:,.0f}</text>"
    )
    kind = "return" if name == "return" else "return in the model"
    return (
        f"<svg width='{width}' height='{height}' role='img' aria-label='{kind} over steps'>"
        f"<title>{kind} over steps; dashed: the data</title>{dashed}"
        f"<polyline points='{points}' fill='none' stroke='#1f6fb2' stroke-width='2'/>{labels}</svg>"
    )
