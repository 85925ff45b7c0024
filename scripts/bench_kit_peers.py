"""Times MOBILE's, COMBO's and RAMBO's steps beside OfflineRL-Kit's own in PyTorch: the same sizes, in turns, on the same threads.

    pip install torch numpy
    git clone https://github.com/yihaosun1124/OfflineRL-Kit KIT
    cargo build --release
    python scripts/bench_kit_peers.py KIT [--dataset halfcheetah-medium-replay] [--rounds 3] [--json F]

A step is what a gradient step of a training costs: the update of actor and critics, a step of RAMBO's model, and a thousandth of
a rollout of 50,000 starts and five steps. Of the kit it is `learn`, `dynamics_step_and_forward` and `rollout` of its policies, on
rows of noise; of offing it is what `offing train … --dry-run` measures. The kit's imports that no update needs are left out.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from importlib.machinery import ModuleSpec
from unittest.mock import MagicMock

OBS, ACT, BATCH, MEMBERS, ELITES = 17, 6, 256, 7, 5
SAC_HIDDEN, MODEL_HIDDEN = [256] * 3, [400] * 4
DECAY = [2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4]
REAL = {"mobile": 0.05, "combo": 0.5, "rambo": 0.5}
# Rollouts: starts in each 1000 steps, their length, and the starts that are timed.
STARTS, LENGTH, TIMED = 50_000, 5, 5_000


def kit_worker(kit, threads):
    import numpy as np
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    np.random.seed(0)
    for name in ("gym", "gym.envs", "gym.envs.mujoco", "torch.utils.tensorboard"):
        sys.modules[name] = MagicMock(__spec__=ModuleSpec(name, None))
    sys.path.insert(0, kit)
    from offlinerlkit.dynamics import EnsembleDynamics
    from offlinerlkit.modules import ActorProb, Critic, EnsembleDynamicsModel, TanhDiagGaussian
    from offlinerlkit.nets import MLP
    from offlinerlkit.policy import COMBOPolicy, MOBILEPolicy, RAMBOPolicy
    from offlinerlkit.utils.scaler import StandardScaler

    def adam(of, lr):
        return torch.optim.Adam(of.parameters(), lr=lr)

    def noise(rows):
        normal = lambda cols: torch.randn(rows, cols)
        return {"observations": normal(OBS), "actions": torch.tanh(normal(ACT)), "next_observations": normal(OBS),
                "rewards": normal(1), "terminals": torch.zeros(rows, 1)}

    def parts():
        """A fresh actor, two critics, a temperature and a model."""
        backbone = MLP(input_dim=OBS, hidden_dims=SAC_HIDDEN)
        dist = TanhDiagGaussian(latent_dim=backbone.output_dim, output_dim=ACT, unbounded=True, conditioned_sigma=True)
        actor = ActorProb(backbone, dist, "cpu")
        critics = [Critic(MLP(input_dim=OBS + ACT, hidden_dims=SAC_HIDDEN), "cpu") for _ in range(2)]
        log_alpha = torch.zeros(1, requires_grad=True)
        alpha = (-ACT, log_alpha, torch.optim.Adam([log_alpha], lr=1e-4))
        model = EnsembleDynamicsModel(obs_dim=OBS, action_dim=ACT, hidden_dims=MODEL_HIDDEN, num_ensemble=MEMBERS,
                                      num_elites=ELITES, weight_decays=DECAY, device="cpu")
        scaler = StandardScaler(np.zeros((1, OBS + ACT), "f4"), np.ones((1, OBS + ACT), "f4"))
        never = lambda obs, act, next_obs: np.zeros((len(obs), 1), bool)
        dynamics = EnsembleDynamics(model, adam(model, 1e-3), scaler, never)
        return actor, critics, alpha, dynamics

    def mobile():
        actor, critics, alpha, dynamics = parts()
        critics = torch.nn.ModuleList(critics)
        return MOBILEPolicy(dynamics, actor, critics, adam(actor, 1e-4), adam(critics, 3e-4), alpha=alpha,
                            penalty_coef=0.5, num_samples=10, deterministic_backup=True)

    def combo():
        actor, (a, b), alpha, dynamics = parts()
        space = MagicMock(low=np.full(ACT, -1.0), high=np.ones(ACT), shape=(ACT,))
        return COMBOPolicy(dynamics, actor, a, b, adam(actor, 1e-4), adam(a, 3e-4), adam(b, 3e-4), action_space=space,
                           alpha=alpha, cql_weight=0.5, with_lagrange=False, num_repeart_actions=10)

    def rambo():
        actor, (a, b), alpha, dynamics = parts()
        return RAMBOPolicy(dynamics, actor, a, b, adam(actor, 1e-4), adam(a, 3e-4), adam(b, 3e-4),
                           adam(dynamics.model, 3e-4), alpha=alpha, adv_weight=3e-4)

    def work(name, policy):
        real = int(BATCH * REAL[name])
        batch = {"real": noise(real), "fake": noise(BATCH - real)}
        policy.train()

        def step():
            policy.learn(batch)
            if name == "rambo":
                rows, sl = noise(BATCH)["observations"].numpy(), noise(BATCH)
                policy.dynamics_step_and_forward(rows, policy.select_action(rows), sl["observations"], sl["actions"],
                                                 sl["next_observations"], sl["rewards"])

        def rollout():
            # As in its trainer, the scaler makes f64 of numpy's f32, and the network f32 again.
            policy.rollout(noise(TIMED)["observations"].numpy(), LENGTH)

        return step, rollout

    return {name: work(name, make()) for name, make in (("mobile", mobile), ("combo", combo), ("rambo", rambo))}


def serve(work):
    """Answers `<name> <runs>` lines with the seconds of each run and of a rollout's share."""

    def timed(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    for step, _ in work.values():
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        name, runs = line.split()
        step, rollout = work[name]
        share = timed(rollout) * STARTS / TIMED / 1000
        print(json.dumps([timed(step) + share for _ in range(int(runs))]), flush=True)


def offing(binary, name, args):
    command = [binary, "train", name, args.dataset, "--rows", str(args.rows), "--dry-run", "--threads", str(args.threads)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(re.search(r"steps at ([0-9.]+) ms", text)[1]) / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kit", help="where OfflineRL-Kit was cloned to")
    parser.add_argument("--dataset", default="halfcheetah-medium-replay")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--binary", default="target/release/offing")
    parser.add_argument("--before", help="an older program, measured in the same turns")
    parser.add_argument("--json")
    parser.add_argument("--worker", action="store_true")
    args = parser.parse_args()
    if args.worker:
        return serve(kit_worker(args.kit, args.threads))
    threads = str(args.threads)
    env = {**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    me = [sys.executable, os.path.abspath(__file__), args.kit, "--threads", threads, "--worker"]
    peer = subprocess.Popen(me, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert peer.stdout.readline().strip() == "ready"
    programs = {"offing": args.binary, **({"offing before": args.before} if args.before else {})}
    times = {}
    for _ in range(args.rounds):
        for name in REAL:
            for who, binary in programs.items():
                times.setdefault((who, name), []).append(offing(binary, name, args))
            print(name, 10, file=peer.stdin, flush=True)
            times.setdefault(("OfflineRL-Kit", name), []).append(statistics.median(json.loads(peer.stdout.readline())))
    peer.stdin.close()
    median = {key: statistics.median(samples) for key, samples in times.items()}
    who = [*programs, "OfflineRL-Kit"]
    print(f"{args.threads} threads, {args.rounds} rounds, {args.dataset}\n")
    print(f"| ms a step, median (least) | {' | '.join(who)} | OfflineRL-Kit/offing |")
    print("|---" * (len(who) + 2) + "|")
    for name in REAL:
        cells = [f"{1e3 * median[(w, name)]:.1f} ({1e3 * min(times[(w, name)]):.1f})" for w in who]
        print(f"| {name} | {' | '.join(cells)} | {median[('OfflineRL-Kit', name)] / median[('offing', name)]:.2f} |")
    if args.json:
        results = [{"name": f"{name}, {w}", "unit": "s", "median": median[(w, name)], "samples": samples}
                   for (w, name), samples in times.items()]
        with open(args.json, "w") as f:
            json.dump({"bench": "kit peers", "threads": args.threads, "results": results}, f, indent=1)


if __name__ == "__main__":
    main()
