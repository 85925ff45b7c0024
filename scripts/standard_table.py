"""Prints what runs of the standard profile ended with, as Markdown: one row for each dataset, mean ± sd over seeds.

    python scripts/standard_table.py experiments/runs/2026-11-19-epyc-zen5-2-cores/standard

Each `ALGORITHM-DATASET-sSEED.jsonl` there is the metrics.jsonl of a finished run. `data.csv` has the scores of the data: as they
are, and had their policies acted without noise. Of each run the table takes the last line: the policy that the run ends with.
"Clone" is Landfall at the end of its warm start, "best" its best evaluation on the way, which takes a simulator to choose. Below the
table: mean differences over datasets with 95 % intervals (bootstrap over seeds within datasets, 10,000 resamples), the datasets on
which Landfall is behind by more than a standard error, and the mean distance from last to best.
"""

from __future__ import annotations

import csv
import json
import random
import re
import sys
from collections import defaultdict
from math import sqrt
from pathlib import Path
from statistics import mean, stdev, variance

Runs = dict[str, dict[str, list[list[dict]]]]
WARM_START = 3000
BODIES = ("hopper", "halfcheetah", "walker2d")
KINDS = ("medium-replay", "medium", "medium-expert", "twin")


def read(directory: Path) -> tuple[Runs, dict[str, dict[str, float]]]:
    """Metrics by dataset and algorithm, one list for each seed; scores of the data."""
    runs: Runs = defaultdict(lambda: defaultdict(list))
    for path in sorted(directory.glob("*.jsonl")):
        match = re.fullmatch(r"([a-z0-9+]+)-(.+)-s\d+", path.stem)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if match and lines:
            runs[match[2]][match[1]].append([line for line in lines if line.get("score") is not None])
    with (directory / "data.csv").open() as file:
        data = {row.pop("dataset"): {key: float(x) for key, x in row.items()} for row in csv.DictReader(file)}
    return runs, data


def last(run: list[dict]) -> float:
    return run[-1]["score"]


def best(run: list[dict]) -> float:
    return max(line["score"] for line in run)


def clone(run: list[dict]) -> float:
    return next(line["score"] for line in run if line["step"] == WARM_START)


def shown(values: list[float], seeds: int) -> str:
    """Mean ± sd, and the number of seeds where it is not that of the row."""
    if not values:
        return "–"
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}" + ("" if len(values) == seeds else f" ({len(values)})")


def interval(pairs: list[tuple[list[float], list[float]]]) -> tuple[float, float, float]:
    """Mean over datasets of the difference of two means, with a 95 % interval."""
    rng = random.Random(0)

    def difference(draw) -> float:
        return mean(mean(draw(a)) - mean(draw(b)) for a, b in pairs)

    drawn = sorted(difference(lambda x: rng.choices(x, k=len(x))) for _ in range(10_000))
    return difference(lambda x: x), drawn[250], drawn[9749]


def behind(own: list[float], other: list[float]) -> bool:
    """By more than the standard error of the difference."""
    error = sqrt(sum(variance(x) / len(x) for x in (own, other) if len(x) > 1))
    return mean(own) < mean(other) - error


def main() -> None:
    runs, data = read(Path(sys.argv[1]))
    known = [f"{body}-{kind}" for body in BODIES for kind in KINDS if "landfall" in runs.get(f"{body}-{kind}", {})]
    others = sorted({name for dataset in known for name in runs[dataset]} - {"landfall"})
    print("| normalised score | data | by mean action |" + "".join(f" {o} |" for o in others) + " own clone | **Landfall** | best on the way | seeds |")
    print("|---|---|---|" + "---|" * len(others) + "---|---|---|---|")
    for name in known:
        own = runs[name]["landfall"]
        cells = [f"{data[name]['score']:.1f}", f"{data[name]['mean_action']:.1f}"]
        cells += [shown([last(run) for run in runs[name].get(o, [])], len(own)) for o in others]
        cells += [shown([of(run) for run in own], len(own)) for of in (clone, last, best)]
        cells[-2] = f"**{cells[-2]}**"
        print(f"| {name} | " + " | ".join(cells) + f" | {len(own)} |")
    print()
    own = {name: [last(run) for run in runs[name]["landfall"]] for name in known}
    against = {"data": {n: [data[n]["score"]] for n in known}, "data by mean action": {n: [data[n]["mean_action"]] for n in known}}
    against["own clone"] = {n: [clone(run) for run in runs[n]["landfall"]] for n in known}
    against |= {o: {n: [last(run) for run in runs[n][o]] for n in known if o in runs[n]} for o in others}
    for other, values in against.items():
        shift, low, high = interval([(own[n], values[n]) for n in values])
        ahead = sum(mean(own[n]) > mean(values[n]) for n in values)
        worse = [n for n in values if behind(own[n], values[n])]
        note = f"; behind by more than a standard error on {', '.join(worse)}" if worse else ""
        print(f"- Landfall less {other}: {shift:+.1f} ({low:+.1f} to {high:+.1f}), ahead on {ahead} of {len(values)}{note}")
    gaps = [best(run) - last(run) for name in known for run in runs[name]["landfall"]]
    print(f"- mean |last − best| over {len(gaps)} runs: {mean(gaps):.1f}, largest {max(gaps):.1f}")


if __name__ == "__main__":
    main()
