"""offing on a Ray cluster of two nodes on one host: `make ray-test`. Too large for `make test`."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import ray
from ray.cluster_utils import Cluster

import offing
from offing.ray import ShardedIndex, run_grid


@pytest.fixture
def cluster():
    """A head that runs nothing and two nodes of one core each."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_shards_answer_as_one_index_does(cluster, metric):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, 7)).astype(np.float32)
    rows[4000:4050] = rows[:50]  # Twins in different parts: ties must go to the lower row.
    queries = np.concatenate([rng.normal(size=(300, 7)).astype(np.float32), rows[:50]])
    one = offing.Index(rows, metric)
    many = ShardedIndex([rows[:40], lambda: rows[40:]], metric)
    assert len(many) == 5000 and many.dim == 7
    for k in (1, 10, 100):  # 100: more than the first part has.
        for ours, theirs in zip(many.search(queries, k), one.search(queries, k)):
            assert (ours == theirs).all()
    for k in (1, 3):
        assert many.max_self(k, chunk=700) == one.max_self(k)
    with pytest.raises(ValueError, match="k: wanted 1 to 5000"):
        many.search(queries, 5001)


SETTINGS = [
    "model.ensemble.hidden=[16,16]",
    "model.ensemble.decay=[0.0,0.0,0.0]",
    "model.ensemble.members=3",
    "model.ensemble.elites=2",
    "model.ensemble.max_epochs=2",
    "rollout.every=50",
    "rollout.starts=100",
    "sac.hidden=[32,32]",
    "train.batch=64",
    "train.steps=3000",
    "train.evaluate_every=1000",
    "train.checkpoint_every=100",
    "train.episodes=2",
]


def test_a_grid_survives_the_loss_of_a_node(cluster, tmp_path, monkeypatch):
    nodes = cluster[1]
    monkeypatch.chdir(tmp_path)  # The cluster started elsewhere: relative paths must still count from here.
    data, grid = tmp_path / "hopper-random.hdf5", tmp_path / "tiny.toml"
    program = [sys.executable, "-m", "offing"]
    make = ["-q", "data", "make", "hopper-random", "--rows", "3000", "--out", str(data)]
    subprocess.run(program + make, check=True)
    grid.write_text(
        "title = 'Tiny'\nabout = 'A tiny grid.'\n"
        f"[profile.tiny]\ndatasets = ['{data}']\nseeds = 2\nsettings = 'paper'\nset = {SETTINGS!r}\n"
        "[grid]\nkind = 'training'\ncolumns = [{ name = 'mopo+sumo', against = 'mopo' }, { name = 'mopo' }]\n"
    )

    def words(name):
        return ["--profile", "tiny", "--dir", name, "--out", f"{name}-out"]

    subprocess.run(program + ["-q", "reproduce", str(grid), *words("local")], check=True, stdout=subprocess.DEVNULL)

    def lose_a_node():
        # Wait until both nodes work and the first checkpoints are written.
        while len(list((tmp_path / "ray").rglob("checkpoints/*"))) < 4:
            time.sleep(0.05)
        cluster[0].remove_node(nodes[0], allow_graceful=False)

    killer = threading.Thread(target=lose_a_node)
    killer.start()
    assert run_grid(grid.name, words("ray")) == 0
    killer.join()
    deadline = time.monotonic() + 60  # The head notices a loss only after some missed heartbeats.
    while sum(node["Alive"] for node in ray.nodes()) != 2:
        assert time.monotonic() < deadline, "the head and one node are left"
        time.sleep(0.5)
    for ending in ("csv", "cells.csv", "curves.csv"):
        alone, together = ((tmp_path / f"{name}-out" / f"tiny.{ending}").read_bytes() for name in ("local", "ray"))
        assert together == alone, ending
