"""Scores policies of offing in the simulators of NeoRL-2 (https://github.com/polixir/NeoRL2, Apache 2.0).

    git clone https://github.com/polixir/NeoRL2
    pip install "numpy==1.26.4" "gymnasium==0.29.1" "pandas<3" scipy safetensors
    python scripts/score_neorl2.py RUN/policy.safetensors --neorl2 NeoRL2 --task DMSD [--episodes 100] [--json FILE]
    python scripts/score_neorl2.py RUN/policy.safetensors --neorl2 NeoRL2 --task Simglucose --hours 24

Plays episodes with seeds 0, 1, … and mean actions. Prints the mean return, its standard error and the benchmark's score
100 (R - min) / (max - min). Clone the repository: the package `neorl2` on PyPI lacks the reward files.

- DMSD draws start and targets. An episode takes about 0.01 s.
- Simglucose draws only one of 15 patients and the hour of the day at the start; all else is fixed. Returns differ so
  much between patients that 20 random episodes have a standard error of 8 points. `--hours N` plays every patient from
  N hours instead, spread over the day: 24 are all 360 starts and give the expected return itself. An episode takes up
  to 0.6 s.
  Its logged actions are tanh(x) with x >= -4, and nine tenths of them lie below -0.98. Actions mapped to atanh(a) / 4
  fill [-1, 1] better; a policy learnt from those is played with `--atanh 4`.
- SafetyHalfCheetah also needs `pip install mujoco`.
"""

import argparse
import datetime
import json
import math
import pathlib
import sys
import time
import types

import numpy as np

# Minimum and maximum of the benchmark's score.
TASKS = {"DMSD": (30.60, 849.51), "Simglucose": (9.75, 475.0), "SafetyHalfCheetah": (-283.0, 2507.0)}
# Modules that the simulators import but do not use to simulate.
UNUSED = ["torch", "matplotlib", "matplotlib.pyplot", "matplotlib.dates", "pkg_resources"]


class Policy:
    """The mean action of a policy file of offing, in float32."""

    def __init__(self, path):
        from safetensors.numpy import load_file
        t = load_file(path)
        count = sum(name.startswith("hidden.") and name.endswith(".weight") for name in t)
        self.hidden = [(t[f"hidden.{i}.weight"], t[f"hidden.{i}.bias"]) for i in range(count)]
        self.mean = t["mean.weight"], t["mean.bias"]
        self.layer_norm, self.tanh_units, self.clipped = (
            name in t and bool(t[name].any()) for name in ("layer_norm", "tanh_units", "clipped"))

    def obs_dim(self):
        return (self.hidden + [self.mean])[0][0].shape[1]

    def __call__(self, obs):
        x = np.asarray(obs, np.float32)
        for weight, bias in self.hidden:
            x = weight @ x + bias
            if self.layer_norm:
                x = (x - x.mean()) / np.sqrt(x.var() + np.float32(1e-5))
            x = np.tanh(x) if self.tanh_units else np.maximum(x, 0)
        weight, bias = self.mean
        x = weight @ x + bias
        return np.clip(x, -1, 1) if self.clipped else np.tanh(x)


def replace_unused(names):
    """Empty modules, so that these need not be installed. SciPy looks for `torch.Tensor` in whatever is `torch`."""
    for name in names:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].Tensor = type("Tensor", (), {})


def make_env(checkout, task):
    """The simulator from a checkout of NeoRL2, with the benchmark's time limit."""
    if not (pathlib.Path(checkout) / "neorl2" / "envs" / "reward").is_dir():
        sys.exit(f"--neorl2: wanted a checkout of polixir/NeoRL2, found no neorl2/envs/reward in {checkout}")
    sys.path.insert(0, str(checkout))
    replace_unused(UNUSED)
    import gymnasium
    import neorl2  # noqa: F401, registers the tasks
    if task == "Simglucose":
        from neorl2.envs.data.simglucose.patient.t1dpatient import T1DPatient
        model = T1DPatient.model
        # The equations on Python floats: the same numbers in a third of the time of NumPy's scalars.
        T1DPatient.model = staticmethod(lambda t, x, *rest: model(t, x.tolist(), *rest))
    return gymnasium.make(task, disable_env_checker=True)


def starts_of_simglucose(env, hours):
    """Every patient at `hours` hours of the day, evenly spread and shifted from patient to patient."""
    names = env.unwrapped.env.patient_names
    return [(name, (k * 24 // hours + i) % 24) for i, name in enumerate(names) for k in range(hours)]


def standard_error(returns, hours):
    """Of the mean of independent episodes, or of `hours` of the 24 starts of every patient."""
    if hours is None:
        return float(np.std(returns, ddof=1)) / math.sqrt(len(returns)) if len(returns) > 1 else math.nan
    if hours == 1:
        return math.nan
    by_patient = np.reshape(returns, (-1, hours))
    return math.sqrt(by_patient.var(axis=1, ddof=1).sum() / hours * (1 - hours / 24)) / len(by_patient)


def start_at(env, patient, hour):
    """Resets Simglucose to a given patient and hour of the day."""
    outer = env.unwrapped.env
    outer.random_patient, outer.patient_name = False, patient
    obs, _ = env.reset()
    outer.env.scenario.start_time = datetime.datetime(2018, 1, 1, hour)
    return obs


def read_params_once(env):
    """Simglucose looks parameters up in a pandas Series within its equations; a namespace is three times as fast."""
    patient = env.unwrapped.env.env.patient
    values = {key: value for key, value in patient._params.items() if key.isidentifier()}
    patient._params = types.SimpleNamespace(**{k: v if k == "Name" else float(v) for k, v in values.items()})


def play(env, task, policy, atanh=None, seed=None, start=None):
    """Return and length of one episode."""
    if start is None:
        np.random.seed(seed)  # Simglucose draws from NumPy's global generator
        obs, _ = env.reset(seed=seed)
    else:
        obs = start_at(env, *start)
    if task == "Simglucose":
        read_params_once(env)
    total, length, over = 0.0, 0, False
    while not over:
        act = policy(obs)
        if atanh is not None:
            act = np.tanh(atanh * act)
        # One-entry arrays would pass through Simglucose's equations as arrays, in float32.
        obs, reward, terminated, truncated, _ = env.step(float(act[0]) if task == "Simglucose" else act)
        total, length, over = total + float(reward), length + 1, terminated or truncated
    return total, length


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policies", nargs="+", help="policy.safetensors of a run")
    parser.add_argument("--neorl2", required=True, help="a checkout of polixir/NeoRL2")
    parser.add_argument("--task", required=True, choices=TASKS)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--hours", type=int, choices=range(1, 25), metavar="N",
                        help="Simglucose: every patient from N hours of the day")
    parser.add_argument("--atanh", type=float, metavar="C", help="the policy's actions are atanh(a) / C: play a = tanh(C x)")
    parser.add_argument("--json", help="write every return to this file")
    args = parser.parse_args()
    if args.hours and args.task != "Simglucose":
        parser.error("--hours is for Simglucose; other tasks take --episodes")
    env = make_env(args.neorl2, args.task)
    if args.hours:
        plan = [{"start": start} for start in starts_of_simglucose(env, args.hours)]
    else:
        plan = [{"seed": seed} for seed in range(args.episodes)]
    low, high = TASKS[args.task]
    to_score = 100 / (high - low)
    results = []
    for path in args.policies:
        policy, clock = Policy(path), time.process_time()
        wanted, found = env.observation_space.shape[0], policy.obs_dim()
        if wanted != found:
            sys.exit(f"{path}: wanted {wanted} observations, as {args.task} has, found a policy that takes {found}; check --task")
        returns, lengths = zip(*(play(env, args.task, policy, args.atanh, **episode) for episode in plan))
        seconds = (time.process_time() - clock) / len(plan)
        mean = float(np.mean(returns))
        error = standard_error(returns, args.hours)
        score = (mean - low) * to_score
        print(f"{path}: {args.task}, {len(plan)} episodes: return {mean:.2f} ± {error:.2f}, "
              f"score {score:.1f} ± {error * to_score:.1f}, mean length {np.mean(lengths):.0f}, {seconds:.2f} s an episode",
              flush=True)
        results.append({"policy": path, "task": args.task, "hours": args.hours, "return": mean, "standard_error": error,
                        "score": score, "returns": returns, "lengths": lengths})
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
