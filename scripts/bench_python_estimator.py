#!/usr/bin/env python3
"""Times MOPO with SUMO written in Python beside the built-in SUMO, in turns.

    python scripts/bench_python_estimator.py hopper-medium-replay --size standard --threads 1 --json standard.json

Three ways train the same bytes: the built-in estimator, a Python class over `offing.Index`, and `offing.Sumo` given as
estimator. The standard size is that of `--profile standard`, the full one that of the papers. Every round takes the same steps once
each way; what a step costs is the time of rollouts, searches and updates, without model, index and evaluation. The dynamics model is fitted
briefly and once: it is the same for all.
"""

import argparse
import json
import platform
import shutil
import tempfile
from pathlib import Path

import numpy as np

import offing

PHASES = ("rollout", "search", "sac")
SIZES = {
    "small": {"rows": 20_000, "profile": "quick"},
    "standard": {"rows": 1_000_000, "profile": "standard"},
    "full": {"rows": 1_000_000, "profile": None},
}


class OwnSumo:
    """Eq. 4 of the paper through `offing.Index`."""

    def __init__(self, data, threads):
        self.index = offing.Index(np.hstack([data.observations, data.actions, data.next_observations]), threads=threads)
        self.largest = np.log1p(np.float64(self.index.max_self()))

    def score(self, obs, act, next_obs):
        distances, _ = self.index.search(np.hstack([obs, act, next_obs]))
        return np.log1p(distances[:, 0].astype(np.float64)).astype(np.float32)

    def max_loo(self):
        return self.largest


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("data", help="a generated dataset")
    p.add_argument("--size", choices=SIZES, default="standard")
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--prepare", action="store_true", help="only fit the model and build the index, so that the next call finds them")
    p.add_argument("--json")
    return p.parse_args()


def main():
    args = options()
    size = SIZES[args.size]
    data = offing.make_dataset(args.data, rows=size["rows"])
    settings = {"model": {"seed": 0, "ensemble": {"max_updates": 500}}, "profile": size["profile"], "threads": args.threads}
    mine = OwnSumo(data, args.threads)
    ours = offing.Sumo(data.observations, data.actions, data.next_observations, threads=args.threads)
    ways = {"built-in": None, "offing.Index": mine, "offing.Sumo": ours}
    times = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-1, 0 if args.prepare else args.rounds):
            outcomes = set()
            for way, estimator in ways.items():
                steps = args.steps if number >= 0 else 1
                run = offing.train(
                    "mopo+sumo", data, dir=Path(folder) / "run", progress=False, estimator=estimator, steps=steps,
                    evaluate_every=steps, checkpoint_every=steps, episodes=1, **settings,
                )  # fmt: skip
                phases = json.loads((run.path / "timing.json").read_text())["phases"]
                outcomes.add((run.path / "policy.safetensors").read_bytes())
                shutil.rmtree(run.path)
                if number >= 0:
                    times[way].append({phase: 1e3 * phases[phase] / steps for phase in PHASES})
            assert len(outcomes) == 1, "the three ways train different bytes"
    if args.prepare:
        return
    print(f"{len(data.rewards):,} rows, {args.steps} steps, {args.rounds} rounds, {args.threads} threads; medians in ms a step")
    medians = {way: {p: float(np.median([t[p] for t in times[way]])) for p in PHASES} for way in ways}
    whole = {way: [sum(t.values()) for t in times[way]] for way in ways}
    for way in ways:
        ratios = np.array(whole[way]) / np.array(whole["built-in"])
        parts = "   ".join(f"{p} {medians[way][p]:.4f}" for p in PHASES)
        print(f"  {way:12s} {np.median(whole[way]):.4f}   {parts}   over the built-in {100 * (np.median(ratios) - 1):+.2f} %")
    if args.json:
        machine = {"cpu": platform.processor() or platform.machine(), "threads": args.threads}
        found = {"offing": offing.__version__, "machine": machine, "rows": len(data.rewards), "steps": args.steps, "ms_a_step": times}
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
