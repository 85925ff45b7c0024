"""The same policy in offing and in Gymnasium: do the returns agree?

    python scripts/compare_returns.py --offing target/release/offing --policies DIR [--episodes 20] [--json out.json]

Plays stochastic episodes with one snapshot of each body, in Gymnasium v4 and in offing with --physics gymnasium-v4.
Prints both means, their distance in combined standard errors, and the return the policies' authors published.
"""

import argparse
import json
import math
import pathlib
import subprocess
import tempfile

import gymnasium
import numpy as np

from bench_data_peers import numpy_policy

BODIES = {"halfcheetah": ("HalfCheetah-v4", 5), "hopper": ("Hopper-v4", 5), "walker2d": ("Walker2d-v4", 5)}


def gymnasium_returns(task, policy, episodes):
    env, act = gymnasium.make(task), numpy_policy(policy)
    returns = []
    for episode in range(episodes):
        rng = np.random.default_rng(episode)
        (obs, _), total, over = env.reset(seed=episode), 0.0, False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(act(obs, rng))
            total, over = total + reward, terminated or truncated
        returns.append(float(total))
    return returns


def offing_returns(offing, task, policy, episodes):
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        subprocess.run([offing, "eval", policy, "--task", task, "--physics", "gymnasium-v4", "--stochastic", "--episodes",
                        str(episodes), "--json", f.name, "-q"], check=True, stdout=subprocess.DEVNULL)
        return json.load(open(f.name))["episodes"]["returns"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--offing", required=True)
    parser.add_argument("--policies", required=True)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--json")
    args = parser.parse_args()
    policies = pathlib.Path(args.policies)
    published = {entry["file"]: entry["published_return"] for entry in json.load(open(policies / "index.json"))}
    rows = []
    for body, (task, snapshot) in BODIES.items():
        file = f"{body}-{snapshot}.safetensors"
        theirs = gymnasium_returns(task, policies / file, args.episodes)
        ours = offing_returns(args.offing, body, str(policies / file), args.episodes)
        error = math.hypot(*(np.std(r, ddof=1) / math.sqrt(len(r)) for r in (theirs, ours)))
        distance = (np.mean(ours) - np.mean(theirs)) / error
        rows.append({"policy": file, "gymnasium": theirs, "offing": ours, "combined_standard_errors": distance,
                     "published": published[file]})
        print(f"{file:28} offing {np.mean(ours):8.1f}  gymnasium {np.mean(theirs):8.1f}  published {published[file]:8.1f}  "
              f"difference {distance:+.2f} combined standard errors")
    if args.json:
        json.dump(rows, open(args.json, "w"), indent=1)
    assert all(abs(row["combined_standard_errors"]) <= 3 for row in rows), "a mean return is off by more than 3 standard errors"


if __name__ == "__main__":
    main()
