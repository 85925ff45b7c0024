"""Times reading and generating datasets: offing beside h5py and Gymnasium, in turns in one run.

    python scripts/bench_data_peers.py --offing target/release/offing --file SOME_D4RL.hdf5 \
        --policies DIR --policy DIR/hopper-5.safetensors --json out.json

Prints medians and ratios. Reading compares processor time of one whole read of a file that h5py wrote with gzip.
Generating compares wall time of rolling out the same policy, on as many processes as offing has threads.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

READ = """
import sys, time, h5py
start = time.process_time()
with h5py.File(sys.argv[1], "r") as f:
    columns = {}
    f.visititems(lambda name, item: columns.__setitem__(name, item[()]) if isinstance(item, h5py.Dataset) else None)
print(time.process_time() - start)
"""


def rewrite_with_gzip(source, target):
    """The same columns, written by h5py as D4RL's own scripts write them."""
    with h5py.File(source, "r") as f, h5py.File(target, "w") as out:
        def copy(name, item):
            if isinstance(item, h5py.Dataset):
                out.create_dataset(name, data=item[()], compression="gzip" if item.shape else None)
        f.visititems(copy)
        return len(f["rewards"])


def offing_bench(offing, *args):
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        subprocess.run([offing, "bench", "data", "--samples", "1", "--json", f.name, "-q", *args],
                       check=True, stdout=subprocess.DEVNULL)
        results = json.load(open(f.name))
    return {r["name"]: r["median"] for r in results["results"]}, results


def numpy_policy(path):
    from safetensors.numpy import load_file
    t = load_file(path)

    def act(obs, rng):
        x = obs.astype(np.float32)
        for i in range(2):
            x = np.maximum(t[f"hidden.{i}.weight"] @ x + t[f"hidden.{i}.bias"], 0)
        mean = t["mean.weight"] @ x + t["mean.bias"]
        log_std = np.clip(t["log_std.weight"] @ x + t["log_std.bias"], -20, 2)
        return np.tanh(mean + np.exp(log_std) * rng.standard_normal(mean.shape).astype(np.float32))

    return act


def gymnasium_rows(task, policy, rows, seed):
    """Rolls out `rows` rows and records the columns of a D4RL file."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import gymnasium
    env = gymnasium.make(task)
    act, rng = numpy_policy(policy), np.random.default_rng(seed)
    columns = {k: [] for k in ("obs", "act", "rew", "next", "term", "trunc", "qpos", "qvel")}
    obs, _ = env.reset(seed=seed)
    for _ in range(rows):
        action = act(obs, rng)
        data = env.unwrapped.data
        qpos, qvel = data.qpos.copy(), data.qvel.copy()
        following, reward, terminated, truncated, _ = env.step(action)
        for key, value in zip(columns, (obs, action, reward, following, terminated, truncated, qpos, qvel)):
            columns[key].append(value)
        obs = env.reset()[0] if terminated or truncated else following
    return sum(np.asarray(c).nbytes for c in columns.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--offing", required=True)
    parser.add_argument("--file", required=True, help="a D4RL-like file whose columns are rewritten by h5py with gzip")
    parser.add_argument("--policies", required=True, help="directory with the policies of the set")
    parser.add_argument("--policy", required=True, help="the policy file offing takes for --set")
    parser.add_argument("--set", default="hopper-medium")
    parser.add_argument("--task", default="Hopper-v4")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows offing generates per round")
    parser.add_argument("--gymnasium-rows", type=int, default=100_000, help="rows Gymnasium generates per round (rates compare)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    args = parser.parse_args()

    samples = {}

    def add(name, unit, value):
        samples.setdefault((name, unit), []).append(value)

    with tempfile.TemporaryDirectory() as directory:
        file = str(pathlib.Path(directory) / "gzip.hdf5")
        rows = rewrite_with_gzip(args.file, file)
        for _ in range(args.rounds):
            add("h5py read, processor time", "s",
                float(subprocess.run([sys.executable, "-c", READ, file], check=True, capture_output=True).stdout))
            ours, meta = offing_bench(args.offing, "--file", file)
            add("offing read, processor time", "s", ours["read, processor time"])
            add("offing read, wall time", "s", ours["read, wall time"])

    threads = meta["threads"]
    per_process = args.gymnasium_rows // threads
    for seed in range(args.rounds):
        start = time.perf_counter()
        with multiprocessing.get_context("fork").Pool(threads) as pool:
            pool.starmap(gymnasium_rows, [(args.task, args.policy, per_process, seed * threads + i) for i in range(threads)])
        add(f"Gymnasium + NumPy, {args.set}", "rows/s", per_process * threads / (time.perf_counter() - start))
        ours, _ = offing_bench(args.offing, "--set", args.set, "--rows", str(args.rows), "--policies", args.policies)
        add(f"offing make, {args.set} (file written)", "rows/s", ours[f"make {args.set} ({args.rows} rows)"])

    median = {name: statistics.median(values) for (name, _), values in samples.items()}
    for (name, unit), values in samples.items():
        print(f"{name:45} {median[name]:12.3f} {unit:8} {[round(v, 3) for v in values]}")
    read = median["offing read, processor time"] / median["h5py read, processor time"]
    make = median[f"offing make, {args.set} (file written)"] / median[f"Gymnasium + NumPy, {args.set}"]
    print(f"reading {rows} rows: {read:.2f} × h5py's processor time; making: {make:.2f} × Gymnasium's rate ({threads} threads)")
    if args.json:
        results = [{"name": n, "unit": u, "median": median[n], "samples": v} for (n, u), v in samples.items()]
        json.dump({**{k: meta[k] for k in ("commit", "machine", "threads")}, "bench": "data-peers", "results": results},
                  open(args.json, "w"), indent=1)


if __name__ == "__main__":
    main()
