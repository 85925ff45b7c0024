"""Old physics: replays recorded gym-v2 and D4RL transitions in offing's old physics.

    cargo build --release -p offing-mujoco --example replay
    python scripts/check_old_physics.py hopper=FILE.hdf5 [walker2d=… halfcheetah=…:mujoco-1.50 ant=…]

Each file (safetensors, or D4RL's HDF5) holds observations, actions and next_observations (f32). The script resumes every
row from its observation and takes one step. Rows with clipped velocities cannot be resumed; it counts them. It prints
quantiles of the largest |Δobs| of a row under each physics, and fails where the median is above 1e-6 or the 99th
percentile above 1.5e-5 under the physics that the file is said to come from (d4rl-v2 unless named).
"""

import json
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file

from check_gymnasium import replay_binary

TOLERANCE = 1e-6
TOLERANCE_P99 = 1.5e-5


def load(path):
    """The columns of a file."""
    if not path.endswith((".hdf5", ".h5")):
        return load_file(path)
    import h5py

    with h5py.File(path) as file:
        return {name: file[name][:] for name in ("observations", "actions", "next_observations")}


def errors(binary, task, physics, data):
    """Largest |Δobs| of each row that can be resumed."""
    # Contact forces are not part of the state, and v4 does not observe them.
    width = 27 if task == "ant" and physics == "gymnasium-v4" else data["observations"].shape[1]
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
        path, _, origin = path.partition(":")
        data, origin = load(path), origin or "d4rl-v2"
        for physics in ("d4rl-v2", "mujoco-1.50", "gymnasium-v4"):
            e = errors(binary, task, physics, data)
            q = [np.quantile(e, p) for p in (0.5, 0.9, 0.99, 1.0)]
            clipped = len(data["observations"]) - len(e)
            print(f"{task:12} {physics:13} {len(e):6d} {clipped:8d}", *(f"{v:9.2g}" for v in q))
            good &= physics != origin or (q[0] <= TOLERANCE and q[2] <= TOLERANCE_P99)
    sys.exit(0 if good else f"median above {TOLERANCE} or 99th percentile above {TOLERANCE_P99}")


if __name__ == "__main__":
    main()
