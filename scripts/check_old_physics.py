"""Old physics: replays recorded gym-v2 transitions in offing's default physics.

    cargo build --release -p offing-mujoco --example replay
    python scripts/check_old_physics.py hopper=FILE.safetensors [walker2d=… halfcheetah=… ant=…]

Each file holds observations, actions and next_observations (f32). The script resumes every row from its observation
and takes one step. Rows with clipped velocities cannot be resumed; it counts them. It prints quantiles of the largest
|Δobs| of a row, and fails where the median is above 1e-6. For comparison it prints the same under today's physics.
"""

import json
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file

from check_gymnasium import replay_binary

TOLERANCE = 1e-6


def errors(binary, task, physics, data):
    """Largest |Δobs| of each row that can be resumed."""
    # Contact forces are not part of the state, and v4 does not observe them.
    width = 27 if task == "ant" and physics != "d4rl-v2" else data["observations"].shape[1]
    obs, next_obs = (data[k][:, :width].astype(np.float64) for k in ("observations", "next_observations"))
    request = {"task": task, "physics": physics, "resume": obs.tolist(), "acts": data["actions"].tolist()}
    run = subprocess.run([binary], input=json.dumps(request) + "\n", capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    answer = json.loads(run.stdout)
    exact = np.array(answer["clipped"]) == 0
    return np.abs(np.array(answer["obs"]) - next_obs).max(axis=1)[exact]


def main():
    if len(sys.argv) < 2 or any("=" not in word for word in sys.argv[1:]):
        sys.exit(__doc__)
    binary = replay_binary()
    good = True
    print(f"{'body':12} {'physics':13} {'rows':>6} {'clipped':>8} {'median':>9} {'p90':>9} {'p99':>9} {'max':>9}")
    for task, path in (word.split("=", 1) for word in sys.argv[1:]):
        data = load_file(path)
        for physics in ("d4rl-v2", "gymnasium-v4"):
            e = errors(binary, task, physics, data)
            q = [np.quantile(e, p) for p in (0.5, 0.9, 0.99, 1.0)]
            clipped = len(data["observations"]) - len(e)
            print(f"{task:12} {physics:13} {len(e):6d} {clipped:8d}", *(f"{v:9.2g}" for v in q))
            good &= physics != "d4rl-v2" or q[0] <= TOLERANCE
    sys.exit(0 if good else f"median above {TOLERANCE}")


if __name__ == "__main__":
    main()
