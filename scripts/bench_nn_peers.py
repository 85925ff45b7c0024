"""Times the learning core against PyTorch eager and JAX jit: the same work, in turns, in one run, on the same threads.

    pip install torch jax numpy
    cargo build --release
    python scripts/bench_nn_peers.py [--threads 2] [--rounds 8] [--only sac,ensemble,forecast] [--json F]

offing runs as `offing bench sac` and `offing bench dynamics`, started anew every round. Each peer is its own process
that waits for its turn, so that no thread pool disturbs another's.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

OBS, ACT, BATCH, MEMBERS, ROWS = 17, 6, 256, 7, 50_000
SAC_HIDDEN, MODEL_HIDDEN = [256] * 3, [400] * 4
DECAY = [2.5e-5, 5e-5, 7.5e-5, 7.5e-5, 1e-4]

ACTOR = [OBS, *SAC_HIDDEN, 2 * ACT]
CRITIC = [OBS + ACT, *SAC_HIDDEN, 1]
MODEL = [OBS + ACT, *MODEL_HIDDEN, 2 * (OBS + 1)]


def torch_worker(threads):
    import copy

    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.set_num_threads(threads)
    torch.manual_seed(0)

    def mlp(sizes, act):
        layers = []
        for i in range(len(sizes) - 1):
            layers += [nn.Linear(sizes[i], sizes[i + 1])] + ([act()] if i + 2 < len(sizes) else [])
        return nn.Sequential(*layers)

    actor = mlp(ACTOR, nn.ReLU)
    critics = [mlp(CRITIC, nn.ReLU) for _ in range(2)]
    targets = copy.deepcopy(critics)
    log_alpha = torch.zeros(1, requires_grad=True)
    actor_opt = torch.optim.Adam(actor.parameters(), lr=3e-4)
    critic_opt = torch.optim.Adam([p for c in critics for p in c.parameters()], lr=3e-4)
    alpha_opt = torch.optim.Adam([log_alpha], lr=3e-4)
    obs, next_obs = torch.randn(BATCH, OBS), torch.randn(BATCH, OBS)
    act, rew, done = torch.tanh(torch.randn(BATCH, ACT)), torch.randn(BATCH), torch.zeros(BATCH)

    def sample(o):
        mu, ls = actor(o).chunk(2, -1)
        ls = ls.clamp(-5, 2)
        eps = torch.randn_like(mu)
        z = mu + ls.exp() * eps
        lp = -0.5 * eps**2 - ls - 0.5 * math.log(2 * math.pi) - 2 * (math.log(2) - z - F.softplus(-2 * z))
        return torch.tanh(z), lp.sum(-1)

    def sac():
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            a, lp = sample(next_obs)
            x = torch.cat([next_obs, a], -1)
            y = rew + 0.99 * (1 - done) * (torch.min(targets[0](x), targets[1](x)).squeeze(-1) - alpha * lp)
        x = torch.cat([obs, act], -1)
        loss = sum(F.mse_loss(c(x).squeeze(-1), y) for c in critics)
        critic_opt.zero_grad()
        loss.backward()
        critic_opt.step()
        a, lp = sample(obs)
        x = torch.cat([obs, a], -1)
        for c in critics:
            c.requires_grad_(False)
        loss = (alpha * lp - torch.min(critics[0](x), critics[1](x)).squeeze(-1)).mean()
        actor_opt.zero_grad()
        loss.backward()
        actor_opt.step()
        for c in critics:
            c.requires_grad_(True)
        loss = -(log_alpha * (lp.detach() - ACT)).mean()
        alpha_opt.zero_grad()
        loss.backward()
        alpha_opt.step()
        with torch.no_grad():
            for c, t in zip(critics, targets):
                torch._foreach_lerp_(list(t.parameters()), list(c.parameters()), 0.005)

    # The usual batched ensemble: one product for all members.
    weights = [nn.Parameter(torch.randn(MEMBERS, i, o) / (2 * math.sqrt(i))) for i, o in zip(MODEL, MODEL[1:])]
    biases = [nn.Parameter(torch.zeros(MEMBERS, 1, o)) for o in MODEL[1:]]
    max_lv, min_lv = nn.Parameter(torch.full((OBS + 1,), 0.5)), nn.Parameter(torch.full((OBS + 1,), -10.0))
    model_opt = torch.optim.Adam([*weights, *biases, max_lv, min_lv], lr=1e-3)
    mx, my = torch.randn(MEMBERS, BATCH, OBS + ACT), torch.randn(MEMBERS, BATCH, OBS + 1)

    def forward(x):
        for i, (w, b) in enumerate(zip(weights, biases)):
            x = torch.baddbmm(b, x, w)
            if i + 1 < len(weights):
                x = F.silu(x)
        mu, lv = x.chunk(2, -1)
        lv = max_lv - F.softplus(max_lv - lv)
        return mu, min_lv + F.softplus(lv - min_lv)

    def ensemble():
        mu, lv = forward(mx)
        nll = (((mu - my) ** 2 * torch.exp(-lv)).mean((1, 2)) + lv.mean((1, 2))).sum()
        decay = sum(c * 0.5 * (w**2).sum() for c, w in zip(DECAY, weights))
        loss = nll + decay + 0.01 * (max_lv.sum() - min_lv.sum())
        model_opt.zero_grad()
        loss.backward()
        model_opt.step()

    rows = torch.randn(ROWS, OBS + ACT)

    @torch.no_grad()
    def forecast(parts=10):
        for part in rows.split(5_000)[:parts]:
            forward(part.expand(MEMBERS, *part.shape))

    return dict(sac=sac, ensemble=ensemble, forecast=forecast)


def jax_worker(threads):
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=" + ("true" if threads > 1 else "false")
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)

    def init(sizes, lead=()):
        return [
            (
                jnp.asarray(rng.normal(size=(*lead, i, o)).astype("f4") / (2 * math.sqrt(i))),
                jnp.zeros((*lead, *([1] if lead else []), o), "f4"),
            )
            for i, o in zip(sizes, sizes[1:])
        ]

    def mlp(params, x, act):
        for i, (w, b) in enumerate(params):
            x = x @ w + b
            if i + 1 < len(params):
                x = act(x)
        return x

    def adam_init(p):
        # Twice, because donated buffers must not be shared.
        return (jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p), jnp.zeros((), "f4"))

    def adam(p, g, s, lr):
        m, v, t = s
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
        a, b = lr / (1 - 0.9**t), 1 / jnp.sqrt(1 - 0.999**t)
        return jax.tree.map(lambda p, m, v: p - a * m / (jnp.sqrt(v) * b + 1e-8), p, m, v), (m, v, t)

    def sample(actor, o, key):
        mu, ls = jnp.split(mlp(actor, o, jax.nn.relu), 2, -1)
        ls = jnp.clip(ls, -5, 2)
        eps = jax.random.normal(key, mu.shape)
        z = mu + jnp.exp(ls) * eps
        lp = -0.5 * eps**2 - ls - 0.5 * math.log(2 * math.pi) - 2 * (math.log(2) - z - jax.nn.softplus(-2 * z))
        return jnp.tanh(z), lp.sum(-1)

    def q(c, x):
        return mlp(c, x, jax.nn.relu)[:, 0]

    f4 = lambda *s: jnp.asarray(rng.normal(size=s).astype("f4"))
    obs, next_obs, act, rew = f4(BATCH, OBS), f4(BATCH, OBS), jnp.tanh(f4(BATCH, ACT)), f4(BATCH)

    def sac_step(state):
        actor, critics, targets, log_alpha, oa, oc, ol, key = state
        key, k1, k2 = jax.random.split(key, 3)
        alpha = jnp.exp(log_alpha)
        a, lp = sample(actor, next_obs, k1)
        x = jnp.concatenate([next_obs, a], -1)
        y = rew + 0.99 * (jnp.minimum(q(targets[0], x), q(targets[1], x)) - alpha * lp)
        x = jnp.concatenate([obs, act], -1)
        g = jax.grad(lambda cs: sum(((q(c, x) - y) ** 2).mean() for c in cs))(critics)
        critics, oc = adam(critics, g, oc, 3e-4)

        def actor_loss(actor):
            a, lp = sample(actor, obs, k2)
            x = jnp.concatenate([obs, a], -1)
            return (alpha * lp - jnp.minimum(q(critics[0], x), q(critics[1], x))).mean(), lp

        g, lp = jax.grad(actor_loss, has_aux=True)(actor)
        actor, oa = adam(actor, g, oa, 3e-4)
        log_alpha, ol = adam(log_alpha, -(lp - ACT).mean(), ol, 3e-4)
        targets = jax.tree.map(lambda t, c: t + 0.005 * (c - t), targets, critics)
        return actor, critics, targets, log_alpha, oa, oc, ol, key

    sac_jit = jax.jit(sac_step, donate_argnums=0)
    actor, critics = init(ACTOR), [init(CRITIC), init(CRITIC)]
    log_alpha = jnp.zeros((), "f4")
    targets = jax.tree.map(lambda x: x.copy(), critics)
    state = [(actor, critics, targets, log_alpha, adam_init(actor), adam_init(critics), adam_init(log_alpha),
              jax.random.PRNGKey(0))]

    def sac():
        state[0] = jax.block_until_ready(sac_jit(state[0]))

    def forward(p, x):
        net, max_lv, min_lv = p
        mu, lv = jnp.split(mlp(net, x, jax.nn.silu), 2, -1)
        lv = max_lv - jax.nn.softplus(max_lv - lv)
        return mu, min_lv + jax.nn.softplus(lv - min_lv)

    params = (init(MODEL, (MEMBERS,)), jnp.full(OBS + 1, 0.5), jnp.full(OBS + 1, -10.0))
    mx, my = f4(MEMBERS, BATCH, OBS + ACT), f4(MEMBERS, BATCH, OBS + 1)

    def loss(p):
        mu, lv = forward(p, mx)
        nll = (((mu - my) ** 2 * jnp.exp(-lv)).mean((1, 2)) + lv.mean((1, 2))).sum()
        decay = sum(c * 0.5 * (w**2).sum() for c, (w, _) in zip(DECAY, p[0]))
        return nll + decay + 0.01 * (p[1].sum() - p[2].sum())

    def ensemble_step(p, s):
        return adam(p, jax.grad(loss)(p), s, 1e-3)

    ensemble_jit = jax.jit(ensemble_step, donate_argnums=(0, 1))
    model = [(params, adam_init(params))]

    def ensemble():
        model[0] = jax.block_until_ready(ensemble_jit(*model[0]))

    forward_jit = jax.jit(forward)
    rows = f4(ROWS, OBS + ACT)

    def forecast(parts=10):
        for i in range(0, parts * 5_000, 5_000):
            part = jnp.broadcast_to(rows[i : i + 5_000], (MEMBERS, 5_000, OBS + ACT))
            jax.block_until_ready(forward_jit(model[0][0], part))

    return dict(sac=sac, ensemble=ensemble, forecast=forecast)


def serve(work):
    """Answers `<name> <runs>` lines with the seconds of each run."""
    for name in work:
        for _ in range(2):
            work[name]() if name != "forecast" else work[name](1)
    print("ready", flush=True)
    for line in sys.stdin:
        name, runs = line.split()
        seconds = []
        for _ in range(int(runs)):
            start = time.perf_counter()
            work[name]()
            seconds.append(time.perf_counter() - start)
        print(json.dumps(seconds), flush=True)


class Peer:
    def __init__(self, command, env):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
        )
        assert self.process.stdout.readline().strip() == "ready", command

    def run(self, name, runs):
        print(name, runs, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


class Offing:
    """Runs the command line; stores the peak, the operations and the commit it reports."""

    def __init__(self, binary, threads):
        self.binary, self.threads = binary, str(threads)
        self.peaks, self.shares, self.flop, self.about = [], {}, {}, {}

    def bench(self, *args):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "bench.json")
            command = [self.binary, "bench", *args, "--threads", self.threads, "--samples", "1", "--json", out]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            with open(out) as f:
                found = json.load(f)
        self.about = {key: found[key] for key in ("commit", "machine")}
        return {r["name"]: r["samples"] for r in found["results"]}

    def run(self, name, runs):
        if name == "forecast":
            found = self.bench("dynamics", "--updates", "1", "--rows", str(ROWS))
            return {
                "forecast": [ROWS / r for r in found["forecast by all members"]],
                "step": [ROWS / r for r in found["step by one member a row"]],
            }
        sac = name == "sac"
        found = self.bench("sac", "--updates", str(runs)) if sac else self.bench(
            "dynamics", "--updates", str(runs), "--rows", "0")
        self.peaks += found["FMA peak"]
        self.shares.setdefault(name, []).extend(found["share of the peak"])
        self.flop[name] = found["products of an update" if sac else "products of a step"][0]
        return {name: [ms / 1e3 for ms in found["update" if sac else "step"]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--only", default="sac,ensemble,forecast", help="which of sac, ensemble and forecast")
    parser.add_argument("--binary", default="target/release/offing")
    parser.add_argument("--json")
    parser.add_argument("--wait", action="store_true", help="measure only when a line comes in (the machine is quiet)")
    parser.add_argument("--worker", choices=["torch", "jax"])
    args = parser.parse_args()
    if args.worker:
        return serve({"torch": torch_worker, "jax": jax_worker}[args.worker](args.threads))
    threads = str(args.threads)
    env = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "KMP_BLOCKTIME": "0", "JAX_PLATFORMS": "cpu"}
    me = [sys.executable, os.path.abspath(__file__), "--threads", threads, "--worker"]
    ours = Offing(args.binary, args.threads)
    peers = {"torch": Peer([*me, "torch"], env), "jax": Peer([*me, "jax"], env)}
    # Runs per round: enough to be steady, short enough that a disturbance hits all alike. A prediction takes seconds.
    plan = {"sac": (40, args.rounds), "ensemble": (8, args.rounds), "forecast": (1, min(args.rounds, 3))}
    plan = {name: plan[name] for name in args.only.split(",")}
    times = {}
    if args.wait:
        print("ready to measure", flush=True)
        sys.stdin.readline()
    for peer in peers.values():
        for name in plan:
            if name != "forecast":
                peer.run(name, 3)
    for turn in range(args.rounds):
        for name, (runs, rounds) in plan.items():
            if turn >= rounds:
                continue
            for what, seconds in ours.run(name, runs).items():
                times.setdefault(("offing", what), []).extend(seconds)
            for who, peer in peers.items():
                times.setdefault((who, name), []).extend(peer.run(name, runs))
    report(times, ours, args)


def report(times, ours, args):
    median = {key: statistics.median(v) for key, v in times.items()}
    print(f"{args.threads} threads, {args.rounds} rounds, {ours.about['machine']}, commit {ours.about['commit']}", end="")
    print(f"; FMA peak {statistics.median(ours.peaks):.0f} GFLOP/s (median)\n" if ours.peaks else "\n")
    print("| median ms (best) | offing | PyTorch | JAX | PyTorch/offing | JAX/offing | share of the peak |")
    print("|---|---|---|---|---|---|---|")
    results = [
        {"name": f"{name}, {who}", "unit": "s", "median": median[(who, name)], "samples": v}
        for (who, name), v in times.items()
    ]
    for name in ("sac", "ensemble", "forecast", "step"):
        if ("offing", name) not in median:
            continue
        # One member per row replaces the prediction by all members that the peers need.
        theirs = "forecast" if name == "step" else name
        keys = [("offing", name), ("torch", theirs), ("jax", theirs)]
        o, t, j = (median[key] for key in keys)
        cells = [f"{median[key] * 1e3:.2f} ({min(times[key]) * 1e3:.2f})" for key in keys]
        share = statistics.median(ours.shares[name]) if name in ours.shares else None
        print(f"| {name} | {' | '.join(cells)} | {t / o:.2f} | {j / o:.2f} | {f'{share:.1%}' if share else ''} |")
        results += [
            {"name": f"{name}, PyTorch/offing", "unit": "ratio", "median": t / o, "samples": [t / o]},
            {"name": f"{name}, JAX/offing", "unit": "ratio", "median": j / o, "samples": [j / o]},
        ]
        if share:
            shares = ours.shares[name]
            results.append({"name": f"{name}, share of the peak", "unit": "ratio", "median": share, "samples": shares})
    if args.json:
        if ours.peaks:
            peak = statistics.median(ours.peaks)
            results.append({"name": "FMA peak", "unit": "GFLOP/s", "median": peak, "samples": ours.peaks})
        out = {"bench": "nn peers", **ours.about, "threads": args.threads, "results": results}
        with open(args.json, "w") as f:
            json.dump(out, f, indent=1)


if __name__ == "__main__":
    main()
