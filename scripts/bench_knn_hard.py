#!/usr/bin/env python3
"""The tree where it has it hardest: queries a second beside brute force of our own, FAISS Flat and FAISS HNSW.

    python scripts/bench_knn_hard.py --offing target/release/offing --ours target/release/examples/bench \
        --policies DIR --work DIR --json hard.json --text hard.txt

Sets of noisy, mixed and wide rows, standardised columns, Manhattan distance, k = 50, queries far from the data; one easy set
and one of pure noise stand beside them. All four search the same rows for the same queries, in turns, three times; medians
count. The three exact ones must agree on every distance. Each sample takes about 0.7 seconds. `--only` measures some
cases (`set/metric/columns`) and leaves the others of the JSON file as they are, so that a long table can be made in
pieces. `--work` keeps rows, queries and built HNSW indexes.

Needs numpy, faiss-cpu, `offing data make` of the sets and `cargo build --release -p offing-knn --example bench`.
"""

import argparse, json, os, pathlib, subprocess, time
import numpy as np
import faiss
from bench_knn_peers import commit, machine

# Set, metric, columns as they are or standardised.
CASES = [
    ("hopper-medium", "euclidean", "raw"),
    ("halfcheetah-medium-replay", "euclidean", "raw"),
    ("halfcheetah-medium-replay", "euclidean", "standardised"),
    ("halfcheetah-medium-replay", "manhattan", "raw"),
    ("halfcheetah-random", "euclidean", "raw"),
    ("halfcheetah-random", "manhattan", "standardised"),
    ("antmaze-umaze", "euclidean", "raw"),
    ("antmaze-umaze", "euclidean", "standardised"),
    ("noise", "euclidean", "raw"),
]
SEARCHES = [("mild", 1), ("far", 1), ("mild", 50), ("far", 50)]
PEERS = ("offing tree", "offing flat", "FAISS Flat", "FAISS HNSW16 ef128")
SECONDS = 0.7


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--offing", required=True, help="the program, which writes rows and queries")
    p.add_argument("--ours", required=True, help="the example `bench` of offing-knn")
    p.add_argument("--policies", required=True, help="behaviour policies, for the queries")
    p.add_argument("--work", type=pathlib.Path, required=True)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--only", default="", help="cases to measure, such as noise/euclidean/raw; a part of the name is enough")
    p.add_argument("--prepare", action="store_true", help="build what is missing in --work and measure nothing")
    p.add_argument("--json", type=pathlib.Path, required=True)
    p.add_argument("--text", type=pathlib.Path)
    return p.parse_args()


def export(args, name):
    """Directory with rows.npy and queries_*.npy of a set."""
    target = args.work / name
    if not (target / "queries_far.npy").exists():
        target.mkdir(parents=True, exist_ok=True)
        if name == "noise":
            rng = np.random.default_rng(0)
            for file, count in (("rows", 1_000_000), ("queries_mild", 50_000), ("queries_far", 50_000)):
                np.save(target / f"{file}.npy", rng.standard_normal((count, 40), dtype=np.float32))
        else:
            subprocess.run([args.offing, "bench", "knn", name, "--policies", args.policies, "--export", target, "-q"], check=True)
    return target


def standardised(source):
    """The same directory with every column standardised by the rows."""
    target = source.with_name(source.name + "-standardised")
    if not (target / "queries_far.npy").exists():
        target.mkdir(exist_ok=True)
        rows = np.load(source / "rows.npy")
        mean, sd = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
        sd[sd < 1e-12] = 1.0
        for file in ("rows", "queries_mild", "queries_far"):
            np.save(target / f"{file}.npy", ((np.load(source / f"{file}.npy") - mean) / sd).astype(np.float32))
    return target


class Ours:
    """Our two indexes, in a process that waits for its turn."""

    def __init__(self, args, where, metric):
        queries = ",".join(f"{n}={where}/queries_{n}.npy" for n in ("mild", "far"))
        self.found = args.work / "found.npy"
        self.process = subprocess.Popen(
            [args.ours, "--rows", f"{where}/rows.npy", "--queries", queries, "--metric", metric, "--threads", str(args.threads),
             "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout.readline() == "ready\n", f"{args.ours} did not start"

    def search(self, index, name, k, count):
        print(index, name, k, count, self.found, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline()), np.load(self.found)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def hnsw(where, rows, metric):
    path = where / f"hnsw-{metric}.faiss"
    if not path.exists():
        index = faiss.IndexHNSWFlat(rows.shape[1], 16, metric)
        index.add(rows)
        faiss.write_index(index, str(path))
    return faiss.read_index(str(path))


def measure(args, case):
    name, metric, columns = case
    where = export(args, name)
    where = standardised(where) if columns == "standardised" else where
    rows = np.load(where / "rows.npy")
    code = faiss.METRIC_L1 if metric == "manhattan" else faiss.METRIC_L2
    near = hnsw(where, rows, code)
    if args.prepare:
        return None
    near.hnsw.efSearch = 128
    flat = faiss.IndexFlat(rows.shape[1], code)
    flat.add(rows)
    queries = {n: np.load(where / f"queries_{n}.npy") for n in ("mild", "far")}
    ours = Ours(args, where, metric)

    def faiss_search(index, n, k, count):
        clock = time.perf_counter()
        found = index.search(queries[n][:count], k)[0][:, -1]
        wall = time.perf_counter() - clock
        return wall, found if metric == "manhattan" else np.sqrt(np.maximum(found, 0))

    run = {
        "offing tree": lambda *a: ours.search("tree", *a),
        "offing flat": lambda *a: ours.search("flat", *a),
        "FAISS Flat": lambda *a: faiss_search(flat, *a),
        "FAISS HNSW16 ef128": lambda *a: faiss_search(near, *a),
    }
    lines = []
    for n, k in SEARCHES:
        counts, samples, found = {}, {p: [] for p in PEERS}, {}
        for p in PEERS:
            count = 64
            while (wall := run[p](n, k, count)[0]) < 0.1 and count < len(queries[n]):
                count *= 8
            counts[p] = int(min(len(queries[n]), max(64, count * SECONDS / wall)))
        for _ in range(args.repeat):
            for p in PEERS:
                wall, found[p] = run[p](n, k, counts[p])
                samples[p].append(counts[p] / wall)
        exact = found["offing tree"].astype(np.float64)
        for p in ("offing flat", "FAISS Flat"):
            m = min(len(exact), len(found[p]))
            # FAISS sums in f32, and (L2) subtracts products: relative to the size of the rows it is right to 1e-3.
            close = 0 if p == "offing flat" else 2e-3 * np.abs(exact[:m]).max()
            assert np.abs(found[p][:m] - exact[:m]).max() <= close, f"{case} {n} k={k}: {p} disagrees"
        m = min(len(exact), len(found[PEERS[3]]))
        right = np.mean(found[PEERS[3]][:m] <= exact[:m] * (1 + 1e-4) + 1e-6)
        lines.append({"set": name, "rows": len(rows), "columns": rows.shape[1], "metric": metric, "standardised": columns != "raw",
                      "queries": n, "k": k, "hnsw_right": float(right),
                      **{p: {"median": float(np.median(s)), "samples": s, "count": counts[p]} for p, s in samples.items()}})
        print(f"{'/'.join(case)} {n} k={k}: " + ", ".join(f"{p} {np.median(s):.0f}" for p, s in samples.items()), flush=True)
    ours.end()
    return lines


def text(body):
    out = [f"{body['machine']}, {body['threads']} threads, commit {body['commit']}: queries/s, medians of {body['repeat']} turns", ""]
    out += ["| rows | distance | queries | k | offing tree | offing brute force | FAISS Flat | FAISS HNSW (right) | tree / own brute force | tree / FAISS Flat |",
            "|---|---|---|---|---|---|---|---|---|---|"]
    number = lambda v: f"{v:,.0f}" if v >= 100 else f"{v:.1f}"
    for case in CASES:
        for r in body["cases"].get("/".join(case), []):
            tree, own, theirs, near = (r[p]["median"] for p in PEERS)
            label = f"{r['set']}, {r['columns']} columns" + (", standardised" if r["standardised"] else "")
            out.append(f"| {label} | {r['metric']} | {r['queries']} | {r['k']} | {number(tree)} | {number(own)} | {number(theirs)} | "
                       f"{number(near)} ({100 * r['hnsw_right']:.0f} %) | {tree / own:.3g} | {tree / theirs:.3g} |")
    return "\n".join(out) + "\n"


def main():
    args = options()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    faiss.omp_set_num_threads(args.threads)
    body = json.loads(args.json.read_text()) if args.json.exists() else {"cases": {}}
    body |= {"bench": "knn-hard", "commit": commit(), "machine": machine(), "threads": args.threads, "repeat": args.repeat,
             "faiss": faiss.__version__}
    for case in CASES:
        if args.only in "/".join(case):
            lines = measure(args, case)
            if lines:
                body["cases"]["/".join(case)] = lines
                args.json.write_text(json.dumps(body, indent=1) + "\n")
    if body["cases"]:
        print(text(body), end="")
        if args.text:
            args.text.write_text(text(body))


if __name__ == "__main__":
    main()
