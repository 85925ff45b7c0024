"""Training, policies, calibration."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offing import _offing
from offing._arrays import array
from offing.data import Dataset


class Policy:
    """A trained policy. Calling it gives actions, so it fits into a Gymnasium loop: ``env.step(policy(obs))``.

    ``path`` is a policy file (.safetensors) or a run directory, whose last policy is taken.
    """

    __slots__ = ("_native", "path")

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            self.path = self.path / "policy.safetensors"
        self._native = _offing.Policy(self.path)

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


def train(
    algorithm: str,
    dataset: str | Path | Dataset,
    *,
    dir: str | Path | None = None,
    seed: int = 0,
    profile: str | None = None,
    preset: str | None = None,
    steps: int | None = None,
    rows: int | None = None,
    threads: int | None = None,
    quiet: bool = True,
    **overrides: Any,
) -> Policy:
    """Trains and returns the policy, as ``offing train`` does; the same call goes on with an interrupted run.

    ``algorithm`` is any name of ``offing train --help``: ``landfall``, ``mopo+sumo``, ``td3bc``. Overrides are settings by dotted
    name, with ``__`` for the dot: ``pessimism__lambda=5``, ``rollout__length=1``.
    ``policy.path.parent`` is the run directory with metrics, report, checkpoints and ONNX file.
    """
    if dir is None:
        title = dataset.name if isinstance(dataset, Dataset) else Path(str(dataset)).stem
        dir = Path("runs") / algorithm / f"{_slug(title)}-s{seed}"
    data = dataset.columns() if isinstance(dataset, Dataset) else str(dataset)
    settings = _settings(overrides) + ([] if steps is None else [f"train.steps={steps}"])
    run = _offing.train(
        algorithm, data, dir=Path(dir), seed=seed, profile=profile, preset=preset, rows=rows, settings=settings,
        threads=threads, quiet=quiet,
    )  # fmt: skip
    return Policy(run)


def calibrate(
    dataset: str | Path | Dataset,
    *,
    estimators: list[str] | None = None,
    seeds: int = 5,
    profile: str | None = None,
    rows: int | None = None,
    dir: str | Path = "runs/calibrate",
    threads: int | None = None,
    quiet: bool = True,
    **overrides: Any,
) -> dict[str, Any]:
    """Finds out which estimator knows where the model is wrong; what ``offing calibrate --json`` writes."""
    findings: dict[str, Any] = json.loads(
        _offing.calibrate(
            _file_of(dataset, Path(dir)), estimators=estimators or [], seeds=seeds, profile=profile, rows=rows,
            dir=Path(dir), settings=_settings(overrides), threads=threads, quiet=quiet,
        )  # fmt: skip
    )
    return findings


def _file_of(dataset: str | Path | Dataset, folder: Path) -> str:
    """A name or path; a study keeps arrays in its directory, where it finds them again."""
    if not isinstance(dataset, Dataset):
        return str(dataset)
    if dataset.path is None:
        folder.mkdir(parents=True, exist_ok=True)
        dataset.save(folder / f"{_slug(dataset.name)}.npz")
    return str(dataset.path)


def _slug(name: str) -> str:
    """The part of a dataset's name that can be a file's. A name may come from inside a stranger's file."""
    return re.sub(r"[^\w.-]", "_", name)


def _settings(overrides: dict[str, Any]) -> list[str]:
    """Overrides as `key=value`, values in TOML."""
    return [f"{name.replace('__', '.')}={json.dumps(value)}" for name, value in overrides.items()]
