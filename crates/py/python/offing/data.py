"""Datasets: columns of logged transitions."""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

from offing import _offing
from offing._arrays import column, table

_COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")


class DataWarning(UserWarning):
    """A choice that was made in reading data, or something odd about them."""


class Dataset:
    """Transitions (s, a, r, s') in the order they were logged, under D4RL's names.

    ``terminals`` marks steps after which the task was over, ``timeouts`` those at which the log was merely cut. Without
    ``next_observations`` they follow from the next row; a next observation is never the first of another episode.
    Columns are plain arrays: change them, and the next training or study sees the change.

    >>> import numpy as np
    >>> log = Dataset(
    ...     observations=np.zeros((4, 3)), actions=np.zeros((4, 1)), rewards=np.ones(4),
    ...     next_observations=np.zeros((4, 3)), terminals=[0, 0, 0, 1],
    ... )
    >>> len(log), log.observations.shape, log["rewards"].sum()
    (4, (4, 3), np.float32(4.0))
    """

    def __init__(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        next_observations: Any = None,
        terminals: Any = None,
        timeouts: Any = None,
        *,
        name: str = "dataset",
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self.name = name
        self.path = None if path is None else Path(path)
        self.observations = table(observations, "observations")
        self.actions = table(actions, "actions")
        self.rewards = column(rewards, "rewards")
        self.next_observations = None if next_observations is None else table(next_observations, "next_observations")
        self.terminals = self._flags(terminals, "terminals")
        self.timeouts = self._flags(timeouts, "timeouts")
        for key in _COLUMNS:
            found = getattr(self, key)
            if found is not None and len(found) != len(self):
                raise ValueError(f"{key}: wanted {len(self)} rows as in observations, found {len(found)}")

    def _flags(self, x: Any, name: str) -> NDArray[np.bool_]:
        if x is None:
            return np.zeros(len(self), dtype=bool)
        return np.asarray(column(x, name) != 0)

    def __len__(self) -> int:
        return len(self.observations)

    def __getitem__(self, key: str) -> Any:
        if key not in _COLUMNS:
            raise KeyError(f"{key}: wanted one of {', '.join(_COLUMNS)}")
        return getattr(self, key)

    def keys(self) -> tuple[str, ...]:
        """Names of the columns, so that ``dict(dataset)`` works."""
        return _COLUMNS

    def transitions(self) -> dict[str, Any]:
        """Name and columns as a training sees them: with next observations, without rows that have none."""
        found = _offing.assemble(self.columns())
        found.pop("episode_starts")
        return found

    def columns(self) -> dict[str, Any]:
        """Name and columns as the native half takes them: as they are now, whatever was put in their place."""
        columns = {"observations": table, "actions": table, "rewards": column, "next_observations": table}
        now: dict[str, Any] = {"name": self.name}
        for key in _COLUMNS:
            value = getattr(self, key)
            if key in columns:
                now[key] = None if value is None else columns[key](value, key)
            else:
                now[key] = self._flags(value, key)
        return now

    def __repr__(self) -> str:
        shape = f"{len(self):,} rows, {self.observations.shape[1]} observed, {self.actions.shape[1]} acted"
        return f"Dataset({self.name}: {shape})"

    def save(self, path: str | Path) -> Path:
        """Writes the columns as .npz, which every command of offing reads."""
        path = Path(path)
        if path.suffix != ".npz":
            raise ValueError(f"{path}: wanted a path ending in .npz; `offing data convert` writes other formats")
        columns = {key: self[key] for key in _COLUMNS if self[key] is not None}
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as part:
            np.savez(part, **columns)
        Path(part.name).replace(path)
        self.path = path
        return path

    def to_minari(self, dataset_id: str) -> Any:
        """Writes the dataset where Minari keeps its own, under this id, and returns ``minari.load_dataset(id)``."""
        import minari
        from minari.storage.datasets_root_dir import get_dataset_path

        _offing.write_dataset(self.columns(), get_dataset_path(dataset_id), "minari")
        return minari.load_dataset(dataset_id)


#: What stands for data: a dataset, a mapping of columns, a path, an id or a name, or a d3rlpy ``MDPDataset``.
DataLike: TypeAlias = Union[str, "os.PathLike[str]", Dataset, Mapping[str, Any], Any]


def as_dataset(data: DataLike) -> Dataset:
    """Data as a :class:`Dataset`, read where it is a path or a name.

    >>> as_dataset({"observations": np.zeros((4, 3)), "actions": np.zeros((4, 1)), "rewards": np.ones(4)})
    Dataset(dataset: 4 rows, 3 observed, 1 acted)
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, (str, os.PathLike)):
        return load_dataset(data)
    if isinstance(data, Mapping):
        unknown = set(data) - {*_COLUMNS, "name"}
        if unknown:
            raise ValueError(f"data: wanted {', '.join(_COLUMNS)}, found {', '.join(map(str, sorted(unknown, key=str)))}")
        return Dataset(**data)
    if hasattr(data, "episodes") and hasattr(data, "transition_count"):
        from offing.compat.d3rlpy import from_mdp_dataset

        return from_mdp_dataset(data)
    raise TypeError(f"data: wanted a Dataset, a mapping of columns, a path or a name, found {type(data).__name__}")


def load_dataset(
    name: str | os.PathLike[str], *, columns: Mapping[str, str | Sequence[str]] | None = None
) -> Dataset:
    """A dataset by path (D4RL .hdf5, Minari folder, .npz, .parquet, .csv), D4RL or Minari id, or name of a made set.

    ``columns`` says which columns of a table hold what, where their names do not: ``{"obs": ["t_in", "p_tank"], "act": "valve",
    "rew": "yield"}``, and ``next_obs``, ``done``, ``timeout``, ``episode``, ``step`` where there are such columns.
    """
    given = None
    if columns is not None:
        lists = ("obs", "act", "next_obs")
        one = {key: [value] if key in lists and isinstance(value, str) else value for key, value in columns.items()}
        given = json.dumps({key: list(value) if key in lists else value for key, value in one.items()})
    found, notes = _offing.load_dataset(os.fspath(name), given)
    for note in notes:
        warnings.warn(DataWarning(note), stacklevel=2)
    found.pop("episode_starts")
    title = found.pop("name")
    return Dataset(**found, name=title, path=name if Path(name).exists() else None)


def make_dataset(
    name: str,
    rows: int = 1_000_000,
    seed: int = 0,
    *,
    physics: str = "d4rl-v2",
    threads: int | None = None,
) -> Dataset:
    """Records a set such as ``hopper-medium-replay`` with the built-in policies, or finds it made; kept in the cache."""
    return load_dataset(_offing.make_dataset(name, rows, seed, physics, threads))
