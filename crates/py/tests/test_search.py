"""offing.Index against NumPy: answers, layouts, copies, files, errors."""

import numpy as np
import pytest

import offing


def scan(rows, queries, k):
    d = np.linalg.norm(queries[:, None].astype(np.float64) - rows[None].astype(np.float64), axis=2)
    order = np.argsort(d, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(d, order, 1), order


def test_a_search_equals_a_scan(rows):
    queries = np.random.default_rng(1).normal(size=(50, 6)).astype(np.float32)
    distances, found = offing.Index(rows).search(queries, k=5)
    expected, order = scan(rows, queries, 5)
    assert (found == order).all()
    np.testing.assert_allclose(distances, expected, rtol=1e-6)


def test_self_search_leaves_the_row_itself_out(rows):
    index = offing.Index(rows)
    distances, found = index.search_self(2)
    assert (found[:, 0] != np.arange(len(rows))).all()
    assert index.max_self(2) == distances[:, 1].max()
    radius = float(np.median(distances[:, 0]))
    near = index.within(rows[:100] + 0.01, radius)
    assert (near == (index.search(rows[:100] + 0.01)[0][:, 0] <= radius)).all()


def test_an_index_is_kept_in_a_file(rows, tmp_path):
    index = offing.Index(rows, metric="manhattan")
    index.save(tmp_path / "index")
    again = offing.Index.load(tmp_path / "index")
    assert (len(again), again.dim, again.metric) == (800, 6, "manhattan")
    for a, b in zip(again.search(rows[:9], 4), index.search(rows[:9], 4)):
        assert (a == b).all()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: offing.Index(x).search(x[:, :3]), "6"),
        (lambda x: offing.Index(x).search(x, k=0), "k"),
        (lambda x: offing.Index(x).search(x, k=-1), "k: wanted at least 1"),
        (lambda x: offing.Index(x).search(x, k=801), "801"),
        (lambda x: offing.Index(x).within(x, radius=float("nan")), "radius"),
        (lambda x: offing.Index(x).search(np.full((1, 6), np.nan)), "finite"),
        (lambda x: offing.Index(x, metric="hamming"), "euclidean"),
        (lambda x: offing.Index(x[0]), "matrix"),
        (lambda x: offing.Index(x, threads=0), "threads"),
        (lambda x: offing.Index(x, threads=-2), "threads"),
    ],
)
def test_bad_input_is_a_value_error_of_one_line(rows, call, words):
    with pytest.raises(ValueError) as error:
        call(rows)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError):
        offing.Index.load(tmp_path / "nothing")
