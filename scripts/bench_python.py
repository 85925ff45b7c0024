#!/usr/bin/env python3
"""Times searches from Python against the same searches from Rust and against FAISS Flat's Python API, in turns.

    cargo build --release -p offing-knn --example bench
    python scripts/bench_python.py --rows rows.npy --queries queries.npy --json python.json

All three search the same float32 arrays with the same number of threads in one run. Every round calls the Rust program
anew, and FAISS Flat on fewer queries (it is a scan: its time grows with their number). Needs offing (`pip install .`),
numpy and faiss-cpu.
"""

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time

import numpy as np

import offing
from offing import _offing
from offing._arrays import matrix


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", required=True)
    p.add_argument("--queries", required=True)
    p.add_argument("--rust", default="target/release/examples/bench", help="offing-knn's example `bench`")
    p.add_argument("--k", type=lambda text: [int(k) for k in text.split(",")], default=[1, 10])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--flat-queries", type=int, default=256)
    p.add_argument("--json")
    return p.parse_args()


def seconds(work):
    clock = time.perf_counter()
    work()
    return time.perf_counter() - clock


def from_rust(args, folder, count):
    """Seconds of one search of all queries, by k."""
    out = os.path.join(folder, "rust.json")
    command = [args.rust, "--rows", args.rows, "--queries", f"all={args.queries}", "--k", ",".join(map(str, args.k))]
    command += ["--threads", str(args.threads), "--repeat", "3", "--json", out, "--distances", folder]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with open(out) as file:
        results = {r["name"]: r["samples"] for r in json.load(file)["results"]}
    return {k: [count / rate for rate in results[f"search all k={k}"]] for k in args.k}


def main():
    args = options()
    # Its threads would keep spinning and slow the next measurement.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import faiss

    faiss.omp_set_num_threads(args.threads)
    rows, queries = np.load(args.rows), np.load(args.queries)
    assert _offing.address(matrix(queries, "queries")) == queries.ctypes.data, "the queries would be copied"
    index = offing.Index(rows, threads=args.threads)
    flat = faiss.IndexFlatL2(rows.shape[1])
    flat.add(rows)
    some = np.ascontiguousarray(queries[: args.flat_queries])
    times = {(who, k): [] for who in ("python", "rust", "flat") for k in args.k}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(args.rounds):
            for k, found in from_rust(args, folder, len(queries)).items():
                times["rust", k] += found
            for k in args.k:
                times["python", k] += [seconds(lambda: index.search(queries, k)) for _ in range(3)]
            for k in args.k:
                scale = len(queries) / len(some)
                times["flat", k].append(scale * seconds(lambda: flat.search(some, k)))
        for k in args.k:
            exact = np.load(os.path.join(folder, f"all_{k}.npy"))
            assert (index.search(queries, k)[0][:, -1] == exact).all(), "Python and Rust answer differently"
    print(f"{len(queries):,} queries, {len(rows):,} rows of {rows.shape[1]} columns, {args.threads} threads; medians")
    results = []
    for k in args.k:
        python, rust, slow = (float(np.median(times[who, k])) for who in ("python", "rust", "flat"))
        print(
            f"  k = {k:2d}   Python {python:.4f} s   Rust {rust:.4f} s   Python / Rust {python / rust:.3f}   "
            f"FAISS Flat {slow:.1f} s (from {len(some)})   FAISS Flat / Python {slow / python:.0f}"
        )
        for who in ("python", "rust", "flat"):
            results.append({"name": f"{who} k={k}", "unit": "s", "median": float(np.median(times[who, k])), "samples": times[who, k]})
    if args.json:
        machine = {"cpu": platform.processor() or platform.machine(), "threads": args.threads, "faiss": faiss.__version__}
        with open(args.json, "w") as file:
            json.dump({"offing": offing.__version__, "machine": machine, "results": results}, file, indent=1)


if __name__ == "__main__":
    main()
