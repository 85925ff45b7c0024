"""Steps per second on one core: offing, the bare engine and gymnasium, in alternating rounds.

    cargo build --release
    python scripts/bench_env_peers.py [--rounds 5] [--steps 4000] [--json FILE]

Uniform random actions, resets included, the same physics (gymnasium's v4) on both sides. Prints medians and ratios;
fails below 1.5× gymnasium on halfcheetah and hopper, 1.2× on walker2d and ant, or more than 15 % below the bare
engine.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import gymnasium
import numpy as np

from check_gymnasium import BODIES

WANTED = {"halfcheetah": 1.5, "hopper": 1.5, "walker2d": 1.2, "ant": 1.2}


def gymnasium_rate(env, steps, rng):
    """Steps per second of one round in gymnasium."""
    acts = rng.uniform(-1, 1, (steps, *env.action_space.shape)).astype(np.float32)
    env.reset(seed=0)
    clock = time.perf_counter()
    for act in acts:
        _, _, terminated, truncated, _ = env.step(act)
        if terminated or truncated:
            env.reset()
    return steps / (time.perf_counter() - clock)


def offing_rate(binary, body, steps):
    """Steps per second of one round in offing and in the bare engine, each timed twice, in turns."""
    out = pathlib.Path("rates.json").resolve()
    asked = ["--tasks", body, "--physics", "gymnasium-v4", "--steps", str(steps), "--samples", "2", "--json", str(out)]
    run = subprocess.run([binary, "--quiet", "bench", "env", *asked], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    rates = {result["name"]: result["samples"] for result in json.loads(out.read_text())["results"]}
    return statistics.mean(rates[body]), statistics.mean(rates[f"{body}, bare mj_step"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--json", help="write all samples to this file")
    args = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target")).resolve()
    binary = target / "release" / "offing"
    if not binary.is_file():
        sys.exit(f"no {binary}; build it with `cargo build --release`")
    out = pathlib.Path(args.json).resolve() if args.json else None
    os.chdir(tempfile.mkdtemp())  # Python's MuJoCo writes MUJOCO_LOG.TXT where it runs
    gymnasium.logger.min_level = gymnasium.logger.ERROR  # v4 is deprecated, and compared here
    rng = np.random.default_rng(0)
    samples, good = {}, True
    print(f"{'body':12} {'offing/s':>10} {'bare/s':>10} {'gymnasium/s':>12} {'× gymnasium':>12} {'of bare':>8}")
    for body, name in BODIES.items():
        env = gymnasium.make(f"{name}-v4")
        rounds = []
        for _ in range(args.rounds):
            rounds.append((*offing_rate(binary, body, args.steps), gymnasium_rate(env, args.steps, rng)))
        samples[body] = dict(zip(("offing", "bare", "gymnasium"), map(list, zip(*rounds))))
        ours, bare, peer = (statistics.median(v) for v in samples[body].values())
        # Ratios within a round first: a slow machine slows the whole round, not one side of it.
        ratio = statistics.median(r[0] / r[2] for r in rounds)
        share = statistics.median(r[0] / r[1] for r in rounds)
        print(f"{body:12} {ours:10.0f} {bare:10.0f} {peer:12.0f} {ratio:12.2f} {share:8.2f}", flush=True)
        good &= ratio >= WANTED[body] and share >= 0.85
    if out:
        out.write_text(json.dumps(samples, indent=1))
    sys.exit(0 if good else "below what is wanted")


if __name__ == "__main__":
    main()
