"""Writes the small files that `cargo run -p offing --example fuzz_readers` damages, as the packages of each format write them.

    pip install numpy h5py pyarrow
    python scripts/make_corpus.py crates/offing/tests/corpus

Two episodes of twenty steps, three observations, two actions. Files that only offing writes (a saved index, a run) come from
these commands, and the small texts (`.toml`, `.condition`) from hand; this script leaves them alone.

    cd crates/offing/tests/corpus
    offing score table.csv table.csv --index saved.knn
    offing train bc table.csv --steps 20 --set 'hidden=[8,8]' --dir tiny
    mkdir run && cp tiny/config.toml run && cp tiny/policy.safetensors . && cp policy.safetensors state.checkpoint && rm -r tiny
"""

import json
import pathlib
import shutil
import sys

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

STEPS, EPISODES = 20, 2
ROWS = STEPS * EPISODES
time = np.tile(np.arange(STEPS), EPISODES)
episode = np.repeat(np.arange(EPISODES), STEPS)
state = lambda t: np.stack([np.sin(0.1 * t) + episode, np.cos(0.1 * t), 0.05 * t], 1).astype(np.float32)
obs, next_obs = state(time), state(time + 1)
act = np.stack([np.sin(time), np.cos(2.0 * time)], 1).astype(np.float32)
rew = (1 - 0.01 * time).astype(np.float32)
last = time == STEPS - 1
done, timeout = last & (episode == 0), last & (episode == 1)


def d4rl(path):
    with h5py.File(path, "w") as f:
        columns = dict(observations=obs, actions=act, rewards=rew, next_observations=next_obs, terminals=done, timeouts=timeout)
        for name, values in columns.items():
            f.create_dataset(name, data=values, compression="gzip")
        for layer, (rows, columns) in {"fc0": (4, 3), "fc1": (4, 4), "last_fc": (2, 4), "last_fc_log_std": (2, 4)}.items():
            f[f"metadata/policy/{layer}/weight"] = np.full((rows, columns), 0.1, np.float32)
            f[f"metadata/policy/{layer}/bias"] = np.zeros(rows, np.float32)
        f["metadata/algorithm"] = np.bytes_(b"SAC")


def robomimic(path):
    with h5py.File(path, "w") as f:
        for e in range(EPISODES):
            rows = episode == e
            demo = f.create_group(f"data/demo_{e}")
            demo["obs/object"], demo["obs/robot0_eef_pos"] = obs[rows, :2], obs[rows, 2:]
            demo["next_obs/object"], demo["next_obs/robot0_eef_pos"] = next_obs[rows, :2], next_obs[rows, 2:]
            demo["actions"], demo["rewards"], demo["dones"] = act[rows], rew[rows], done[rows].astype(np.int64)
            demo.attrs["num_samples"] = STEPS
        f["data"].attrs["env_args"] = json.dumps({"env_name": "Lift"})
        f["data"].attrs["total"] = ROWS


def minari_hdf5(path):
    (path / "data").mkdir(parents=True)
    with h5py.File(path / "data/main_data.hdf5", "w") as f:
        for e in range(EPISODES):
            rows = episode == e
            group = f.create_group(f"episode_{e}")
            group["observations"] = np.concatenate([obs[rows], next_obs[rows][-1:]])
            group["actions"], group["rewards"] = act[rows], rew[rows].astype(np.float64)
            group["terminations"], group["truncations"] = done[rows], timeout[rows]
        f.attrs["total_episodes"], f.attrs["total_steps"] = EPISODES, ROWS


def box(width):
    return json.dumps({"type": "Box", "dtype": "float32", "shape": [width], "low": [-1.0] * width, "high": [1.0] * width})


def minari_arrow(path):
    for e in range(EPISODES):
        rows = episode == e
        folder = path / f"data/{e}"
        folder.mkdir(parents=True)
        pad = lambda values: np.concatenate([values, values[-1:]])
        lists = lambda values: pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        batch = pa.record_batch(
            [lists(np.concatenate([obs[rows], next_obs[rows][-1:]])), lists(pad(act[rows])), pa.array(pad(rew[rows]).astype(float)),
             pa.array(pad(done[rows])), pa.array(pad(timeout[rows]))],
            names=["observations", "actions", "rewards", "terminations", "truncations"],
        )
        with pa.OSFile(str(folder / "part-0.arrow"), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
    metadata = {"data_format": "arrow", "total_episodes": EPISODES, "total_steps": ROWS, "observation_space": box(3), "action_space": box(2)}
    (path / "data/metadata.json").write_text(json.dumps(metadata))


def lerobot(path):
    (path / "meta").mkdir(parents=True)
    (path / "data/chunk-000").mkdir(parents=True)
    (path / "meta/info.json").write_text(json.dumps({"codebase_version": "v3.0", "fps": 10, "total_episodes": EPISODES}))
    pq.write_table(
        pa.table({
            "observation.state": pa.FixedSizeListArray.from_arrays(pa.array(obs.ravel()), 3),
            "action": pa.FixedSizeListArray.from_arrays(pa.array(act.ravel()), 2),
            "next.reward": rew, "next.done": last, "episode_index": episode, "frame_index": time,
            "timestamp": (0.1 * time).astype(np.float32),
        }),
        path / "data/chunk-000/file-000.parquet",
    )


def tables(folder):
    names = {f"obs_{i}": obs[:, i] for i in range(3)} | {f"act_{i}": act[:, i] for i in range(2)}
    names |= {"reward": rew, "terminal": done, "timeout": timeout, "episode": episode}
    for compression in ["snappy", "zstd"]:
        pq.write_table(pa.table(names), folder / f"table-{compression}.parquet", compression=compression)
    header, cells = list(names), [[str(value) for value in column] for column in names.values()]
    rows = list(zip(*cells))
    (folder / "table.csv").write_text("\n".join(",".join(row) for row in [header, *rows]) + "\n")
    comma = [[cell.replace(".", ",") for cell in row] for row in rows]
    (folder / "semicolons.csv").write_text("\n".join(";".join(row) for row in [header, *comma]) + "\n")


def archives(folder):
    np.savez(folder / "columns.npz", observations=obs, actions=act, rewards=rew, next_observations=next_obs, terminals=done, timeouts=timeout)
    np.savez_compressed(
        folder / "neorl.npz", obs=obs, action=act, next_obs=next_obs, reward=rew[:, None], done=done[:, None].astype(np.float32),
        index=np.arange(0, ROWS, STEPS),
    )
    np.save(folder / "rows.npy", obs[:4])
    np.save(folder / "columns.npy", np.asfortranarray(obs[:4]))
    np.savez_compressed(folder / "ogbench.npz", observations=obs, actions=act, terminals=last.astype(np.float32), rewards=rew, masks=1.0 - done)


def foreign(folder):
    """A policy as other programs write it: without offing's checksum, so that damages reach what reads the tensors."""
    data = (folder / "policy.safetensors").read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header.pop("__metadata__", None)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (folder / "foreign.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[end:])


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    d4rl(folder / "gym.hdf5")
    robomimic(folder / "robomimic.hdf5")
    for name, make in {"minari-hdf5": minari_hdf5, "minari-arrow": minari_arrow, "lerobot": lerobot}.items():
        shutil.rmtree(folder / name, ignore_errors=True)
        make(folder / name)
    tables(folder)
    archives(folder)
    if (folder / "policy.safetensors").is_file():
        foreign(folder)
    (folder / "alive.condition").write_text("0.7 < obs[0] < 2 && abs(obs[1]) < 0.2 || !(max(prev[2], act[1]) >= 1e3)")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
