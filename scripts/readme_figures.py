"""Draws the README's figures from the numbers under experiments/runs, light and dark, into docs/images.

    python scripts/readme_figures.py            # writes docs/images/{search,landfall}-{light,dark}.svg
    python scripts/readme_figures.py --check    # says which of them are not what the numbers give; exit code 1 then

Landfall's figure takes the newest results of each dataset: last evaluations in the `standard/` of a directory under experiments/runs, or
the cells of `offing reproduce experiments/landfall.toml` (landfall.cells.csv) in it. What the data reached is in `standard/data.csv`.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / "experiments" / "runs"
IMAGES = ROOT / "docs" / "images"


@dataclass(frozen=True)
class Theme:
    name: str
    ink: str
    faint: str
    rule: str
    ours: str
    peer: str
    data: str


THEMES = [
    Theme("light", "#1f2328", "#59636e", "#d1d9e0", "#0969da", "#8c959f", "#59636e"),
    Theme("dark", "#f0f6fc", "#9198a1", "#3d444d", "#4493f8", "#767e88", "#9198a1"),
]
FONT = "font-family='-apple-system,BlinkMacSystemFont,Segoe UI,Helvetica,Arial,sans-serif'"


def text(x: float, y: float, words: str, colour: str, size: int = 13, anchor: str = "start", bold: bool = False) -> str:
    weight = " font-weight='600'" if bold else ""
    return f"<text x='{x:g}' y='{y:g}' fill='{colour}' font-size='{size}' text-anchor='{anchor}'{weight}>{escape(words)}</text>"


def page(width: int, height: int, title: str, parts: list[str]) -> str:
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' height='{height}' {FONT} role='img'>"
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>", ""])


# --- search -----------------------------------------------------------------------------------------------------------


def newest(pattern: str) -> Path:
    found = sorted(RUNS.glob(pattern))
    if not found:
        sys.exit(f"wanted numbers in experiments/runs/{pattern}, found none")
    return found[-1]


def rates(path: Path) -> dict[str, tuple[float, float]]:
    """Queries a second and mean error of u, by the name of a measurement."""
    results = json.loads(path.read_text())["results"]
    return {r["name"]: (r["median"], r.get("u_error_mean", 0.0)) for r in results if r.get("unit") == "queries/s"}


def search_bars() -> list[tuple[str, str, float, float]]:
    """Name, what its answers are, queries a second, offing's rate in the same run over it; half-cheetah, k = 1."""
    of = rates(newest("*/knn-peers-halfcheetah-medium-expert.json"))
    usearch = rates(newest("*/knn-usearch-halfcheetah-medium-expert.json"))
    suffix = " mild k=1"
    tree = "offing Tree" + suffix
    bars = [("offing", "exact", of[tree][0], 1.0)]

    def fastest(measured: dict[str, tuple[float, float]], family: str, bound: float) -> tuple[str, float]:
        fit = [(rate, name) for name, (rate, error) in measured.items() if family in name and name.endswith(suffix) and error < bound]
        rate, name = max(fit)
        return name.removesuffix(suffix), rate

    for family, measured in [("usearch", usearch), ("HNSW", of), ("IVF", of)]:
        # The fastest setting whose scores are nearly right; where a family has none, its most exact one.
        own = {n: m for n, m in measured.items() if family in n and n.endswith(suffix)}
        if not own:
            continue
        try:
            name, rate = fastest(measured, family, 1e-3)
        except ValueError:
            name = min(own, key=lambda n: own[n][1])
            rate, name = own[name][0], name.removesuffix(suffix)
        error = own[name + suffix][1]
        # Rates of this shared machine move from run to run; ratios within one are to be trusted.
        bars.append((name, f"u wrong by {error:.0e} on average".replace("e-0", "e−"), rate, measured[tree][0] / rate))
    flat = of["FAISS Flat" + suffix][0]
    bars.append(("FAISS Flat", "exact", flat, of[tree][0] / flat))
    return bars


def draw_search(theme: Theme) -> str:
    bars = search_bars()
    width, left, right, top, pitch = 760, 172, 76, 62, 44
    longest = max(rate for _, _, rate, _ in bars)
    low = 10.0

    def length(rate: float) -> float:
        return (width - left - right) * math.log10(rate / low) / math.log10(longest / low)

    parts = [
        text(0, 18, "Nearest-neighbour search, queries a second", theme.ink, 16, bold=True),
        text(0, 38, "1,000,000 half-cheetah transitions, k = 1, two cores of an AMD EPYC (Zen 3); logarithmic", theme.faint, 12),
    ]
    for decade in range(2, int(math.log10(longest)) + 1):
        x = left + length(10.0**decade)
        parts.append(f"<path d='M{x:.1f} {top - 8}V{top + pitch * len(bars) - 6}' stroke='{theme.rule}'/>")
        parts.append(text(x, top + pitch * len(bars) + 10, f"{10**decade:,}", theme.faint, 11, "middle"))
    for i, (name, answers, rate, ratio) in enumerate(bars):
        y, ours = top + i * pitch, i == 0
        parts.append(text(left - 10, y + 13, name, theme.ink, 13, "end", bold=ours))
        parts.append(text(left - 10, y + 28, answers, theme.faint, 10, "end"))
        colour = theme.ours if ours else theme.peer
        parts.append(f"<rect x='{left}' y='{y}' width='{length(rate):.1f}' height='24' rx='3' fill='{colour}'/>")
        times = "" if ours else f" · {ratio:,.0f}× slower"
        parts.append(text(left + length(rate) + 8, y + 17, f"{float(f'{rate:.3g}'):,.0f}{times}", theme.ink, 12, bold=ours))
    return page(width, top + pitch * len(bars) + 20, "offing's exact search beside FAISS and usearch", parts)


# --- Landfall ---------------------------------------------------------------------------------------------------------


@dataclass
class Bars:
    """Scores of one dataset: of the data, and of each algorithm over its seeds."""

    dataset: str
    data: float | None
    scores: dict[str, list[float]]


ALGORITHMS = {"landfall": "Landfall", "bc": "BC", "td3bc": "TD3+BC", "iql": "IQL", "mopo+sumo": "MOPO+SUMO"}


def data_scores() -> dict[str, float]:
    found: dict[str, float] = {}
    for path in sorted(RUNS.glob("*/standard/data.csv")):
        with path.open() as file:
            found.update({row["dataset"]: float(row["score"]) for row in csv.DictReader(file)})
    return found


def from_grid(path: Path) -> dict[str, dict[str, list[float]]]:
    """Scores by dataset and algorithm from a table's cells, one row for each seed."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with path.open() as file:
        for row in csv.DictReader(file):
            if row["metric"] == "score" and row["value"]:
                name = ALGORITHMS.get(row["column"].lower(), row["column"])
                found[Path(row["dataset"]).stem][name].append(float(row["value"]))
    return found


def from_standard(directory: Path) -> dict[str, dict[str, list[float]]]:
    """The same from the metrics of single runs, `ALGORITHM-DATASET-sSEED.jsonl`; unfinished runs are left out."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(directory.glob("*.jsonl")):
        match = re.fullmatch(r"([a-z0-9+]+)-(.+)-s\d+", path.stem)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if not match or not lines or lines[-1].get("score") is None:
            continue
        algorithm, dataset = match.groups()
        complete = {"landfall": 5000, "td3bc": 50_000}.get(algorithm, 0)
        if lines[-1]["step"] >= complete:
            found[dataset][ALGORITHMS.get(algorithm, algorithm)].append(lines[-1]["score"])
    return found


def landfall_bars() -> list[Bars]:
    found: dict[str, dict[str, list[float]]] = {}
    for directory in sorted(RUNS.iterdir()):
        tables = sorted([*directory.glob("landfall.cells.csv"), *directory.glob("*/landfall.cells.csv")])
        for newer in [from_standard(directory / "standard"), *map(from_grid, tables)]:
            # All of a dataset's bars come from one place: the newest that has Landfall on it.
            found.update({name: scores for name, scores in newer.items() if "Landfall" in scores})
    data = data_scores()
    kinds = ("medium-replay", "medium", "medium-expert", "twin", "medium-twin")
    order = [f"{body}-{kind}" for body in ("hopper", "halfcheetah", "walker2d") for kind in kinds]
    names = [name for name in order if name in found]
    return [Bars(name, data.get(name, data.get(name.replace("-medium-twin", "-twin"))), found[name]) for name in names]


def shade(theme: Theme, name: str) -> str:
    palette = {"Landfall": theme.ours, "TD3+BC": "#bf8700", "IQL": "#8250df", "MOPO+SUMO": "#1a7f37", "BC": "#cf222e"}
    return palette.get(name, theme.peer)


def draw_landfall(theme: Theme) -> str:
    sets = landfall_bars()
    # A baseline that ran on a few datasets only would look as if it failed on the others.
    names = [name for name in ALGORITHMS.values() if 3 * sum(name in bars.scores for bars in sets) >= 2 * len(sets)]
    width, left, top, height = 760, 34, 74, 190
    column = (width - left) / max(len(sets), 1)
    most = 110.0

    def y(score: float) -> float:
        return top + height * (1 - max(score, 0.0) / most)

    seeds = {len(bars.scores["Landfall"]) for bars in sets}
    runs = "one seed" if seeds == {1} else f"mean of {min(seeds)} seeds" if len(seeds) == 1 else "mean over seeds"
    parts = [
        text(0, 18, "Normalised score of the last policy, beside the data it learnt from", theme.ink, 16, bold=True),
        text(0, 38, f"offing train DATASET --profile standard: one setting for all datasets, {runs}, 20 episodes", theme.faint, 12),
    ]
    legend = [("the data", theme.data)] + [(name, shade(theme, name)) for name in names]
    at = 0.0
    for name, colour in legend:
        parts.append(f"<rect x='{at:g}' y='48' width='10' height='10' rx='2' fill='{colour}'/>")
        parts.append(text(at + 15, 57, name, theme.ink, 12))
        at += 36 + 7.2 * len(name)
    for mark in range(0, 101, 25):
        parts.append(f"<path d='M{left} {y(mark):.1f}H{width}' stroke='{theme.rule}'/>")
        parts.append(text(left - 6, y(mark) + 4, str(mark), theme.faint, 11, "end"))
    for i, bars in enumerate(sets):
        shown: list[tuple[str, float, str]] = [("data", bars.data, theme.data)] if bars.data is not None else []
        shown += [(name, mean(bars.scores[name]), shade(theme, name)) for name in names if name in bars.scores]
        bar = min(24.0, (column - 14) / max(len(shown), 1))
        x = left + i * column + (column - bar * len(shown)) / 2
        for name, score, colour in shown:
            parts.append(f"<rect x='{x:.1f}' y='{y(score):.1f}' width='{bar - 2:.1f}' height='{y(0) - y(score):.1f}' rx='2' fill='{colour}'/>")
            if name in ("data", "Landfall") and bar >= 16:
                parts.append(text(x + bar / 2 - 1, y(score) - 4, f"{score:.0f}", theme.ink, 11, "middle", name == "Landfall"))
            x += bar
        kind = bars.dataset.partition("-")[2]
        kind = "by D4RL's" if kind.endswith("twin") else kind.replace("medium-", "m.-")
        parts.append(text(left + (i + 0.5) * column, top + height + 15, kind, theme.faint, 11, "middle"))
    bodies = [bars.dataset.partition("-")[0] for bars in sets]
    for body in dict.fromkeys(bodies):
        first, count = bodies.index(body), bodies.count(body)
        start, end = left + first * column, left + (first + count) * column
        parts.append(f"<path d='M{start + 8:.1f} {top + height + 22}H{end - 8:.1f}' stroke='{theme.rule}'/>")
        parts.append(text((start + end) / 2, top + height + 37, body, theme.ink, 12, "middle"))
    words = "m.-: medium-, a mixture with worse (replay) or better policies (expert); by D4RL's: recorded by D4RL's own medium policy"
    parts.append(text(0, top + height + 58, words, theme.faint, 11))
    return page(width, top + height + 66, "Landfall beside its data", parts)


# --- files ------------------------------------------------------------------------------------------------------------

FIGURES: dict[str, Callable[[Theme], str]] = {"search": draw_search, "landfall": draw_landfall}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a figure is not current")
    args = parser.parse_args()
    stale = []
    for name, draw in FIGURES.items():
        for theme in THEMES:
            path, wanted = IMAGES / f"{name}-{theme.name}.svg", draw(theme)
            if not args.check:
                path.parent.mkdir(exist_ok=True)
                path.write_text(wanted)
            elif not path.exists() or path.read_text() != wanted:
                stale.append(path.relative_to(ROOT).as_posix())
    if stale:
        print(f"not current: {', '.join(stale)}; update with `python scripts/readme_figures.py`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
