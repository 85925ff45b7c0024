"""Prints what runs of the standard profile ended with, as Markdown: one row for each dataset, mean ± sd over seeds.

    python scripts/standard_table.py experiments/runs/2026-11-18-epyc-zen5-2-cores/standard

Each `ALGORITHM-DATASET-sSEED.jsonl` there is the metrics.jsonl of a finished run. `data.csv` has the data's own scores. "Clone" is Landfall at
the end of its warm start, "picked" the policy that the model picks from the data alone, "best" the best evaluation on the way,
which takes a simulator to choose. Below the table: mean differences over datasets with 95 % intervals (bootstrap over seeds
within datasets, 10,000 resamples) and the mean distance from last to best.
"""

from __future__ import annotations

import csv
import json
import random
import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev

Runs = dict[str, dict[str, list[list[dict]]]]
WARM_START = 3000


def read(directory: Path) -> tuple[Runs, dict[str, float]]:
    """Metrics by dataset and algorithm, one list for each seed; scores of the data."""
    runs: Runs = defaultdict(lambda: defaultdict(list))
    for path in sorted(directory.glob("*.jsonl")):
        match = re.fullmatch(r"([a-z0-9+]+)-(.+)-s\d+", path.stem)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if match and lines:
            runs[match[2]][match[1]].append([line for line in lines if line.get("score") is not None])
    with (directory / "data.csv").open() as file:
        data = {row["dataset"]: float(row["score"]) for row in csv.DictReader(file)}
    return runs, data


def last(run: list[dict]) -> float:
    return run[-1]["score"]


def best(run: list[dict]) -> float:
    return max(line["score"] for line in run)


def clone(run: list[dict]) -> float:
    return next(line["score"] for line in run if line["step"] == WARM_START)


def picked(run: list[dict]) -> float:
    return next(line["score"] for line in run if line["step"] == run[-1]["picked_step"])


def shown(values: list[float]) -> str:
    if not values:
        return "–"
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}"


def interval(pairs: list[tuple[list[float], list[float]]]) -> tuple[float, float, float]:
    """Mean over datasets of the difference of two means, with a 95 % interval."""
    rng = random.Random(0)

    def difference(draw) -> float:
        return mean(mean(draw(a)) - mean(draw(b)) for a, b in pairs)

    drawn = sorted(difference(lambda x: rng.choices(x, k=len(x))) for _ in range(10_000))
    return difference(lambda x: x), drawn[250], drawn[9749]


def main() -> None:
    directory = Path(sys.argv[1])
    runs, data = read(directory)
    others = sorted({name for found in runs.values() for name in found} - {"landfall"})
    print("| normalised score | data | clone | Landfall, last | picked | best | seeds |" + "".join(f" {o} |" for o in others))
    print("|---|---|---|---|---|---|---|" + "---|" * len(others))
    order = [f"{b}-{k}" for b in ("hopper", "halfcheetah", "walker2d") for k in ("medium-replay", "medium", "medium-expert", "twin")]
    known = [name for name in order if "landfall" in runs.get(name, {})]
    for name in known:
        found = runs[name]["landfall"]
        cells = [shown([f(run) for run in found]) for f in (clone, last, picked, best)]
        cells += [str(len(found))] + [shown([last(run) for run in runs[name].get(o, [])]) for o in others]
        print(f"| {name} | {data[name]:.1f} | " + " | ".join(cells) + " |")
    print()
    own = {name: [last(run) for run in runs[name]["landfall"]] for name in known}
    against = {"data": {n: [data[n]] for n in known}, "own clone": {n: [clone(r) for r in runs[n]["landfall"]] for n in known}}
    against |= {o: {n: [last(r) for r in runs[n][o]] for n in known if o in runs[n]} for o in others}
    for other, values in against.items():
        shift, low, high = interval([(own[n], values[n]) for n in values])
        ahead = sum(mean(own[n]) > mean(values[n]) for n in values)
        print(f"- Landfall less {other}: {shift:+.1f} ({low:+.1f} to {high:+.1f}), ahead on {ahead} of {len(values)}")
    everything = [run for name in known for run in runs[name]["landfall"]]
    print(f"- mean |last − best| over {len(everything)} runs: {mean(best(r) - last(r) for r in everything):.1f}")
    print(f"- mean |picked − best|: {mean(best(r) - picked(r) for r in everything):.1f}")


if __name__ == "__main__":
    main()
