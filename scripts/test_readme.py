"""The README's Python runs as it stands, on a small log and with a short training."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import offing
import pytest

README = Path(__file__).resolve().parent.parent / "README.md"

SHORT: dict[str, Any] = {
    "steps": 30,
    "model__ensemble__max_updates": 20,
    "model__ensemble__hidden": [16, 16],
    "model__ensemble__decay": [0.0, 0.0, 0.0],
    "warm_start__steps": 10,
    "train__evaluate_every": 30,
}


def test_the_readme_python_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    rng = np.random.default_rng(0)
    # A cart that is pushed to the middle; it falls off at the edges.
    position = rng.uniform(-1, 1, size=(400, 1)).astype(np.float32)
    push = rng.uniform(-1, 1, size=(400, 1)).astype(np.float32)
    after = position + 0.3 * push
    log = offing.Dataset(
        observations=position,
        actions=push,
        rewards=(1 - np.abs(after[:, 0])).astype(np.float32),
        next_observations=after,
        terminals=np.abs(after[:, 0]) > 1.1,
    )
    monkeypatch.chdir(tmp_path)
    log.save(tmp_path / "log.npz")
    subprocess.run([sys.executable, "-m", "offing", "-q", "data", "convert", "log.npz", "my-logs.parquet"], check=True)
    monkeypatch.setattr(offing, "train", functools.partial(offing.train, **SHORT))
    names: dict[str, Any] = {"s": position[:5], "a": push[:5], "s2": after[:5] + 1.0, "r": np.zeros(5, dtype=np.float32)}
    exec(compile(block, str(README), "exec"), names)  # noqa: S102
    assert np.shape(names["action"]) == (1,) and abs(names["action"][0]) <= 1
    assert names["u"].shape == (5,) and (names["u"] > 0).all(), "imagined far from the log"
    assert (names["r"] < 0).all(), "so they cost"
