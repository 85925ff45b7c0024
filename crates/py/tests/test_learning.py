"""Datasets, training, policies and simulators from Python, end to end on the point mass."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import offing
from offing.gym import SimEnv

def test_a_trained_policy_acts_in_a_gymnasium_loop(log, train):
    run = train()
    policy = run.policy
    assert (policy.obs_dim, policy.act_dim) == (4, 2)
    assert {p.name for p in run.path.iterdir()} >= {"config.toml", "metrics.jsonl", "policy.onnx"}
    env = SimEnv("point-mass")
    obs, _ = env.reset(seed=0)
    for _ in range(10):
        obs, *_ = env.step(policy(obs))
    many = policy(log.observations[:50])
    assert many.shape == (50, 2) and (np.abs(many) <= 1).all()
    assert (policy(log.observations[7]) == many[7]).all()
    assert (policy(log.observations[:50], seed=1) == policy(log.observations[:50], seed=1)).all()
    assert (policy(log.observations[:50], seed=1) != many).any()


def weights(run):
    return (run.path / "policy.safetensors").read_bytes()


def test_the_same_seed_gives_the_same_bytes_on_any_threads(train):
    a = weights(train(dir="a", threads=1))
    assert weights(train(dir="b", threads=2)) == a
    assert weights(train(dir="c", seed=1)) != a


@pytest.fixture
def sigint():
    """Python's own handler, also where whoever started the tests ignores the signal, as shells do in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_saves_and_the_same_call_goes_on(train, tmp_path, sigint):
    # Long enough to be still at it when the signal comes, which is as soon as the training has begun.
    steps = 8000
    whole = weights(train(dir="whole", steps=steps))
    checkpoints = tmp_path / "cut" / "checkpoints"

    def interrupt():
        while not checkpoints.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        train(dir="cut", steps=steps)
    assert not (tmp_path / "cut" / "policy.safetensors").exists()
    assert weights(train(dir="cut", steps=steps)) == whole


def test_mistakes_raise_with_the_programs_own_words(log, tmp_path, train):
    with pytest.raises(ValueError, match="did you mean `mopo`"):
        offing.train("mopp", log, dir=tmp_path / "x")
    with pytest.raises(ValueError, match="lambda"):
        offing.train("mopo", log, dir=tmp_path / "x", pessimism__lamda=1)
    with pytest.raises(ValueError, match="hopper-medium"):
        offing.load_dataset("hoper-medium")
    with pytest.raises(OSError):
        offing.Policy(tmp_path / "nothing.safetensors")
    with pytest.raises(ValueError, match="4"):
        train().policy(np.zeros(5))
    unfinished = train("bc", dir="other", steps=20, model=None, sac=None, rollout=None)
    (unfinished.path / "policy.safetensors").unlink()
    with pytest.raises(ValueError, match="wanted a finished run"):
        unfinished.policy


def test_a_name_inside_a_file_stays_inside_runs(log, tmp_path, train, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(log, "name", "../../../../escaped")
    run = train(dir=None)
    assert run.path.resolve().is_relative_to(tmp_path / "work" / "runs")
    assert {path.name for path in tmp_path.iterdir()} == {"work"}


def test_code_in_the_working_directory_does_not_run_when_offing_starts_itself(tmp_path):
    for name in ["csv.py", "json.py", "signal.py", "numpy.py", "offing.py"]:
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write(__name__)")
    done = subprocess.run([*offing._offing.COMMAND, "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("offing "), done
    assert not (tmp_path / "ran").exists()


def test_a_dataset_goes_through_a_file_unchanged(log, tmp_path):
    again = offing.load_dataset(log.save(tmp_path / "log.npz"))
    assert len(again) == len(log) == 1200
    for key in log.keys():
        assert (again[key] == log[key]).all(), key
    with pytest.raises(ValueError, match="rewards: wanted 1200 rows"):
        offing.Dataset(log.observations, log.actions, log.rewards[:-1])


def test_minari_reads_what_offing_wrote(log, tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    theirs = log.to_minari("offing/point-mass-v0")
    assert minari.load_dataset("offing/point-mass-v0").total_steps == theirs.total_steps == len(log)
    episodes = list(theirs.iterate_episodes())
    assert (np.concatenate([e.actions for e in episodes]) == log.actions).all()
    assert (np.concatenate([e.observations[:-1] for e in episodes]) == log.observations).all()
    assert (np.concatenate([e.observations[1:] for e in episodes]) == log.next_observations).all()
    back = offing.load_dataset(tmp_path / "offing" / "point-mass-v0")
    for key in log.keys():
        assert (back[key] == log[key]).all(), key


def test_the_command_line_comes_with_the_package():
    done = subprocess.run([sys.executable, "-m", "offing", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["offing", offing.__version__]
    done = subprocess.run([sys.executable, "-m", "offing", "trian"], capture_output=True, text=True)
    assert done.returncode == 2 and "train" in done.stderr
