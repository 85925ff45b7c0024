"""Gymnasium equality under pytest; see check_gymnasium.py."""

import pytest

from check_gymnasium import BODIES, TOLERANCE, compare, replay_binary


@pytest.mark.parametrize("version", ["v4", "v5"])
@pytest.mark.parametrize("body", BODIES)
def test_same_steps_as_gymnasium(body, version, tmp_path, monkeypatch):
    binary = replay_binary()
    monkeypatch.chdir(tmp_path)  # Python's MuJoCo writes MUJOCO_LOG.TXT where it runs
    obs, reward, differing, ends = compare(binary, body, version)
    assert obs <= TOLERANCE and reward <= TOLERANCE and differing == 0
    # Comparing terminations means nothing without any.
    assert ends > 0 or body == "halfcheetah"
