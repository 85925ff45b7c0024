#!/usr/bin/env python3
"""Times offing-knn against FAISS, usearch and scikit-learn on the same data, in turns, and prints ratios.

    python scripts/bench_knn_peers.py --rows rows.npy --in queries_in.npy --mild queries_mild.npy --far queries_far.npy \
        --ours "target/release/examples/bench" --json peers.json

`--ours` is any command that takes `--rows F --queries name=F,… --k 1,10 --threads N --repeat N --json F --distances DIR`
and writes q/s as {"results":[{"name":"search mild k=1","unit":"queries/s","samples":[…]}]} and k-th distances as
DIR/mild_1.npy: `cargo build --release -p offing-knn --example bench` builds one. The script calls it once before and
once after the peers, to show whether the machine slowed down meanwhile.

Needs numpy and faiss-cpu; usearch and scikit-learn unless left out. u = log(1 + d) is the score offing uses; the error
columns show by how much each approximate index misses it.
"""

import argparse, json, os, platform, subprocess, sys, tempfile, time
import numpy as np


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rows", required=True)
    for name in ("in", "mild", "far"):
        p.add_argument(f"--{name}", dest=f"q_{name}", help=f"{name} queries (.npy)")
    p.add_argument("--ours", help="command that benches our index; left out when absent")
    p.add_argument("--k", default="1,10")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--flat-queries", type=int, default=256, help="queries FAISS Flat is timed on")
    p.add_argument("--queries", type=int, default=10000, help="queries the approximate indexes are timed on")
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--peers", default="flat,hnsw,ivf,usearch,sklearn", help="which to run")
    p.add_argument("--sklearn-queries", type=int, default=64)
    p.add_argument("--cache", help="directory that caches built HNSW and usearch indexes (their build takes minutes)")
    p.add_argument("--json")
    return p.parse_args()


class Table:
    """Samples by (peer, query set, k), with errors of u against the exact distances."""

    def __init__(self):
        self.samples, self.errors, self.builds = {}, {}, {}

    def rate(self, peer, name, k, per_second):
        self.samples.setdefault((peer, name, k), []).append(per_second)

    def error(self, peer, name, k, found, exact):
        e = np.abs(np.log1p(found.astype(np.float64)) - np.log1p(exact[: len(found)].astype(np.float64)))
        self.errors[(peer, name, k)] = (float(e.mean()), float(e.max()))

    def median(self, key):
        return float(np.median(self.samples[key]))


def ours(args, sets, table, tmp):
    """Runs our command once; returns the exact k-th distances by (set, k)."""
    out = os.path.join(tmp, "ours.json")
    queries = ",".join(f"{n}={f}" for n, f in sets.items())
    command = args.ours.split() + ["--rows", args.rows, "--queries", queries, "--k", args.k, "--json", out,
                                   "--threads", str(args.threads), "--repeat", str(args.repeat), "--distances", tmp, "--self"]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    for r in json.load(open(out))["results"]:
        if r["name"].startswith("search "):
            _, name, k = r["name"].split()
            for s in r["samples"]:
                table.rate("offing Tree", name, int(k[2:]), s)
        elif r["name"] in ("build", "max_self"):
            table.builds.setdefault(f"offing {r['name']}", []).extend(r["samples"])
    return {(n, k): np.load(os.path.join(tmp, f"{n}_{k}.npy")) for n in sets for k in ks(args)}


def ks(args):
    return [int(k) for k in args.k.split(",")]


def timed(table, peer, name, k, count, search, repeat):
    for _ in range(repeat):
        clock = time.perf_counter()
        found = search()
        table.rate(peer, name, k, count / (time.perf_counter() - clock))
    return found


def run_faiss(args, rows, queries, exact, table):
    import faiss

    faiss.omp_set_num_threads(args.threads)
    d, peers = rows.shape[1], args.peers.split(",")

    def build(label, make):
        path = args.cache and os.path.join(args.cache, f"{label}-{len(rows)}x{d}.faiss")
        if path and os.path.exists(path) and os.path.exists(path + ".s"):
            table.builds[label] = [float(open(path + ".s").read())]
            return faiss.read_index(path)
        clock = time.perf_counter()
        index = make()
        table.builds[label] = [time.perf_counter() - clock]
        if path:
            os.makedirs(args.cache, exist_ok=True)
            faiss.write_index(index, path)
            open(path + ".s", "w").write(str(table.builds[label][0]))
        return index

    def hnsw():
        index = faiss.IndexHNSWFlat(d, 16)
        index.add(rows)
        return index

    def ivf():
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(d), d, 2048)
        index.train(rows[:: max(1, len(rows) // 200_000)])
        index.add(rows)
        return index

    def measure(index, label, name, q, k, truth):
        found = timed(table, label, name, k, len(q), lambda: index.search(q, k), args.repeat)
        table.error(label, name, k, np.sqrt(np.maximum(found[0][:, -1], 0)), truth)

    flat = faiss.IndexFlatL2(d)
    flat.add(rows)
    plans = []
    if "flat" in peers:
        plans.append(("FAISS Flat", flat, None, [None], args.flat_queries))
    if "hnsw" in peers:
        h = build("FAISS HNSW16", hnsw)
        plans.append(("FAISS HNSW16 ef", h, lambda e: setattr(h.hnsw, "efSearch", e), [16, 32, 64, 128, 256, 512], args.queries))
    if "ivf" in peers:
        i = build("FAISS IVF2048", ivf)
        plans.append(("FAISS IVF2048 nprobe", i, lambda e: setattr(i, "nprobe", e), [1, 4, 16, 64, 256], args.queries))
    for label, index, tune, settings, count in plans:
        for setting in settings:
            if tune:
                tune(setting)
            for name, q in queries.items():
                q = q[: count if setting is None or setting < 64 else count // 4]
                for k in ks(args):
                    measure(index, label if setting is None else f"{label}{setting}", name, q, k, exact[(name, k)])


def run_usearch(args, rows, queries, exact, table):
    from usearch.index import Index

    clock = time.perf_counter()
    path = args.cache and os.path.join(args.cache, f"usearch-{len(rows)}x{rows.shape[1]}.us")
    index = Index(ndim=rows.shape[1], metric="l2sq", dtype="f32", connectivity=16, expansion_add=128)
    if path and os.path.exists(path):
        index.load(path)
    else:
        index.add(np.arange(len(rows)), rows, threads=args.threads)
        table.builds["usearch"] = [time.perf_counter() - clock]
        if path:
            index.save(path)
    for ef in (32, 128, 512):
        index.expansion_search = ef
        for name, q in queries.items():
            q = q[: args.queries if ef < 128 else args.queries // 4]
            for k in ks(args):
                label = f"usearch ef{ef}"
                found = timed(table, label, name, k, len(q), lambda: index.search(q, k, threads=args.threads), args.repeat)
                dist = np.asarray(found.distances).reshape(len(q), k)[:, -1]
                table.error(label, name, k, np.sqrt(np.maximum(dist, 0)), exact[(name, k)])


def run_sklearn(args, rows, queries, exact, table):
    from sklearn.neighbors import KDTree

    clock = time.perf_counter()
    tree = KDTree(rows, leaf_size=40)
    table.builds["sklearn KDTree"] = [time.perf_counter() - clock]
    for name, q in queries.items():
        q = q[: args.sklearn_queries]
        for k in ks(args):
            found = timed(table, "sklearn KDTree", name, k, len(q), lambda: tree.query(q, k), 1)
            table.error("sklearn KDTree", name, k, found[0][:, -1], exact[(name, k)])


def report(args, table):
    base = "offing Tree" if args.ours else "FAISS Flat"
    for (name, k) in dict.fromkeys((n, k) for (_, n, k) in table.samples):
        print(f"\n{name} queries, k = {k}: queries/s, {base} / peer, error of u (mean, max)")
        for peer in dict.fromkeys(p for (p, n, kk) in table.samples if (n, kk) == (name, k)):
            key = (peer, name, k)
            ratio = table.median((base, name, k)) / table.median(key) if (base, name, k) in table.samples else float("nan")
            error = "exact" if key not in table.errors else "%.1e  %.1e" % table.errors[key]
            print(f"  {peer:26s} {table.median(key):12.1f} {ratio:10.1f}x   {error}")
    print("\nbuilding, s")
    for peer, s in table.builds.items():
        print(f"  {peer:26s} {np.median(s):10.2f}")


def commit():
    try:
        return subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine():
    model = ""
    if os.path.exists("/proc/cpuinfo"):
        model = next((l.split(":")[1].strip() + " " for l in open("/proc/cpuinfo") if l.startswith("model name")), "")
    return f"{model}{platform.machine()} {os.cpu_count()} cores {platform.system()}"


def write_json(args, table):
    results = [{"name": f"{p} {n} k={k}", "unit": "queries/s", "median": float(np.median(s)), "samples": s,
                **({"u_error_mean": table.errors[(p, n, k)][0], "u_error_max": table.errors[(p, n, k)][1]} if (p, n, k) in table.errors else {})}
               for (p, n, k), s in table.samples.items()]
    results += [{"name": f"{p} build", "unit": "s", "median": float(np.median(s)), "samples": s} for p, s in table.builds.items()]
    body = {"bench": "knn-peers", "commit": commit(), "machine": machine(), "threads": args.threads, "results": results}
    with open(args.json, "w") as f:
        json.dump(body, f, indent=1)


def main():
    args = options()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    sets = {n: getattr(args, f"q_{n}") for n in ("in", "mild", "far") if getattr(args, f"q_{n}")}
    if not sets:
        sys.exit("no queries: give at least one of --in, --mild, --far")
    load = lambda f: np.ascontiguousarray(np.load(f), dtype=np.float32)
    rows, queries = load(args.rows), {n: load(f) for n, f in sets.items()}
    table = Table()
    with tempfile.TemporaryDirectory() as tmp:
        exact = ours(args, sets, table, tmp) if args.ours else flat_truth(args, rows, queries)
        peers = args.peers.split(",")
        if {"flat", "hnsw", "ivf"} & set(peers):
            run_faiss(args, rows, queries, exact, table)
        if "usearch" in peers:
            run_usearch(args, rows, queries, exact, table)
        if "sklearn" in peers:
            run_sklearn(args, rows, queries, exact, table)
        if args.ours:
            ours(args, sets, table, tmp)
    report(args, table)
    if args.json:
        write_json(args, table)


def flat_truth(args, rows, queries):
    import faiss

    flat = faiss.IndexFlatL2(rows.shape[1])
    flat.add(rows)
    out = {}
    for name, q in queries.items():
        distances = np.sqrt(np.maximum(flat.search(q[: args.queries], max(ks(args)))[0], 0))
        out |= {(name, k): distances[:, k - 1] for k in ks(args)}
    return out


if __name__ == "__main__":
    main()
