"""Settings as Python has them, as the lines of TOML that the library reads; and names for Python functions."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

#: Settings of the training loop that go without their table's name.
SHORT = ("steps", "evaluate_every", "episodes", "checkpoint_every", "snapshot_every")


def to_lines(settings: Mapping[str, Any]) -> list[str]:
    """One ``key=value`` for each setting, values in TOML. ``None`` leaves a setting as it is.

    >>> to_lines({"sac": {"hidden": (32, 32)}, "train.steps": np.int64(5), "model__seed": None, "pessimism__lambda": np.float32(0.1)})
    ['sac={hidden=[32, 32]}', 'train.steps=5', 'pessimism.lambda=0.1']
    """
    lines = []
    for name, value in settings.items():
        key = _key(f"train.{name}" if name in SHORT else name)
        text = _toml(value, key)
        if text is not None:
            lines.append(f"{key}={text}")
    return lines


def _key(name: str) -> str:
    return name.replace("__", ".")


def _toml(value: Any, where: str) -> str | None:
    if isinstance(value, type):
        raise TypeError(f"{where}: wanted a value, found the type {value.__name__}; make one of it")
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None:
        return None
    if isinstance(value, Mapping):
        parts = ((_key(str(name)), _toml(inner, f"{where}.{name}")) for name, inner in value.items())
        return "{" + ", ".join(f"{name}={text}" for name, text in parts if text is not None) + "}"
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (np.floating, np.integer)):
        # Through its own digits: the float32 nearest to 0.1 is written as 0.1.
        value = value.item() if isinstance(value, (np.integer, np.float64)) else float(str(value))
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, Path)):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, (list, tuple, np.ndarray)):
        items = [_toml(item, where) for item in (value.tolist() if isinstance(value, np.ndarray) else value)]
        if None in items:
            raise ValueError(f"{where}: wanted a value in every place of the list, found None")
        return "[" + ", ".join(item for item in items if item is not None) + "]"
    raise TypeError(f"{where}: wanted a number, a text, a list, a dict or a dataclass, found {type(value).__name__}")


def name_of(function: Any) -> str:
    """A name that changes with the code of a function and with the constants around it.

    >>> name_of(len), name_of(lambda x: x + 1) == name_of(lambda x: x + 2)
    ('builtins.len', False)
    """
    inner = function.func if isinstance(function, functools.partial) else function
    plain = inner if hasattr(inner, "__qualname__") else type(inner)
    name = f"{getattr(plain, '__module__', None) or 'builtins'}.{plain.__qualname__}"
    parts = repr(list(_fingerprint(function)))
    return name if parts == "[]" else f"{name}#{hashlib.sha256(parts.encode()).hexdigest()[:8]}"


def _fingerprint(function: Any) -> Iterator[Any]:
    if isinstance(function, functools.partial):
        yield from map(_value, (*function.args, *sorted(function.keywords.items())))
        function = function.func
    function = getattr(function, "__func__", function)
    if not hasattr(function, "__code__"):
        for method in ("score", "__call__"):
            found = getattr(type(function), method, None)
            code = getattr(found, "__code__", None)
            if code is not None:
                yield from _code(code)
        return
    yield from _code(function.__code__)
    yield from map(_value, function.__defaults__ or ())
    for cell in function.__closure__ or ():
        try:
            yield _value(cell.cell_contents)
        except ValueError:  # a name that is not bound yet
            yield None


def _code(code: types.CodeType) -> Iterator[Any]:
    yield code.co_code.hex()
    yield code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        else:
            yield _value(constant)


def _value(value: Any) -> Any:
    """What tells constants apart. Of what can change, the type: a list of results so far must not make it another function."""
    if isinstance(value, tuple):
        return [_value(item) for item in value]
    return value if isinstance(value, (int, float, complex, str, bytes, type(None))) else type(value).__qualname__
