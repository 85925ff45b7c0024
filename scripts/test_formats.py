"""h5py, minari, pyarrow, NumPy and pandas read the files offing writes, and offing reads theirs.

Needs: pip install pytest h5py "minari[hdf5,arrow]" pyarrow numpy pandas
Run:   cargo build -p offing --example convert && pytest scripts/test_formats.py
"""

import csv
import json
import pathlib
import subprocess

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from built import program


def converter():
    return program("examples/convert", "OFFING_CONVERT", "cargo build -p offing --example convert")


def convert(source, target=None):
    """Converts a file; returns offing's report of how it read it."""
    arguments = [converter(), str(source)] + ([str(target)] if target else [])
    run = subprocess.run(arguments, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[1])


def refused(source):
    run = subprocess.run([converter(), str(source)], capture_output=True, text=True)
    assert run.returncode == 1
    assert len(run.stderr.splitlines()) == 1, run.stderr
    assert pathlib.Path(source).name in run.stderr
    return run.stderr


def flat(rows=500, length=100):
    """Columns of a D4RL file: episodes of `length` steps, ended in turn by a terminal and by a time limit."""
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(rows, 5)).astype(np.float32)
    next_obs = np.roll(obs, -1, axis=0)
    ends = np.arange(length - 1, rows, length)
    next_obs[ends] = rng.normal(size=(len(ends), 5))
    terminals, timeouts = np.zeros(rows, bool), np.zeros(rows, bool)
    terminals[ends[::2]] = True
    timeouts[ends[1::2]] = True
    return {
        "observations": obs,
        "actions": np.tanh(rng.normal(size=(rows, 2))).astype(np.float32),
        "rewards": rng.normal(size=rows).astype(np.float32),
        "next_observations": next_obs,
        "terminals": terminals,
        "timeouts": timeouts,
        "infos/qpos": rng.normal(size=(rows, 3)),
        "infos/qvel": rng.normal(size=(rows, 3)),
    }


def write_h5(path, columns, **options):
    with h5py.File(path, "w", **options.pop("file", {})) as f:
        for key, value in columns.items():
            f.create_dataset(key, data=value, **options)
    return path


def check_h5(path, columns):
    with h5py.File(path) as f:
        for key, value in columns.items():
            assert f[key].dtype == value.dtype, key
            assert f[key].shape == value.shape, key
            np.testing.assert_array_equal(f[key][()], value, err_msg=key)


@pytest.mark.parametrize("options", [
    {},
    {"compression": "gzip"},
    {"compression": "gzip", "shuffle": True},
    {"compression": "gzip", "compression_opts": 9, "fletcher32": True},
    {"chunks": True},
    {"compression": "gzip", "file": {"libver": "latest"}},
    {"compression": "gzip", "maxshape": None, "file": {"libver": "earliest"}},
])
def test_d4rl_as_h5py_writes_it(tmp_path, options):
    columns = flat()
    source = write_h5(tmp_path / "a.hdf5", columns, **options)
    reading = convert(source, tmp_path / "b.hdf5")
    assert reading["rows_kept"] == 500 and not reading["dropped"]
    check_h5(tmp_path / "b.hdf5", columns)


def test_d4rl_other_types_and_shapes(tmp_path):
    columns = flat()
    odd = dict(columns)
    odd["observations"] = columns["observations"].astype(np.float64)
    odd["next_observations"] = columns["next_observations"].astype(">f4")
    odd["rewards"] = columns["rewards"].reshape(-1, 1)
    odd["terminals"] = columns["terminals"].astype(np.uint8).reshape(-1, 1)
    odd["timeouts"] = columns["timeouts"].astype(np.float32)
    odd["infos/qpos"] = columns["infos/qpos"].astype(">f8")
    convert(write_h5(tmp_path / "a.hdf5", odd, compression="gzip"), tmp_path / "b.hdf5")
    check_h5(tmp_path / "b.hdf5", columns)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("chunk", [(64, 1), (64, 2), (64, 4), (600, 3)])
def test_d4rl_in_narrow_chunks(tmp_path, chunk, order):
    """For a million rows h5py itself chooses chunks of one column."""
    columns = flat()
    with h5py.File(tmp_path / "a.hdf5", "w") as f:
        for key, value in columns.items():
            stored = value if value.dtype == bool else value.astype(value.dtype.newbyteorder(order))
            limits = (chunk[0], min(chunk[1], value.shape[1])) if value.ndim == 2 else chunk[:1]
            shape = tuple(min(c, n) for c, n in zip(limits, value.shape))
            f.create_dataset(key, data=stored, chunks=shape, compression="gzip")
    convert(tmp_path / "a.hdf5", tmp_path / "b.hdf5")
    check_h5(tmp_path / "b.hdf5", columns)


def test_d4rl_metadata_is_kept_or_listed(tmp_path):
    source = write_h5(tmp_path / "a.hdf5", flat())
    with h5py.File(source, "a") as f:
        f["metadata/algorithm"] = np.bytes_("SAC")
        f["metadata/note"] = "größer"
        f["metadata/policy/fc0/weight"] = np.zeros((256, 17))
        f["infos/action_log_probs"] = np.zeros(500)
    reading = convert(source, tmp_path / "b.hdf5")
    assert reading["ignored_keys"] == ["infos/action_log_probs", "metadata/policy/fc0/weight"]
    with h5py.File(tmp_path / "b.hdf5") as f:
        assert f["metadata/algorithm"][()] == b"SAC"
        assert f["metadata/note"][()].decode() == "größer"


def test_d4rl_without_next_observations(tmp_path):
    columns = flat()
    del columns["next_observations"]
    reading = convert(write_h5(tmp_path / "a.hdf5", columns), tmp_path / "b.hdf5")
    # Two time limits, and three terminals before a reset or the end of the file. In this noise a reset looks like any
    # other step, so the two terminals inside the file take the following row, and the last row is dropped.
    dropped = {reason.split(":")[0]: count for reason, count in reading["dropped"]}
    assert dropped["at a time limit"] == 2
    assert reading["rows_kept"] + sum(dropped.values()) == 500
    with h5py.File(tmp_path / "b.hdf5") as f:
        np.testing.assert_array_equal(f["next_observations"][:98], columns["observations"][1:99])


def test_bad_hdf5_files(tmp_path):
    columns = flat()

    def bad(**changes):
        changed = {k: v for k, v in {**columns, **changes}.items() if v is not None}
        return refused(write_h5(tmp_path / "bad.hdf5", changed, compression="gzip"))

    assert "`observations`" in bad(observations=None)
    assert "`terminals`" in bad(terminals=None)
    assert "`rewards`: wanted 500 rows" in bad(rewards=columns["rewards"][:-1])
    assert "`actions`: wanted shape (rows, width), found (500, 2, 1)" in bad(actions=columns["actions"][..., None])
    assert "`rewards`: wanted shape (rows,)" in bad(rewards=columns["actions"])
    assert "`next_observations`: wanted width 5, found 4" in bad(next_observations=columns["next_observations"][:, :4])
    nan = columns["rewards"].copy()
    nan[77] = np.nan
    assert "`rewards`: wanted finite numbers, found NaN in row 77" in bad(rewards=nan)
    assert "`terminals`: wanted 0 or 1, found 2 in row 0" in bad(terminals=np.full(500, 2))
    assert "`actions`" in bad(actions=np.array([b"x"] * 500))
    empty = {k: v[:0] for k, v in columns.items()}
    assert "`observations`: wanted at least one row" in refused(write_h5(tmp_path / "none.hdf5", empty))
    whole = write_h5(tmp_path / "whole.hdf5", columns, compression="gzip").read_bytes()
    for share in (0.1, 0.5, 0.9, 0.999):
        (tmp_path / "cut.hdf5").write_bytes(whole[: int(len(whole) * share)])
        assert "truncated" in refused(tmp_path / "cut.hdf5")


def minari_episodes(columns, length=100):
    for number, start in enumerate(range(0, len(columns["rewards"]), length)):
        rows = slice(start, start + length)
        last = columns["next_observations"][rows][-1:]
        yield number, rows, np.concatenate([columns["observations"][rows], last])


def check_minari(dataset, columns):
    assert dataset.total_steps == len(columns["rewards"])
    for number, rows, obs in minari_episodes(columns):
        episode = dataset[number]
        np.testing.assert_array_equal(episode.observations, obs)
        np.testing.assert_array_equal(episode.actions, columns["actions"][rows])
        np.testing.assert_array_equal(episode.rewards, columns["rewards"][rows])
        np.testing.assert_array_equal(episode.terminations, columns["terminals"][rows])
        np.testing.assert_array_equal(episode.truncations, columns["timeouts"][rows])
        assert episode.observations.dtype == np.float32
        assert episode.terminations.dtype == bool


def test_minari_reads_what_offing_writes(tmp_path, monkeypatch):
    minari = pytest.importorskip("minari")
    columns = flat()
    convert(write_h5(tmp_path / "a.hdf5", columns), tmp_path / "set" / "made-v0")
    dataset = minari.MinariDataset(tmp_path / "set" / "made-v0" / "data")
    check_minari(dataset, columns)
    assert dataset.observation_space.shape == (5,) and dataset.action_space.shape == (2,)
    np.testing.assert_array_equal(dataset[1].infos["qpos"], columns["infos/qpos"][100:200])
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "set"))
    check_minari(minari.load_dataset("made-v0"), columns)
    # And back again, from the directory, its data directory and the file.
    for part in ("", "data", "data/main_data.hdf5"):
        convert(tmp_path / "set" / "made-v0" / part, tmp_path / "back.hdf5")
        check_h5(tmp_path / "back.hdf5", columns)


def minari_write(path, observation_space, episodes, data_format="hdf5"):
    """Writes a dataset with Minari itself."""
    gym = pytest.importorskip("gymnasium")
    pytest.importorskip("minari")
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    path.mkdir(parents=True)
    action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    storage = MinariStorage.new(path, observation_space, action_space, data_format=data_format)
    storage.update_metadata({"dataset_id": "test/dict-v0", "minari_version": "0.5.0"})
    storage.update_episodes([EpisodeBuffer(**episode) for episode in episodes])


def episode(length, observations, seed=0):
    rng = np.random.default_rng(seed)
    flags = np.zeros(length, bool)
    ended = flags.copy()
    ended[-1] = True
    return {
        "observations": observations,
        "actions": rng.uniform(-1, 1, (length, 2)).astype(np.float32),
        "rewards": rng.normal(size=length),
        "terminations": flags if seed % 2 else ended,
        "truncations": ended if seed % 2 else flags,
        "infos": {"qpos": rng.normal(size=(length + 1, 3)), "qvel": rng.normal(size=(length + 1, 3))},
    }


def test_offing_reads_what_minari_writes(tmp_path):
    gym = pytest.importorskip("gymnasium")
    rng = np.random.default_rng(1)
    space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float64)
    lengths = [3 + i % 5 for i in range(12)]  # more than ten: numeric, not alphabetical, order
    episodes = [episode(n, rng.normal(size=(n + 1, 4)), i) for i, n in enumerate(lengths)]
    minari_write(tmp_path / "d-v0" / "data", space, episodes)
    convert(tmp_path / "d-v0", tmp_path / "b.hdf5")
    with h5py.File(tmp_path / "b.hdf5") as f:
        joined = lambda key, part=slice(None): np.concatenate([e[key][part] for e in episodes])
        np.testing.assert_array_equal(f["observations"], joined("observations", slice(-1)).astype(np.float32))
        np.testing.assert_array_equal(f["next_observations"], joined("observations", slice(1, None)).astype(np.float32))
        np.testing.assert_array_equal(f["rewards"], joined("rewards").astype(np.float32))
        np.testing.assert_array_equal(f["terminals"], joined("terminations"))
        np.testing.assert_array_equal(f["timeouts"], joined("truncations"))
        qpos = np.concatenate([e["infos"]["qpos"][:-1] for e in episodes])
        np.testing.assert_array_equal(f["infos/qpos"], qpos)


def test_minari_nested_observations(tmp_path):
    gym = pytest.importorskip("gymnasium")
    rng = np.random.default_rng(2)
    box = lambda *shape: gym.spaces.Box(-np.inf, np.inf, shape, np.float32)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)

    goal_space = gym.spaces.Dict(observation=box(27), achieved_goal=box(2), desired_goal=box(2))
    obs = {"observation": draw(6, 27), "achieved_goal": draw(6, 2), "desired_goal": draw(6, 2)}
    minari_write(tmp_path / "goal-v0" / "data", goal_space, [episode(5, obs)])
    reading = convert(tmp_path / "goal-v0", tmp_path / "goal.hdf5")
    assert any("desired_goal is left out" in note for note in reading["notes"])
    with h5py.File(tmp_path / "goal.hdf5") as f:
        wanted = np.concatenate([obs["achieved_goal"], obs["observation"]], axis=1)
        np.testing.assert_array_equal(f["observations"], wanted[:-1])

    nested = gym.spaces.Dict(b=gym.spaces.Tuple([box(2), box(1, 2)]), a=box(3))
    obs = {"b": (draw(6, 2), draw(6, 1, 2)), "a": draw(6, 3)}
    minari_write(tmp_path / "nested-v0" / "data", nested, [episode(5, obs)])
    convert(tmp_path / "nested-v0", tmp_path / "nested.hdf5")
    with h5py.File(tmp_path / "nested.hdf5") as f:
        wanted = np.concatenate([obs["a"], obs["b"][0], obs["b"][1].reshape(6, 2)], axis=1)
        np.testing.assert_array_equal(f["next_observations"], wanted[1:])


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
def test_minari_in_other_storages(tmp_path, data_format):
    gym = pytest.importorskip("gymnasium")
    rng = np.random.default_rng(3)
    box = lambda *shape: gym.spaces.Box(-np.inf, np.inf, shape, np.float64)
    space = gym.spaces.Dict(b=gym.spaces.Tuple([box(2), box(1, 2)]), a=box(3))
    episodes = []
    for i in range(12):
        n = 3 + i % 5
        obs = {"b": (rng.normal(size=(n + 1, 2)), rng.normal(size=(n + 1, 1, 2))), "a": rng.normal(size=(n + 1, 3))}
        episodes.append(episode(n, obs, i))
    minari_write(tmp_path / "hdf5-v0" / "data", space, episodes)
    minari_write(tmp_path / "other-v0" / "data", space, episodes, data_format=data_format)
    convert(tmp_path / "hdf5-v0", tmp_path / "a.npz")
    convert(tmp_path / "other-v0", tmp_path / "b.npz")
    with np.load(tmp_path / "a.npz") as wanted, np.load(tmp_path / "b.npz") as got:
        assert sorted(got.files) == sorted(wanted.files)
        for key in wanted.files:
            assert got[key].dtype == wanted[key].dtype, key
            np.testing.assert_array_equal(got[key], wanted[key], err_msg=key)


def test_parquet_both_ways(tmp_path):
    columns = flat()
    convert(write_h5(tmp_path / "a.hdf5", columns), tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.schema.field("obs_0").type == pa.float32()
    assert table.schema.field("qpos_0").type == pa.float64()
    assert table.schema.field("terminal").type == pa.bool_()
    got = np.stack([table[f"next_obs_{j}"].to_numpy() for j in range(5)], axis=1)
    np.testing.assert_array_equal(got, columns["next_observations"])
    for codec in ("snappy", "zstd", "gzip", "lz4", "none"):
        pq.write_table(table, tmp_path / "b.parquet", compression=codec, row_group_size=130)
        convert(tmp_path / "b.parquet", tmp_path / "b.hdf5")
        check_h5(tmp_path / "b.hdf5", columns)


@pytest.mark.parametrize("kind", ["list", "fixed_size_list"])
def test_parquet_list_columns(tmp_path, kind):
    columns = flat()

    def lists(key):
        value = columns[key]
        size = value.shape[1] if kind == "fixed_size_list" else -1
        return pa.array(value.tolist(), pa.list_(pa.float32(), size))

    table = pa.table({
        "observations": lists("observations"),
        "actions": lists("actions"),
        "rewards": columns["rewards"],
        "next_observations": lists("next_observations"),
        "terminals": columns["terminals"],
        "timeouts": columns["timeouts"],
    })
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=130)
    convert(tmp_path / "a.parquet", tmp_path / "b.hdf5")
    check_h5(tmp_path / "b.hdf5", {k: v for k, v in columns.items() if not k.startswith("infos")})


def test_bad_parquet(tmp_path):
    base = {"obs_0": [1.0, 2.0], "act_0": [1.0, 2.0], "reward": [1.0, 2.0], "next_obs_0": [2.0, 3.0]}

    def bad(**changes):
        pq.write_table(pa.table({**base, **changes}), tmp_path / "a.parquet")
        return refused(tmp_path / "a.parquet")

    assert "`act_0`: wanted a value in every row, found none in row 1" in bad(act_0=pa.array([1.0, None]))
    assert "`reward`" in bad(reward=["a", "b"])
    ragged = pa.table({"obs": [[1.0], [1.0, 2.0]], "act_0": [1.0, 2.0], "reward": [1.0, 2.0]})
    pq.write_table(ragged, tmp_path / "r.parquet")
    assert "`obs`: wanted lists of one length, found another length in row 1" in refused(tmp_path / "r.parquet")
    pq.write_table(pa.table({k: pa.array([], pa.float32()) for k in base}), tmp_path / "z.parquet")
    assert "at least one row" in refused(tmp_path / "z.parquet")


def test_npz_both_ways(tmp_path):
    columns = flat()
    convert(write_h5(tmp_path / "a.hdf5", columns), tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as archive:
        for key, value in columns.items():
            assert archive[key].dtype == value.dtype
            np.testing.assert_array_equal(archive[key], value)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "b.npz", **columns)
        convert(tmp_path / "b.npz", tmp_path / "b.hdf5")
        check_h5(tmp_path / "b.hdf5", columns)
    np.savez(tmp_path / "f.npz", **{**columns, "observations": np.asfortranarray(columns["observations"])})
    convert(tmp_path / "f.npz", tmp_path / "f.hdf5")
    check_h5(tmp_path / "f.hdf5", columns)
    np.savez(tmp_path / "m.npz", **{**columns, "rewards": columns["rewards"][:-1]})
    assert "`rewards`: wanted 500 rows" in refused(tmp_path / "m.npz")


def test_csv_both_ways(tmp_path):
    columns = flat()
    convert(write_h5(tmp_path / "a.hdf5", columns), tmp_path / "a.csv")
    with open(tmp_path / "a.csv") as f:
        rows = list(csv.DictReader(f))
    got = np.array([[row[f"obs_{j}"] for j in range(5)] for row in rows], dtype=np.float32)
    np.testing.assert_array_equal(got, columns["observations"])
    convert(tmp_path / "a.csv", tmp_path / "b.hdf5")
    check_h5(tmp_path / "b.hdf5", columns)


def test_pandas_both_ways(tmp_path):
    columns = flat()
    convert(write_h5(tmp_path / "a.hdf5", columns), tmp_path / "a.csv")
    convert(tmp_path / "a.hdf5", tmp_path / "a.parquet")
    tables = {"csv": pd.read_csv(tmp_path / "a.csv"), "parquet": pd.read_parquet(tmp_path / "a.parquet")}
    for table in tables.values():
        for prefix, key in {"obs": "observations", "next_obs": "next_observations", "act": "actions"}.items():
            got = table[[f"{prefix}_{j}" for j in range(columns[key].shape[1])]].to_numpy(np.float32)
            np.testing.assert_array_equal(got, columns[key], err_msg=key)
        np.testing.assert_array_equal(table["reward"].to_numpy(np.float32), columns["rewards"])
        np.testing.assert_array_equal(table["terminal"].to_numpy(bool), columns["terminals"])
    for name, table in tables.items():
        table.to_csv(tmp_path / f"{name}-commas.csv", index=False)
        table.to_csv(tmp_path / f"{name}-semicolons.csv", index=False, sep=";", decimal=",")
        table.to_csv(tmp_path / f"{name}-tabs.tsv", index=False, sep="\t")
        table.to_parquet(tmp_path / f"{name}-back.parquet")
        for back in ("commas.csv", "semicolons.csv", "tabs.tsv", "back.parquet"):
            convert(tmp_path / f"{name}-{back}", tmp_path / "b.hdf5")
            check_h5(tmp_path / "b.hdf5", columns)


def test_neorl(tmp_path):
    columns = {k: v for k, v in flat().items() if not k.startswith("infos")}
    keys = {"observations": "obs", "actions": "action", "rewards": "reward", "next_observations": "next_obs"}
    base = {new: columns[old] for old, new in keys.items()}
    base["reward"] = base["reward"].reshape(-1, 1)
    base["done"] = columns["terminals"].astype(np.float32)
    np.savez_compressed(tmp_path / "a.npz", **base, truncated=columns["timeouts"].astype(np.float32))
    np.savez_compressed(tmp_path / "b.npz", **base, index=np.arange(0, 500, 100))
    for name in ("a", "b"):
        convert(tmp_path / f"{name}.npz", tmp_path / f"{name}.hdf5")
        check_h5(tmp_path / f"{name}.hdf5", columns)


def test_ogbench(tmp_path):
    """Its compact form, with rewards and masks, and the regular one that it makes of the same file."""
    rng = np.random.default_rng(4)
    obs = rng.normal(size=(60, 3)).astype(np.float32)
    act = rng.uniform(-1, 1, (60, 2)).astype(np.float32)
    last = np.arange(60) % 20 == 19
    ends = (last | np.roll(last, -1)).astype(np.float32)
    success = rng.random(60) < 0.1
    labels = {"rewards": success - 1.0, "masks": 1.0 - success}
    np.savez(tmp_path / "a.npz", observations=obs, actions=act, terminals=ends, valids=1.0 - last, **labels)
    regular = {key: value[~last] for key, value in labels.items()}
    np.savez(
        tmp_path / "b.npz", observations=obs[~last], actions=act[~last], terminals=ends[~last],
        next_observations=obs[np.roll(~last, 1)], **regular,
    )
    for name in ("a", "b"):
        reading = convert(tmp_path / f"{name}.npz", tmp_path / f"{name}.hdf5")
        assert reading["rows_kept"] == 57
        check_h5(tmp_path / f"{name}.hdf5", {
            "observations": obs[~last],
            "next_observations": obs[np.roll(~last, 1)],
            "actions": act[~last],
            "rewards": regular["rewards"].astype(np.float32),
            "terminals": success[~last],
            "timeouts": ends[~last] > 0,
        })
    np.savez(tmp_path / "c.npz", observations=obs, actions=act, terminals=last)
    assert "`rewards`: wanted rewards, as OGBench's singletask sets have" in refused(tmp_path / "c.npz")


def test_robomimic(tmp_path):
    rng = np.random.default_rng(5)
    with h5py.File(tmp_path / "a.hdf5", "w") as f:
        for demo in range(11):
            group = f.create_group(f"data/demo_{demo}")
            path = {"object": rng.normal(size=(8, 2)), "eef": rng.normal(size=(8, 3)).astype(np.float32)}
            for key, value in path.items():
                group[f"obs/{key}"], group[f"next_obs/{key}"] = value[:-1], value[1:]
            group["obs/image"] = np.zeros((7, 4, 4, 3), np.uint8)
            group["actions"] = rng.uniform(-1, 1, (7, 4))
            group["rewards"] = np.array([0, 0, 0, 0, 0, 1, 1.0]) * (demo > 0)
            group["dones"] = np.array([0, 0, 0, 0, 0, demo > 0, 1])
        f["mask/train"] = np.array([b"demo_0"])
        wanted = np.concatenate([np.concatenate([f[f"data/demo_{d}/next_obs/{k}"] for k in ("eef", "object")], axis=1)
                                 for d in range(11)]).astype(np.float32)
    reading = convert(tmp_path / "a.hdf5", tmp_path / "b.hdf5")
    assert reading["notes"][0] == "observation = eef, object"
    with h5py.File(tmp_path / "b.hdf5") as f:
        np.testing.assert_array_equal(f["next_observations"], wanted)
        assert np.flatnonzero(f["timeouts"]).tolist() == [6]  # the first was not solved
        assert np.flatnonzero(f["terminals"])[:3].tolist() == [12, 13, 19]


@pytest.mark.parametrize("version", [2, 3])
def test_lerobot(tmp_path, version):
    rng = np.random.default_rng(6)
    tables = []
    for number in range(3):
        n = 5 + number
        tables.append(pa.table({
            "observation.state": pa.array(rng.normal(size=(n, 2)).tolist(), pa.list_(pa.float32(), 2)),
            "observation.image": pa.array([{"bytes": b"x", "path": None}] * n),
            "action": pa.array(rng.normal(size=(n, 1)).tolist(), pa.list_(pa.float32())),
            "next.reward": pa.array(np.arange(n, dtype=np.float32)),
            "next.done": pa.array(np.arange(n) == n - 1),
            "episode_index": pa.array([number] * n, pa.int64()),
            "frame_index": pa.array(range(n), pa.int64()),
        }))
    chunk = tmp_path / "set" / "data" / "chunk-000"
    chunk.mkdir(parents=True)
    (tmp_path / "set" / "meta").mkdir()
    (tmp_path / "set" / "meta" / "info.json").write_text(json.dumps({"codebase_version": f"v{version}.0"}))
    if version == 3:
        pq.write_table(pa.concat_tables(tables), chunk / "file-000.parquet")
    else:
        for number, table in enumerate(tables):
            pq.write_table(table, chunk / f"episode_{number:06}.parquet")
    reading = convert(tmp_path / "set", tmp_path / "b.hdf5")
    assert sum(count for _, count in reading["dropped"]) == 3
    states = [np.array(t["observation.state"].to_pylist(), np.float32) for t in tables]
    with h5py.File(tmp_path / "b.hdf5") as f:
        np.testing.assert_array_equal(f["observations"], np.concatenate([s[:-1] for s in states]))
        np.testing.assert_array_equal(f["next_observations"], np.concatenate([s[1:] for s in states]))
