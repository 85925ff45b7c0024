"""Gymnasium equality: drives gymnasium 1.4 (v4 and v5) and offing with the same states and actions.

    cargo build --release -p offing-mujoco --example replay
    python scripts/check_gymnasium.py [--replay PATH] [--steps 1000]

For each body and version: 1000 steps in one go (through falls, as both allow it), and 1000 steps in episodes that
start over at each termination. Prints the largest differences and fails above 1e-9. Needs gymnasium==1.4.0 and
mujoco==3.17.0 (`pip install "gymnasium[mujoco]==1.4.0" mujoco==3.17.0`); `test_gymnasium.py` runs the same under pytest.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import gymnasium
import mujoco
import numpy as np

BODIES = {"halfcheetah": "HalfCheetah", "hopper": "Hopper", "walker2d": "Walker2d", "ant": "Ant"}
TOLERANCE = 1e-9


def replay_binary(explicit=None):
    """The example built by cargo: as given, from $OFFING_REPLAY, or in the target directory."""
    root = pathlib.Path(__file__).resolve().parent.parent
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    named = explicit or os.environ.get("OFFING_REPLAY")
    candidates = [pathlib.Path(named)] if named else [target / p / "examples" / "replay" for p in ("release", "debug")]
    for path in candidates:
        if path.is_file():
            return str(path.resolve())
    sys.exit(f"no {candidates[0]}; build it with `cargo build --release -p offing-mujoco --example replay`")


def episodes(env, steps, rng, start_over):
    """Steps gymnasium under random actions; yields (qpos, qvel, acts, obs, rewards, terminated) per episode."""
    sim = env.unwrapped
    left = steps
    while left:
        first, _ = env.reset(seed=int(rng.integers(1 << 31)))
        qpos, qvel = sim.data.qpos.copy(), sim.data.qvel.copy()
        # Gymnasium's reset leaves nothing else behind; setting the state anew makes both begin alike.
        mujoco.mj_resetData(sim.model, sim.data)
        sim.set_state(qpos, qvel)
        acts, obs, rewards, ends = [], [], [], []
        while left:
            # Some beyond the limits: actuators clamp them, the control cost does not.
            act = rng.uniform(-1.2, 1.2, env.action_space.shape).astype(np.float32)
            ob, reward, end, _, _ = sim.step(act)
            acts.append(act), obs.append(ob), rewards.append(reward), ends.append(bool(end))
            left -= 1
            if end and start_over:
                break
        yield qpos, qvel, first, np.array(acts), np.array(obs), np.array(rewards), np.array(ends)


def compare(binary, body, version, steps=1000, seed=0):
    """Largest differences of one body and version: (obs, reward, differing terminations, terminations)."""
    gymnasium.logger.min_level = gymnasium.logger.ERROR  # v4 is deprecated, and compared here
    env = gymnasium.make(f"{BODIES[body]}-{version}")
    rng = np.random.default_rng(seed)
    runs = [*episodes(env, steps, rng, False), *episodes(env, steps, rng, True)]
    requests = [
        {"task": body, "physics": f"gymnasium-{version}", "qpos": q.tolist(), "qvel": v.tolist(), "acts": a.tolist()}
        for q, v, _, a, *_ in runs
    ]
    text = "".join(json.dumps(r) + "\n" for r in requests)
    answers = subprocess.run([binary], input=text, capture_output=True, text=True)
    if answers.returncode:
        sys.exit(answers.stderr)
    worst_obs = worst_reward = differing = ends = 0
    for run, line in zip(runs, answers.stdout.splitlines(), strict=True):
        _, _, first, acts, obs, rewards, ended = run
        ours = json.loads(line)
        assert len(ours["obs"]) == len(acts)
        worst_obs = max(worst_obs, np.abs(np.array(ours["first"]) - first).max(), np.abs(np.array(ours["obs"]) - obs).max())
        worst_reward = max(worst_reward, np.abs(np.array(ours["rewards"]) - rewards).max())
        differing += int((np.array(ours["terminated"]) != ended).sum())
        ends += int(ended.sum())
    return worst_obs, worst_reward, differing, ends


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replay", help="the example binary (default: cargo's target directory)")
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    binary = replay_binary(args.replay)
    os.chdir(tempfile.mkdtemp())  # Python's MuJoCo writes MUJOCO_LOG.TXT where it runs
    print(f"gymnasium {gymnasium.__version__}, mujoco {mujoco.__version__}, {args.steps} steps twice each")
    print(f"{'body':12} {'version':8} {'max |Δobs|':>12} {'max |Δreward|':>14} {'Δterminated':>12} {'terminated':>11}")
    good = True
    for body in BODIES:
        for version in ("v4", "v5"):
            obs, reward, differing, ends = compare(binary, body, version, args.steps)
            print(f"{body:12} {version:8} {obs:12.3g} {reward:14.3g} {differing:12d} {ends:11d}")
            good &= obs <= TOLERANCE and reward <= TOLERANCE and not differing
    sys.exit(0 if good else f"differences above {TOLERANCE}")


if __name__ == "__main__":
    main()
