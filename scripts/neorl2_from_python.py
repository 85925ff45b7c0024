"""Trains on a dataset of NeoRL-2 from Python and scores policies in its own simulator on the way.

    git clone https://github.com/polixir/NeoRL2
    pip install offing gymnasium pandas scipy
    python scripts/neorl2_from_python.py DMSD-high-100000-train.npz --neorl2 NeoRL2 [--steps 20000] [--seed 0]

Nothing about the task is known to offing: the arrays are the data, the simulator is a Gymnasium environment.
"""

import argparse
import json

from score_neorl2 import TASKS, make_env

import offing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("data")
    parser.add_argument("--neorl2", required=True, metavar="DIR", help="a checkout of polixir/NeoRL2")
    parser.add_argument("--task", choices=TASKS, default="DMSD")
    parser.add_argument("--algorithm", default="landfall")
    parser.add_argument("--profile", default="quick")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="a setting, such as sac.hidden=[64,64]")
    parser.add_argument("--episodes", type=int, default=100, help="of the final evaluation")
    args = parser.parse_args()
    settings = {key: json.loads(value) for key, _, value in (text.partition("=") for text in args.set)}
    low, high = TASKS[args.task]
    data = offing.load_dataset(args.data)

    def make():
        return make_env(args.neorl2, args.task)

    def show(state: offing.TrainingState) -> None:
        score = 100 * (state.metrics["return"] - low) / (high - low)
        print(f"step {state.step}: return {state.metrics['return']:.1f}, score {score:.1f}", flush=True)

    run = offing.train(
        args.algorithm, data, env=make, callbacks=[show], profile=args.profile, steps=args.steps, seed=args.seed,
        rows=args.rows, threads=args.threads, evaluate_every=max(args.steps // 4, 1), episodes=20, **settings,
    )  # fmt: skip
    found = offing.evaluate(run.policy, make, args.episodes, seed=1)
    behaviour = run.behaviour_return
    score = {name: 100 * (value - low) / (high - low) for name, value in (("policy", found.mean), ("data", behaviour))}
    print(json.dumps({"run": str(run.path), "return": found.mean, "std": found.std, "data_return": behaviour, "score": score}))


if __name__ == "__main__":
    main()
