"""Arguments as C-contiguous float32: as they are where they are, copied where they are not."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def array(x: Any, name: str) -> NDArray[np.float32]:
    """Numbers. Torch tensors on the CPU, lists and anything with the array protocol will do."""
    if hasattr(x, "detach"):
        # A torch tensor that carries gradients refuses to become an array; its values are all that is wanted.
        x = x.detach()
    try:
        found = np.asarray(x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: wanted an array of numbers, found {type(x).__name__} ({error})") from None
    if found.dtype.kind not in "fiub":
        raise ValueError(f"{name}: wanted an array of real numbers, found dtype {found.dtype}")
    return np.require(found, np.float32, ["C", "ALIGNED"])


def matrix(x: Any, name: str) -> NDArray[np.float32]:
    """One row for each point."""
    found = array(x, name)
    if found.ndim != 2:
        raise ValueError(f"{name}: wanted a matrix with one row for each point, found {found.ndim} axes")
    return found


def table(x: Any, name: str) -> NDArray[np.float32]:
    """One row for each step; a plain list of numbers is a table of one column."""
    found = array(x, name)
    return matrix(found[:, None] if found.ndim == 1 else found, name)


def column(x: Any, name: str) -> NDArray[np.float32]:
    """One number for each row."""
    found = array(x, name)
    if found.ndim == 2 and found.shape[1] == 1:
        found = np.ascontiguousarray(found[:, 0])
    if found.ndim != 1:
        raise ValueError(f"{name}: wanted one number for each row, found shape {found.shape}")
    return found


def count(value: Any, name: str) -> int:
    """A number of things, at least one."""
    found = operator.index(value)
    if found < 1:
        raise ValueError(f"{name}: wanted at least 1, found {found}")
    return found


def threads_or_all(value: Any) -> int | None:
    """A number of threads; ``None`` stands for all cores."""
    return None if value is None else count(value, "threads")
