"""Exact k-nearest-neighbour search."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offing import _offing
from offing._arrays import count, matrix, threads_or_all


class Index:
    """An exact index over the rows of ``x``: every answer equals a linear scan's, whatever the number of threads.

    ``metric`` is ``euclidean``, ``manhattan`` or ``cosine``; ``threads`` counts the threads of building and searching
    (all cores when not given). Float32 matrices in C order are searched where they lie; anything else is copied.
    Several threads may search one index at once, and an index made before a fork works in the child.

    >>> import numpy as np
    >>> index = Index(np.eye(4, dtype=np.float32))
    >>> index.search([[1, 0, 0, 0]], k=2)[1].tolist()
    [[0, 1]]
    >>> len(index), index.dim, index.metric
    (4, 4, 'euclidean')
    """

    __slots__ = ("_native",)

    def __init__(self, x: Any, metric: str = "euclidean", threads: int | None = None) -> None:
        self._native = _offing.Index(matrix(x, "x"), metric, threads_or_all(threads))

    def search(self, queries: Any, k: int = 1) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """Distances and row numbers of the ``k`` nearest rows of each query, nearest first; ties go to the lower row."""
        return self._native.search(matrix(queries, "queries"), count(k, "k"))

    def search_self(self, k: int = 1) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
        """The same for every row of the index itself, which does not count as its own neighbour."""
        return self._native.search_self(count(k, "k"))

    def max_self(self, k: int = 1) -> float:
        """The largest distance that ``search_self`` would find in its last column, without the whole search."""
        return self._native.max_self(count(k, "k"))

    def within(self, queries: Any, radius: float, k: int = 1) -> NDArray[np.bool_]:
        """Whether each query's k-th neighbour lies within ``radius``: cheaper than a search."""
        return self._native.within(matrix(queries, "queries"), radius, count(k, "k"))

    def save(self, path: str | Path) -> None:
        """Writes the index; :meth:`load` maps it into memory."""
        self._native.save(path)

    @classmethod
    def load(cls, path: str | Path, threads: int | None = None) -> Index:
        """An index that :meth:`save` wrote."""
        index = object.__new__(cls)
        index._native = _offing.Index.load(path, threads_or_all(threads))
        return index

    def __len__(self) -> int:
        return len(self._native)

    def __repr__(self) -> str:
        return f"Index({len(self):,} rows of {self.dim} columns, {self.metric})"

    def __reduce__(self) -> tuple[Any, ...]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "index"
            self._native.save(path)
            return _unpickle, (path.read_bytes(),)

    @property
    def dim(self) -> int:
        """Columns of a row."""
        return self._native.dim

    @property
    def metric(self) -> str:
        """The distance rows are ranked by."""
        return self._native.metric

    @property
    def nbytes(self) -> int:
        """Bytes of the index, its rows included."""
        return self._native.nbytes


def _unpickle(content: bytes) -> Index:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index"
        path.write_bytes(content)
        return Index.load(path)
