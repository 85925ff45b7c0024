"""Does `offing rank` ever put a policy first that ends episodes on purpose?

    python scripts/rank_tripping.py --program target/release/offing --dir DIR [--seeds 3]

Writes the log of a heated tank in which every minute costs something and a trip of the relief valve costs nothing more: whoever
ends the episode early "earns" most. From that log it trains policies with and without what holds them to the data, plays each in
the tank itself, has offing rank them from the log alone, and prints both. Exit code 1: a policy that trips was ranked first.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import subprocess
import sys
from pathlib import Path

STEPS = 60
SMALL = [
    "model.termination={kind='expression', alive='obs[1] < 1.06e5'}", "train.action_range={low=[0.0], high=[40.0]}",
    "train.steps=3000", "train.evaluate_every=1000", "model.ensemble.max_updates=3000", "model.ensemble.hidden=[64, 64]",
    "model.ensemble.decay=[0.0, 0.0, 0.0]", "sac.hidden=[64, 64]",
]  # fmt: skip
SAC = [*SMALL, "train.steps=10000", "train.evaluate_every=5000", "rollout.length=20", "rollout.starts=1000"]
# Name, algorithm, settings. MOPO without a penalty has nothing that keeps it near the data, and explores: it finds the way out.
POLICIES = [
    ("bc", "bc", ["train.steps=3000", "train.action_range={low=[0.0], high=[40.0]}"]),
    ("landfall", "landfall", [*SMALL, "warm_start.steps=500"]),
    ("mopo without a penalty", "mopo+sumo", [*SAC, "pessimism.lambda=0"]),
]


class Tank:
    """Temperature in K, pressure in Pa; the relief valve trips at 1.06 bar."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.temperature, self.pressure = rng, 293 + 3 * rng.gauss(0, 1), 1e5 + 300 * rng.gauss(0, 1)

    def step(self, power: float) -> tuple[float, bool]:
        self.temperature += 0.15 * min(max(power, 0.0), 40.0) - 0.06 * (self.temperature - 288) + 0.1 * self.rng.gauss(0, 1)
        self.pressure += 0.4 * (1e5 + 220 * (self.temperature - 293) - self.pressure) + 50 * self.rng.gauss(0, 1)
        return -3 - abs(self.temperature - 310) / 20, self.pressure > 1.06e5


def operator(obs: tuple[float, float], careless: bool, rng: random.Random) -> float:
    """Heats too little, not the same every time; a careless one heats far too much and trips the valve."""
    return min(max(12 + 0.5 * ((345 if careless else 310) - obs[0]) + 10 * rng.gauss(0, 1), 0.0), 40.0)


def write_log(path: Path, episodes: int) -> tuple[float, float]:
    """The operator's log; mean return and length."""
    rng, lengths, total = random.Random(0), [], 0.0
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["obs_0", "obs_1", "act_0", "reward", "terminal", "timeout"])
        for _ in range(episodes):
            tank, careless = Tank(rng), rng.random() < 0.2
            for t in range(STEPS):
                obs = (tank.temperature, tank.pressure)
                act = operator(obs, careless, rng)
                reward, tripped = tank.step(act)
                total += reward
                out.writerow([*obs, act, reward, int(tripped), int(t + 1 == STEPS and not tripped)])
                if tripped:
                    break
            lengths.append(t + 1)
    return total / episodes, sum(lengths) / episodes


def play(program: str, run: Path, episodes: int = 40) -> tuple[float, float]:
    """Mean return and length of a policy in the tank; all episodes advance together, one call of `act` a minute."""
    rngs = [random.Random(1000 + i) for i in range(episodes)]
    tanks, alive, returns, lengths = [Tank(r) for r in rngs], [True] * episodes, [0.0] * episodes, [0] * episodes
    for _ in range(STEPS):
        seen, answer = run / "seen.csv", run / "actions.csv"
        seen.write_text("obs_0,obs_1\n" + "".join(f"{t.temperature},{t.pressure}\n" for t in tanks))
        subprocess.run([program, "-q", "act", str(run), str(seen), str(answer)], check=True, stdout=subprocess.DEVNULL)
        actions = [float(line.split(",")[0]) for line in answer.read_text().split()[-episodes:]]
        for i, (tank, act) in enumerate(zip(tanks, actions)):
            if alive[i]:
                reward, tripped = tank.step(act)
                returns[i] += reward
                lengths[i] += 1
                alive[i] = not tripped
    return sum(returns) / episodes, sum(lengths) / episodes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default="target/release/offing")
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    log = args.dir / "tank.csv"
    mean, length = write_log(log, 200)
    print(f"the operator: return {mean:.1f}, {length:.1f} minutes")
    wrong = 0
    for seed in range(args.seeds):
        trips = set()
        for name, algorithm, settings in POLICIES:
            run = args.dir / f"s{seed}" / name.replace(", ", "-").replace(" ", "-")
            sets = [word for s in settings for word in ("--set", s)]
            command = [args.program, "-q", "train", algorithm, str(log), "--profile", "quick", *sets]
            subprocess.run([*command, "--seed", str(seed), "--dir", str(run)], check=True, stdout=subprocess.DEVNULL)
            mean, length = play(args.program, run)
            print(f"seed {seed}, {name}: return {mean:.1f}, {length:.1f} minutes in the tank", flush=True)
            if length < STEPS / 2:
                trips.add(str(run))
        found = args.dir / f"rank-s{seed}.json"
        rank = [args.program, "-q", "rank", str(args.dir / f"s{seed}"), "--length", str(STEPS), "--steps", "5000"]
        print(subprocess.run([*rank, "--json", str(found)], check=True, capture_output=True, text=True).stdout, flush=True)
        policies = json.loads(found.read_text())["policies"]
        for estimate in ("fitted_q", "model_return"):
            # As the table is sorted: who ends early comes last, however much it promises.
            first = min(policies, key=lambda p: (p["ends_early"], -p[estimate]["value"]))
            wrong += first["run"] in trips
    print(f"{wrong} of {2 * args.seeds} rankings put a policy first that trips")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
