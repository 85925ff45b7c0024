"""Drop-ins against the packages they stand in for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offing.compat import faiss as ours
from offing.compat import sklearn as neighbors

faiss = pytest.importorskip("faiss")
sklearn = pytest.importorskip("sklearn")


def rows_of(seed, rows, width, scale, grid):
    """Rows on a grid tie often; others never do."""
    x = np.random.default_rng(seed).normal(scale=scale, size=(rows, width))
    return np.ascontiguousarray(np.round(x) if grid else x, np.float32)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**31), st.integers(1, 300), st.integers(1, 12), st.integers(1, 20), st.sampled_from([0.5, 3.0]),
    st.booleans(), st.sampled_from(["IndexFlatL2", "IndexFlatIP"]),
)  # fmt: skip
def test_flat_indexes_answer_as_faiss_does(seed, rows, width, k, scale, grid, kind):
    x, queries = rows_of(seed, rows, width, scale, grid), rows_of(seed + 1, 17, width, scale, grid)
    mine, theirs = getattr(ours, kind)(width), getattr(faiss, kind)(width)
    half = rows // 2
    for index in (mine, theirs):
        if half:
            index.add(x[:half])
        index.add(x[half:])
    assert mine.ntotal == theirs.ntotal == rows and mine.d == theirs.d and mine.metric_type == theirs.metric_type
    values, ids = mine.search(queries, k)
    wanted, their_ids = theirs.search(queries, k)
    assert values.dtype == wanted.dtype and ids.dtype == their_ids.dtype and ids.shape == their_ids.shape
    np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-3 * scale**2 * width**0.5)
    exact = np.square(queries[:, None].astype(float) - x).sum(2) if kind == "IndexFlatL2" else -(queries.astype(float) @ x.T)
    # Ties go to the lower id. On a grid every distance is exact, so the order of a stable sort is the answer.
    if grid:
        order = np.argsort(exact, axis=1, kind="stable")[:, :k]
        assert (ids[:, : order.shape[1]] == order).all()
    # Ids are FAISS's wherever no other row is as near to within rounding.
    ordered = np.sort(exact, axis=1)
    for query in range(len(queries)):
        for place in range(min(k, rows)):
            near = np.abs(ordered[query] - exact[query, ids[query, place]]) < 1e-3 * scale**2 * width
            if near.sum() == 1:
                assert ids[query, place] == their_ids[query, place]
    assert (ids[:, rows:] == -1).all() and (ids == -1).sum() == (their_ids == -1).sum()
    number = rows // 3
    assert (mine.reconstruct(number) == theirs.reconstruct(number)).all()
    assert (mine.reconstruct_n(0, rows) == theirs.reconstruct_n(0, rows)).all()


def test_flat_indexes_refuse_what_faiss_refuses():
    index = ours.index_factory(3, "Flat")
    assert isinstance(index, ours.IndexFlatL2) and index.is_trained and "3" in repr(index)
    index.train(np.zeros((1, 3)))
    empty = index.search(np.zeros((2, 3)), 2)
    assert (empty[1] == -1).all() and (empty[0] == np.finfo(np.float32).max).all()
    index.add(np.eye(3))
    index.reset()
    assert index.ntotal == 0
    for call in (
        lambda: index.add(np.zeros((1, 4))),
        lambda: index.add(np.full((1, 3), np.nan)),
        lambda: index.search(np.zeros((1, 3)), 0),
        lambda: index.reconstruct(0),
        lambda: index.reconstruct_n(0, 5),
        lambda: ours.index_factory(3, "IVF4,Flat"),
    ):
        with pytest.raises(ValueError) as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "minkowski"])
def test_nearest_neighbours_are_scikit_learns(rows, metric):
    from sklearn.neighbors import NearestNeighbors

    queries = rows[:40] + 0.3
    mine = neighbors.NearestNeighbors(n_neighbors=4, metric=metric).fit(rows)
    theirs = NearestNeighbors(n_neighbors=4, metric=metric).fit(rows)
    for arguments in ((queries,), (None, 3)):
        (d, i), (wanted, ids) = mine.kneighbors(*arguments), theirs.kneighbors(*arguments)
        assert (i == ids).all() and i.dtype == ids.dtype
        np.testing.assert_allclose(d, wanted, rtol=1e-4, atol=1e-5)
    assert (mine.kneighbors(queries, return_distance=False) == theirs.kneighbors(queries, return_distance=False)).all()
    reach = float(np.median(theirs.kneighbors(queries, 50)[0][:, -1]))
    found, wanted = mine.radius_neighbors(queries, reach), theirs.radius_neighbors(queries, reach, sort_results=True)
    for a, b in zip(found[1], wanted[1]):
        assert a.tolist() == b.tolist()
    with pytest.raises(ValueError, match="at most 799"):
        mine.kneighbors(n_neighbors=800)


@pytest.mark.parametrize("weights", ["uniform", "distance", lambda d: 1 / (1 + d)])
def test_regression_is_scikit_learns(rows, weights):
    from sklearn.neighbors import KNeighborsRegressor

    rng = np.random.default_rng(1)
    queries = np.concatenate([rows[:50] + rng.normal(scale=0.3, size=(50, 6)), rows[:10]])
    for targets in (rows[:, 0] ** 2, rows[:, :2] ** 2):
        mine = neighbors.KNeighborsRegressor(7, weights=weights).fit(rows, targets)
        theirs = KNeighborsRegressor(7, weights=weights).fit(rows, targets)
        np.testing.assert_allclose(mine.predict(queries), theirs.predict(queries), rtol=1e-4, atol=1e-5)
        assert np.isclose(mine.score(rows, targets), theirs.score(rows, targets), rtol=1e-4)
    with pytest.raises(ValueError, match="one for each row"):
        neighbors.KNeighborsRegressor().fit(rows, np.zeros(3))


def test_estimators_go_into_pipelines_and_searches(rows):
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), neighbors.KNeighborsRegressor())
    search = GridSearchCV(model, {"kneighborsregressor__n_neighbors": [1, 5]}, cv=3).fit(rows, rows[:, 0])
    assert search.best_params_["kneighborsregressor__n_neighbors"] in (1, 5) and search.best_score_ > 0.5
    assert clone(neighbors.NearestNeighbors(n_neighbors=3)).get_params()["n_neighbors"] == 3


def test_estimators_work_without_scikit_learn(rows):
    import subprocess
    import sys

    code = """
import sys; sys.modules["sklearn"] = None
import numpy as np
from offing.compat.sklearn import KNeighborsRegressor
x = np.random.default_rng(0).normal(size=(100, 3))
model = KNeighborsRegressor(1).set_params(n_neighbors=1).fit(x, x[:, 0])
assert model.get_params()["n_neighbors"] == 1 and model.score(x, x[:, 0]) == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True)
