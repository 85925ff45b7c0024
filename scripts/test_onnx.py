"""A policy exported as ONNX gives the same actions in ONNX Runtime as in offing.

Needs: pip install pytest onnxruntime safetensors numpy
Run:   cargo build && pytest scripts/test_onnx.py
"""

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import save_file

from built import offing


def policy(path, obs_dim, act_dim, hidden, log_std_range=None):
    """A random policy in offing's layout; weights of log σ are wide enough to reach the clamp."""
    rng = np.random.default_rng(0)
    tensors, width = {}, obs_dim
    names = [(f"hidden.{i}", size) for i, size in enumerate(hidden)] + [("mean", act_dim), ("log_std", act_dim)]
    for name, size in names:
        scale = 40.0 if name == "log_std" else 1.0
        tensors[f"{name}.weight"] = (rng.normal(size=(size, width)) * scale / np.sqrt(width)).astype(np.float32)
        tensors[f"{name}.bias"] = rng.normal(size=size).astype(np.float32)
        if name.startswith("hidden"):
            width = size
    if log_std_range is not None:
        tensors["log_std_range"] = np.array(log_std_range, np.float32)
    save_file(tensors, path)
    return tensors


@pytest.mark.parametrize(
    "obs_dim, act_dim, hidden, log_std_range",
    [(11, 3, [256, 256], None), (17, 6, [256, 256, 256], (-5, 2)), (4, 2, [], (-5, 2)), (1, 1, [7], None)],
)
def test_onnxruntime_gives_our_actions(tmp_path, obs_dim, act_dim, hidden, log_std_range):
    tensors = policy(tmp_path / "p.safetensors", obs_dim, act_dim, hidden, log_std_range)
    run = offing("export", tmp_path / "p.safetensors", tmp_path / "p.onnx")
    assert run.returncode == 0, run.stderr
    obs = np.random.default_rng(1).normal(size=(1000, obs_dim)).astype(np.float32)
    np.save(tmp_path / "obs.npy", obs)
    run = offing("act", tmp_path / "p.safetensors", tmp_path / "obs.npy", tmp_path / "act.npy")
    assert run.returncode == 0, run.stderr
    ours = np.load(tmp_path / "act.npy")

    session = onnxruntime.InferenceSession(tmp_path / "p.onnx", providers=["CPUExecutionProvider"])
    assert [i.name for i in session.get_inputs()] == ["obs"]
    assert session.get_inputs()[0].shape == ["batch", obs_dim]
    action, mean, log_std = session.run(["action", "mean", "log_std"], {"obs": obs})
    assert ours.shape == action.shape == (1000, act_dim)
    assert np.abs(action - ours).max() <= 1e-5

    # The other two outputs against the formula in float64.
    x = obs.astype(np.float64)
    for i in range(len(hidden)):
        x = np.maximum(x @ tensors[f"hidden.{i}.weight"].T + tensors[f"hidden.{i}.bias"], 0)
    head = {name: x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"] for name in ("mean", "log_std")}
    low, high = log_std_range or (-20, 2)
    assert np.abs(mean - head["mean"]).max() <= 1e-5 * max(1, np.abs(head["mean"]).max())
    assert np.abs(log_std - head["log_std"].clip(low, high)).max() <= 1e-4
    assert (log_std == low).any() or (log_std == high).any(), "the clamp is reached, so it is tested"
    one = session.run(["action"], {"obs": obs[:1]})[0]
    assert np.abs(one - action[:1]).max() <= 1e-6, "any number of rows"


@pytest.mark.parametrize("tanh_units", [False, True])
def test_normalised_layers(tmp_path, tanh_units):
    tensors = policy(tmp_path / "p.safetensors", 11, 3, [64, 50], (-5, 2))
    flags = ["layer_norm"] + ["tanh_units"] * tanh_units
    save_file({**tensors, **{name: np.array([1], np.uint64) for name in flags}}, tmp_path / "p.safetensors")
    obs = np.random.default_rng(1).normal(size=(500, 11)).astype(np.float32)
    np.save(tmp_path / "obs.npy", obs)
    run = offing("act", tmp_path / "p.safetensors", tmp_path / "obs.npy", tmp_path / "act.npy")
    assert run.returncode == 0, run.stderr
    run = offing("export", tmp_path / "p.safetensors", tmp_path / "p.onnx")
    assert run.returncode == 0, run.stderr
    session = onnxruntime.InferenceSession(tmp_path / "p.onnx", providers=["CPUExecutionProvider"])
    (action,) = session.run(["action"], {"obs": obs})
    x = obs.astype(np.float64)
    for i in range(2):
        x = x @ tensors[f"hidden.{i}.weight"].T + tensors[f"hidden.{i}.bias"]
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
        x = np.tanh(x) if tanh_units else np.maximum(x, 0)
    wanted = np.tanh(x @ tensors["mean.weight"].T + tensors["mean.bias"])
    assert np.abs(np.load(tmp_path / "act.npy") - wanted).max() <= 1e-5
    assert np.abs(action - wanted).max() <= 1e-5


def test_what_is_no_policy_is_refused_in_one_line(tmp_path):
    (tmp_path / "p.safetensors").write_bytes(b"<html>")
    policy(tmp_path / "good.safetensors", 3, 1, [4])
    np.save(tmp_path / "wide.npy", np.zeros((2, 5), np.float32))
    for arguments, piece in [
        (("export", tmp_path / "p.safetensors", tmp_path / "p.onnx"), "p.safetensors"),
        (("export", tmp_path / "good.safetensors", tmp_path / "p.txt"), ".onnx"),
        (("act", tmp_path / "good.safetensors", tmp_path / "wide.npy", tmp_path / "a.npy"), "of 3 columns"),
    ]:
        run = offing(*arguments)
        assert run.returncode == 2 and len(run.stderr.splitlines()) == 1 and piece in run.stderr, run.stderr


def test_actions_have_the_units_of_the_policy(tmp_path):
    tensors = policy(tmp_path / "p.safetensors", 5, 2, [16])
    low, high = np.array([0, -3], np.float32), np.array([40, -1], np.float32)
    save_file({**tensors, "action_low": low, "action_high": high}, tmp_path / "units.safetensors")
    obs = np.random.default_rng(1).normal(size=(200, 5)).astype(np.float32)
    np.save(tmp_path / "obs.npy", obs)
    for name in ("p", "units"):
        run = offing("act", tmp_path / f"{name}.safetensors", tmp_path / "obs.npy", tmp_path / f"{name}.npy")
        assert run.returncode == 0, run.stderr
    run = offing("export", tmp_path / "units.safetensors", tmp_path / "units.onnx")
    assert run.returncode == 0, run.stderr
    session = onnxruntime.InferenceSession(tmp_path / "units.onnx", providers=["CPUExecutionProvider"])
    (action,) = session.run(["action"], {"obs": obs})
    wanted = (low + high) / 2 + (high - low) / 2 * np.load(tmp_path / "p.npy")
    assert np.abs(np.load(tmp_path / "units.npy") - wanted).max() <= 1e-5
    assert np.abs(action - wanted).max() <= 1e-4
