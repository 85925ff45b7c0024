"""Whatever array comes in, the answer is right or the refusal clear; never silently wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import offing
from offing import _offing
from offing._arrays import matrix

DIM = 5
ROWS = np.random.default_rng(0).normal(size=(300, DIM)).astype(np.float32)
INDEX = offing.Index(ROWS, threads=1)

numbers = st.floats(-100, 100, width=16)


def queries(dtype):
    return hnp.arrays(dtype, st.tuples(st.integers(0, 40), st.just(DIM)), elements=numbers)


def same(a, b):
    return all((x == y).all() and x.shape == y.shape for x, y in zip(a, b))


def laid_out(x, how):
    """The same numbers in another place or order."""
    if how == "fortran":
        return np.asfortranarray(x)
    if how == "strided":
        wide = np.full((2 * len(x), 2 * DIM), 7, x.dtype)
        wide[::2, ::2] = x
        return wide[::2, ::2]
    if how == "reversed":
        return np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]
    if how == "read-only":
        x = x.copy()
        x.setflags(write=False)
        return x
    if how == "swapped bytes":
        return x.astype(x.dtype.newbyteorder())
    if how == "unaligned":
        raw = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
        raw[...] = x
        return raw
    if how == "list":
        return x.tolist() if len(x) else x
    return x


@settings(max_examples=150, deadline=None)
@given(
    x=st.sampled_from([np.float32, np.float64, np.float16]).flatmap(queries),
    how=st.sampled_from(["plain", "fortran", "strided", "reversed", "read-only", "swapped bytes", "unaligned", "list"]),
    k=st.integers(1, 5),
)
def test_layout_and_type_change_nothing(x, how, k):
    plain = np.array(x, dtype=np.float32, order="C")
    assert same(INDEX.search(laid_out(x, how), k), INDEX.search(plain, k))


@pytest.mark.parametrize("how", ["fortran", "strided", "reversed", "read-only", "unaligned", "list"])
def test_rows_are_indexed_the_same_in_any_layout(how):
    assert same(offing.Index(laid_out(ROWS, how), threads=1).search(ROWS[:9] + 0.1, 3), INDEX.search(ROWS[:9] + 0.1, 3))


@settings(max_examples=60, deadline=None)
@given(x=queries(np.float32), k=st.integers(1, 5))
def test_answers_are_those_of_a_scan(x, k):
    distances, found = INDEX.search(x, k)
    assert distances.shape == found.shape == (len(x), k)
    true = np.linalg.norm(x[:, None].astype(np.float64) - ROWS[None].astype(np.float64), axis=2)
    np.testing.assert_allclose(distances, np.sort(true, axis=1)[:, :k], rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(np.take_along_axis(true, found.astype(int), 1), distances, rtol=2e-6, atol=1e-7)


@settings(max_examples=60, deadline=None)
@given(
    x=queries(np.float32).filter(len),
    bad=st.sampled_from([np.nan, np.inf, -np.inf]),
    at=st.tuples(st.integers(0, 39), st.integers(0, DIM - 1)),
)
def test_numbers_that_are_not_finite_are_refused(x, bad, at):
    x = x.copy()
    x[at[0] % len(x), at[1]] = bad
    with pytest.raises(ValueError, match="finite"):
        INDEX.search(x)


@settings(max_examples=60, deadline=None)
@given(shape=st.lists(st.integers(0, 4), min_size=0, max_size=4).filter(lambda s: len(s) != 2 or s[1] != DIM))
def test_wrong_shapes_are_refused_in_one_line(shape):
    with pytest.raises(ValueError) as error:
        INDEX.search(np.zeros(shape, np.float32))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("bad", [np.zeros((2, DIM), complex), np.array([["a"] * DIM]), [[1.0], [1.0, 2.0]], object(), None])
def test_what_is_no_array_of_numbers_is_refused(bad):
    with pytest.raises(ValueError, match="queries: wanted"):
        INDEX.search(bad)


def test_an_index_of_nothing_is_refused_and_no_queries_are_no_trouble():
    with pytest.raises(ValueError):
        offing.Index(np.zeros((0, DIM), np.float32))
    assert INDEX.search(np.zeros((0, DIM)), 3)[0].shape == (0, 3)
    assert INDEX.within(np.zeros((0, DIM)), 1.0).shape == (0,)


def test_float32_in_c_order_is_read_where_it_lies():
    for x in (ROWS, laid_out(ROWS, "read-only"), ROWS[10:90]):
        assert _offing.address(matrix(x, "x")) == x.ctypes.data
    for how in ("fortran", "strided", "reversed", "unaligned"):
        x = laid_out(ROWS, how)
        assert _offing.address(matrix(x, "x")) != x.ctypes.data


def test_what_only_has_the_array_protocol_will_do():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return ROWS[:7].astype(dtype or np.float32)

    assert same(INDEX.search(Tensor(), 2), INDEX.search(ROWS[:7], 2))
    assert same(INDEX.search(memoryview(ROWS[:7]), 2), INDEX.search(ROWS[:7], 2))


def test_torch_tensors_are_read_where_they_lie():
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(ROWS[:7].copy())
    assert same(INDEX.search(tensor, 2), INDEX.search(ROWS[:7], 2))
    assert _offing.address(matrix(tensor, "x")) == tensor.data_ptr()
    assert same(INDEX.search(tensor.double().requires_grad_(), 2), INDEX.search(ROWS[:7], 2))
    assert same(INDEX.search(tensor.t().contiguous().t(), 2), INDEX.search(ROWS[:7], 2))
