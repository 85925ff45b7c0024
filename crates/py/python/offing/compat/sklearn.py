"""scikit-learn's ``NearestNeighbors`` and ``KNeighborsRegressor`` on offing's search. They go into pipelines and grid searches where
scikit-learn is installed, and work without it.

>>> import numpy as np
>>> x = np.random.default_rng(0).normal(size=(100, 3))
>>> NearestNeighbors(n_neighbors=2).fit(x).kneighbors(x[:2], return_distance=False)[:, 0].tolist()
[0, 1]
>>> model = KNeighborsRegressor(n_neighbors=1).fit(x, x[:, 0])
>>> float(model.score(x, x[:, 0]))
1.0
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from offing._arrays import count, matrix
from offing.search import Index

if TYPE_CHECKING:

    from typing_extensions import Self

    class BaseEstimator:
        """What scikit-learn's own estimators are."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...

    class RegressorMixin:
        """What scikit-learn's own regressors are."""

        def score(self, X: Any, y: Any) -> float: ...

else:
    try:
        from sklearn.base import BaseEstimator, RegressorMixin
    except ImportError:

        class BaseEstimator:
            """Parameters by name, as scikit-learn's own estimators have them."""

            def get_params(self, deep=True):
                """The parameters of the constructor."""
                return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

            def set_params(self, **params):
                """Sets parameters of the constructor."""
                for name, value in params.items():
                    if name not in self.get_params():
                        raise ValueError(f"{type(self).__name__}: wanted a known parameter, found {name}")
                    setattr(self, name, value)
                return self

        class RegressorMixin:
            """A regressor's score."""

            def score(self, X, y):
                """Coefficient of determination."""
                y = np.asarray(y, dtype=float)
                left = np.square(y - self.predict(X)).sum(axis=0)
                return float(np.mean(1 - left / np.square(y - y.mean(axis=0)).sum(axis=0)))


_METRICS = {"l1": "manhattan", "l2": "euclidean", "cityblock": "manhattan"}
_MINKOWSKI: dict[float, str] = {1: "manhattan", 2: "euclidean"}


class _Neighbors(BaseEstimator):
    n_neighbors: int
    metric: str
    p: float
    n_jobs: int | None

    def _fit_rows(self, X: Any) -> None:
        rows = matrix(X, "X")
        metric = _METRICS.get(self.metric, self.metric)
        if metric == "minkowski":
            if self.p not in _MINKOWSKI:
                raise ValueError(f"p: wanted 1 or 2, found {self.p}")
            metric = _MINKOWSKI[self.p]
        self._index = Index(rows, metric, None if self.n_jobs in (None, -1) else self.n_jobs)
        self.n_features_in_, self.n_samples_fit_ = rows.shape[1], len(rows)
        self.effective_metric_ = metric

    def kneighbors(self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """Distances and row numbers of the nearest rows; without ``X``, of each row among the others."""
        k = count(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors")
        most = self.n_samples_fit_ - (X is None)
        if k > most:
            raise ValueError(f"n_neighbors: wanted at most {most}, the rows to find, found {k}")
        distances, ids = self._index.search_self(k) if X is None else self._index.search(matrix(X, "X"), k)
        rows = ids.astype(np.int64)
        return (distances.astype(np.float64), rows) if return_distance else rows


class NearestNeighbors(_Neighbors):
    """The rows nearest to each query. ``algorithm`` and ``leaf_size`` are taken and change nothing."""

    def __init__(
        self,
        *,
        n_neighbors: int = 5,
        radius: float = 1.0,
        algorithm: str = "auto",
        leaf_size: int = 30,
        metric: str = "minkowski",
        p: float = 2,
        metric_params: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors, self.radius, self.algorithm, self.leaf_size = n_neighbors, radius, algorithm, leaf_size
        self.metric, self.p, self.metric_params, self.n_jobs = metric, p, metric_params, n_jobs

    def fit(self, X: Any, y: Any = None) -> NearestNeighbors:
        """Indexes the rows of ``X``."""
        self._fit_rows(X)
        return self

    def radius_neighbors(self, X: Any, radius: float | None = None, return_distance: bool = True) -> Any:
        """All rows within a radius of each query, nearest first: an array of arrays."""
        queries, reach = matrix(X, "X"), self.radius if radius is None else radius
        k = min(32, self.n_samples_fit_)
        found: list[tuple[Any, Any]] = [(None, None)] * len(queries)
        waiting = np.arange(len(queries))
        while len(waiting):
            distances, rows = self.kneighbors(queries[waiting], k)
            complete = (distances[:, -1] > reach) | (k == self.n_samples_fit_)
            for i in np.flatnonzero(complete).tolist():
                inside = distances[i] <= reach
                found[waiting[i]] = (distances[i][inside], rows[i][inside])
            waiting, k = waiting[~complete], min(2 * k, self.n_samples_fit_)
        columns = [np.empty(len(queries), object) for _ in range(2)]
        for i, pair in enumerate(found):
            columns[0][i], columns[1][i] = pair
        return (columns[0], columns[1]) if return_distance else columns[1]


class KNeighborsRegressor(RegressorMixin, _Neighbors):
    """Means of the targets of the nearest rows. ``weights`` is ``uniform``, ``distance`` or a function of the distances."""

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        weights: str | Callable[[Any], Any] = "uniform",
        algorithm: str = "auto",
        leaf_size: int = 30,
        p: float = 2,
        metric: str = "minkowski",
        metric_params: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors, self.weights, self.algorithm, self.leaf_size = n_neighbors, weights, algorithm, leaf_size
        self.metric, self.p, self.metric_params, self.n_jobs = metric, p, metric_params, n_jobs

    def fit(self, X: Any, y: Any) -> KNeighborsRegressor:
        """Indexes the rows of ``X`` with their targets."""
        targets = np.asarray(y)
        self._fit_rows(X)
        if len(targets) != self.n_samples_fit_:
            raise ValueError(f"y: wanted {self.n_samples_fit_} targets, one for each row, found {len(targets)}")
        self._y = targets
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The weighted mean of the neighbours' targets."""
        distances, rows = self.kneighbors(X)
        targets = self._y[rows]
        weights = self._weights(distances)
        if weights is None:
            return np.asarray(targets.mean(axis=1))
        weights = weights.reshape(*weights.shape, *[1] * (targets.ndim - 2))
        return np.asarray((targets * weights).sum(axis=1) / weights.sum(axis=1))

    def _weights(self, distances: NDArray[np.float64]) -> NDArray[np.float64] | None:
        if self.weights == "uniform":
            return None
        if callable(self.weights):
            return np.asarray(self.weights(distances), np.float64)
        if self.weights != "distance":
            raise ValueError(f"weights: wanted uniform, distance or a function, found {self.weights!r}")
        # A row at the very place of a query decides alone.
        exact = distances == 0
        with np.errstate(divide="ignore"):
            inverse = 1 / distances
        return np.where(exact.any(axis=1, keepdims=True), exact.astype(np.float64), inverse)
