"""FAISS's flat indexes: ``from offing.compat import faiss`` in place of ``import faiss``.

>>> import numpy as np
>>> x = np.random.default_rng(0).normal(size=(100, 8)).astype("float32")
>>> index = IndexFlatL2(8)
>>> index.add(x)
>>> distances, ids = index.search(x[:3], 2)
>>> ids[:, 0].tolist(), distances[:, 0].tolist(), index.ntotal
([0, 1, 2], [0.0, 0.0, 0.0], 100)

Distances of ``IndexFlatL2`` are squared, as FAISS's are, and computed from differences, never by FAISS's shortcut through norms, which
loses digits. Equal distances go to the lower id. Where an index has fewer rows than asked for, ids are -1.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from offing._arrays import count, matrix
from offing.search import Index

METRIC_INNER_PRODUCT = 0
METRIC_L2 = 1

_LARGEST = np.finfo(np.float32).max
#: Numbers of a block of products, 64 MB.
_BLOCK = 1 << 24

_Found: TypeAlias = tuple[NDArray[np.float32], NDArray[np.int64]]


class _Flat:
    metric_type = METRIC_L2
    _missing = _LARGEST

    def __init__(self, d: int) -> None:
        self.d = count(d, "d")
        self.is_trained = True
        self._rows = np.empty((0, self.d), np.float32)

    @property
    def ntotal(self) -> int:
        """Rows in the index."""
        return len(self._rows)

    def train(self, x: Any) -> None:
        """Nothing to do: a flat index learns nothing."""

    def add(self, x: Any) -> None:
        """Adds rows; their ids go on from ``ntotal``."""
        self._rows = np.concatenate([self._rows, self._checked(x, "x")])
        self._changed()

    def reset(self) -> None:
        """Takes all rows out."""
        self._rows = self._rows[:0]
        self._changed()

    def reconstruct(self, key: int) -> NDArray[np.float32]:
        """The row of that id."""
        if not 0 <= key < self.ntotal:
            raise ValueError(f"reconstruct: wanted an id from 0 to {self.ntotal - 1}, found {key}")
        row: NDArray[np.float32] = self._rows[key].copy()
        return row

    def reconstruct_n(self, n0: int = 0, ni: int = -1) -> NDArray[np.float32]:
        """``ni`` rows from id ``n0`` on; all of them without an argument."""
        end = self.ntotal if ni == -1 else n0 + ni
        if not 0 <= n0 <= end <= self.ntotal:
            raise ValueError(f"reconstruct_n: wanted ids below {self.ntotal}, found {n0} to {end - 1}")
        return self._rows[n0:end].copy()

    def search(self, x: Any, k: int) -> _Found:
        """The ``k`` best rows of each query, best first: distances (or products) and ids."""
        queries, k = self._checked(x, "x"), count(k, "k")
        values = np.full((len(queries), k), self._missing, np.float32)
        ids = np.full((len(queries), k), -1, np.int64)
        kept = min(k, self.ntotal)
        if kept and len(queries):
            values[:, :kept], ids[:, :kept] = self._search(queries, kept)
        return values, ids

    def _checked(self, x: Any, name: str) -> NDArray[np.float32]:
        rows = matrix(x, name)
        if rows.shape[1] != self.d:
            raise ValueError(f"{name}: wanted {self.d} columns, found {rows.shape[1]}")
        if not np.isfinite(rows).all():
            raise ValueError(f"{name}: wanted finite numbers, found NaN or infinite ones")
        return rows

    def _changed(self) -> None:
        pass

    def _search(self, queries: NDArray[np.float32], k: int) -> tuple[Any, Any]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.d}), {self.ntotal:,} rows"


class IndexFlatL2(_Flat):
    """Squared Euclidean distances; the search tree is built at the first search after a change."""

    def __init__(self, d: int) -> None:
        super().__init__(d)
        self._index: Index | None = None

    def _changed(self) -> None:
        self._index = None

    def _search(self, queries: NDArray[np.float32], k: int) -> tuple[Any, Any]:
        if self._index is None:
            self._index = Index(self._rows)
        distances, ids = self._index.search(queries, k)
        return np.square(distances), ids


class IndexFlatIP(_Flat):
    """Inner products, the largest first. A matrix product, as in FAISS: the tree searches by distances."""

    metric_type = METRIC_INNER_PRODUCT
    _missing = -_LARGEST

    def _search(self, queries: NDArray[np.float32], k: int) -> tuple[Any, Any]:
        parts = [self._best(block, k) for block in np.array_split(queries, -(-len(queries) * self.ntotal // _BLOCK) or 1)]
        return tuple(np.concatenate(column) for column in zip(*parts))  # type: ignore[return-value]

    def _best(self, queries: NDArray[np.float32], k: int) -> tuple[Any, Any]:
        products = queries @ self._rows.T
        # What ties with the k-th best competes for its place by id.
        ids = np.argsort(-products, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(products, ids, 1), ids


def index_factory(d: int, description: str, metric: int = METRIC_L2) -> _Flat:
    """FAISS's ``index_factory`` for ``"Flat"``."""
    if description != "Flat":
        raise ValueError(f"index_factory: wanted \"Flat\", found {description!r}; offing's search is exact")
    return IndexFlatIP(d) if metric == METRIC_INNER_PRODUCT else IndexFlatL2(d)
