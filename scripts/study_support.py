#!/usr/bin/env python3
"""How well scores rank errors on steps that the data support, and on steps that they do not.

    offing calibrate hopper-medium --profile quick --seeds 2 --dir runs/calibrate      # and other datasets
    python scripts/study_support.py runs/calibrate --estimators sumo aleatoric pairwise mixture-std fathom

Reads the studies that `offing calibrate` and `offing reproduce table2` cache. A step is inside when SUMO's score is at
most the largest leave-one-out score of the data (ε of Eq. 7 with α = 1). Needs numpy and scipy.
"""

import argparse
import json
import pathlib

import numpy as np
from scipy.stats import spearmanr


def studies(folder, estimator):
    """Errors and scores of the steps, and the data's largest score, by the estimator with its default settings."""
    for file in sorted(folder.glob(f"study-{estimator}-*.json")):
        study = json.loads(file.read_text())
        name, scores = study["scores"][0]
        if name == estimator:
            errors = np.array([error for _, error in study["error"]])
            return errors, np.array(scores, float), study["timings"][0]["max_baseline"]
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--estimators", nargs="+", default=["sumo", "aleatoric", "pairwise", "mixture-std", "fathom"])
    args = parser.parse_args()
    head = ["dataset", "seed", "steps inside", "error p90/p10"] + [f"{e} {part}" for e in args.estimators for part in ("all", "in", "out")]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for folder in sorted(args.dir.glob("*/s*-*")):
        sumo = studies(folder, "sumo")
        if sumo is None:
            continue
        errors, u, largest = sumo
        inside = u <= largest
        low, high = np.quantile(errors, [0.1, 0.9])
        line = [folder.parent.name, folder.name[1 : folder.name.index("-")], f"{inside.mean():.0%}", f"{high / low:.0f}"]
        for estimator in args.estimators:
            found = studies(folder, estimator)
            if found is None or len(found[0]) != len(errors):
                line += ["-"] * 3
                continue
            for part in (np.ones_like(inside), inside, ~inside):
                line.append(f"{spearmanr(found[1][part], errors[part]).statistic:.2f}" if part.sum() > 50 else "-")
        print("| " + " | ".join(line) + " |")


if __name__ == "__main__":
    main()
