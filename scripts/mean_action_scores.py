"""Scores what generated datasets would return had their policies acted without noise.

    python scripts/mean_action_scores.py target/release/offing --policies policies [--twins DIR] [--episodes 20]

Prints `dataset,mean_action` as CSV. Each snapshot in `--policies` plays with its mean action (`offing eval`). A set of several
policies has as many rows of each, so a policy counts by its episodes per row. `--twins` is a directory of D4RL's own policies.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from statistics import mean

# Returns of D4RL's random and expert policies.
REFERENCE = {"hopper": (-20.272305, 3234.3), "halfcheetah": (-280.178953, 12135.0), "walker2d": (1.629008, 4592.3)}


def play(program: str, policy: Path, body: str, episodes: int) -> tuple[float, float]:
    """Mean return and mean length."""
    with tempfile.TemporaryDirectory() as directory:
        found = Path(directory) / "eval.json"
        command = [program, "eval", str(policy), "--task", body, "--episodes", str(episodes), "-q", "--json", str(found)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        played = json.loads(found.read_text())["episodes"]
    return mean(played["returns"]), mean(played["lengths"])


def score(body: str, policies: list[tuple[float, float]]) -> float:
    low, high = REFERENCE[body]
    per_row = [(total / length, 1 / length) for total, length in policies]
    return 100 * (sum(r for r, _ in per_row) / sum(e for _, e in per_row) - low) / (high - low)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the program `offing`")
    parser.add_argument("--policies", type=Path, required=True, help="behaviour policies with an index.json")
    parser.add_argument("--twins", type=Path, help="D4RL's own policies, BODY-0.safetensors")
    parser.add_argument("--episodes", type=int, default=20)
    args = parser.parse_args()
    index = json.loads((args.policies / "index.json").read_text())
    print("dataset,mean_action")
    for body in REFERENCE:
        snapshots = [entry for entry in index if entry["file"].startswith(f"{body}-")]
        played = [play(args.program, args.policies / entry["file"], body, args.episodes) for entry in snapshots]
        roles = [entry["role"] for entry in snapshots]
        medium, expert = roles.index("medium"), roles.index("expert")
        sets = {"medium-replay": played[: medium + 1], "medium": [played[medium]], "medium-expert": [played[medium], played[expert]]}
        twin = args.twins and args.twins / f"{body}-0.safetensors"
        if twin and twin.exists():
            sets["twin"] = [play(args.program, twin, body, args.episodes)]
        for name, policies in sets.items():
            print(f"{body}-{name},{score(body, policies):.1f}", flush=True)


if __name__ == "__main__":
    main()
