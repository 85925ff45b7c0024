"""One step of Landfall's actor through an unrolled model, and one of its critics, in PyTorch, for
crates/offing/src/algorithms/landfall/tests.rs.

The model has layer normalisation and SiLU, the critics layer normalisation and ReLU; the actor's loss is the λ-return of
trajectories in the model, less a penalty on SUMO's score (k = 1, standardised columns) above the data's median, plus the
weighted distance from logged actions.

    python scripts/golden/landfall.py crates/offing/tests/golden/landfall.safetensors
"""

import copy
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from common import Normalised, mlp, prefixed, save_net

OBS, ACT, HIDDEN, WIDE, BATCH, CRITICS, MEMBERS, ROWS, STEPS = 5, 2, [32, 20], [24, 18], 16, 3, 2, 60, 4
GAMMA, LAMBDA, TAU, LR, ANCHOR, PENALTY, QUANTILE, REWARD_SCALE = 0.99, 0.9, 0.005, 3e-4, 0.4, 0.5, 0.5, 0.1


def main(path):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    actor = mlp([OBS, *HIDDEN, 2 * ACT], nn.ReLU)
    critics = [Normalised([OBS + ACT, *HIDDEN, 1], torch.relu) for _ in range(CRITICS)]
    targets = copy.deepcopy(critics)
    for target in targets:
        for p in target.parameters():
            p.data += 0.01 * torch.randn_like(p)
    members = [Normalised([OBS + ACT, *WIDE, 2 * (OBS + 1)], F.silu) for _ in range(MEMBERS)]
    for member in members:
        # Steps long enough that some leave the data.
        member.layers[-1].weight.data *= 4
    actor_opt = torch.optim.Adam(actor.parameters(), lr=LR)
    critic_opt = torch.optim.Adam([p for c in critics for p in c.parameters()], lr=LR)

    def state(steps):
        out = {}
        save_net(out, "actor.0", actor, actor_opt)
        for j, (c, t) in enumerate(zip(critics, targets)):
            save_net(out, f"critic.{j}", c, critic_opt, t)
        out["log_alpha"] = torch.zeros(3, dtype=torch.float64)
        out["steps"] = torch.tensor([*steps, 0], dtype=torch.uint64)
        return out

    saved = prefixed("before", state([0, 0]))
    model = {}
    for m, member in enumerate(members):
        for l, layer in enumerate(member):
            model[f"model.{m}.{l}.weight"], model[f"model.{m}.{l}.bias"] = layer.weight.data, layer.bias.data
    mean, inverse = 0.3 * torch.randn(OBS + ACT), 1 + torch.rand(OBS + ACT)
    model |= {"scaler.mean": mean, "scaler.inverse": inverse}
    model["max_log_var"] = torch.full((OBS + 1,), 0.5, dtype=torch.float64)
    model["min_log_var"] = torch.full((OBS + 1,), -10.0, dtype=torch.float64)
    model["elites"] = torch.arange(MEMBERS, dtype=torch.int64).to(torch.uint64)
    model["holdout"] = torch.zeros(MEMBERS, dtype=torch.float64)
    model["silu"], model["layer_norm"] = (torch.tensor([1], dtype=torch.uint64) for _ in range(2))
    saved |= prefixed("model", {k: v.clone() for k, v in model.items()})

    data_obs, data_next = 2 * torch.randn(ROWS, OBS) + 1, 2 * torch.randn(ROWS, OBS) + 1
    data_act, data_rew = torch.tanh(torch.randn(ROWS, ACT)), 3 * torch.randn(ROWS)
    saved |= prefixed("data", dict(obs=data_obs, act=data_act, next_obs=data_next, rew=data_rew))
    rows = torch.arange(BATCH)
    obs, act, next_obs = data_obs[rows], data_act[rows], data_next[rows]
    done, weight = torch.rand(BATCH) < 0.3, 2 * torch.rand(BATCH)
    # One step of each trajectory is looked at, and stands for all.
    looked_at = torch.randint(STEPS, (BATCH,))
    saved |= prefixed("batch", dict(done=done.float(), weight=weight, looked_at=looked_at.float()))

    # SUMO over standardised columns, its level and its largest score: each row without itself.
    points = torch.cat([data_obs, data_act, data_next], -1)
    centre, spread = points.mean(0), points.std(0, unbiased=False)
    points = (points - centre) / spread
    own = torch.log1p(torch.cdist(points.double(), points.double()).fill_diagonal_(torch.inf).min(1).values).float()
    level, largest = own.sort().values[int(ROWS * QUANTILE)], own.max()
    slope = PENALTY * (data_rew.max() - data_rew.min()) / (largest - level)

    def alive(s):
        return s[:, 0] < 2.5

    def step(s, a):
        out = torch.empty(BATCH, OBS + 1)
        half = BATCH // MEMBERS
        blocks = []
        for m, member in enumerate(members):
            block = slice(m * half, (m + 1) * half)
            x = (torch.cat([s[block], a[block]], -1) - mean) * inverse
            blocks.append(member(x)[:, : OBS + 1])
        out = torch.cat(blocks)
        return s + out[:, :OBS], out[:, OBS]

    s, states, actions, rewards, goes_on, believed = next_obs, [next_obs], [], [], [], []
    for t in range(STEPS):
        a = torch.tanh(actor(s)[:, :ACT])
        after, r = step(s, a)
        x = (torch.cat([s, a, after], -1) - centre) / spread
        nearest = torch.cdist(x.detach(), points).argmin(1)
        u = torch.log1p((x - points[nearest]).norm(dim=-1))
        seen = looked_at == t
        rewards.append((r - STEPS * seen * slope * torch.relu(u - level)) * REWARD_SCALE)
        believed.append((u <= largest) | ~seen)
        goes_on.append(alive(after))
        actions.append(a)
        states.append(after)
        s = after
    actions.append(torch.tanh(actor(s)[:, :ACT]))
    q = [
        torch.stack([t(torch.cat([s, a], -1)).squeeze(-1) for t in targets]).min(0).values
        for s, a in zip(states, actions)
    ]
    y, returns = q[STEPS], []
    for t in reversed(range(STEPS)):
        after = rewards[t] + GAMMA * goes_on[t] * ((1 - LAMBDA) * q[t + 1] + LAMBDA * y)
        y = torch.where(believed[t], after, q[t])
        returns.insert(0, y)
    saved["returns"] = torch.stack(returns).detach()
    kinds = (torch.stack(believed).float().mean(), torch.stack(goes_on).float().mean())
    assert all(0.2 < share < 0.99 for share in kinds), f"a step of each kind is wanted, found {kinds}"

    pi = torch.tanh(actor(obs)[:, :ACT])
    anchor = (weight[:, None] * (pi - act) ** 2).mean()
    loss = ANCHOR * anchor - (y * ~done).mean() / y.abs().mean().detach()
    actor_opt.zero_grad()
    loss.backward()
    actor_opt.step()

    goal = saved["returns"][0]
    losses = [F.huber_loss(c(torch.cat([obs, act], -1)).squeeze(-1), goal, reduction="none") for c in critics]
    critic_opt.zero_grad()
    sum((weight * loss).mean() for loss in losses).backward()
    critic_opt.step()
    saved["critic_loss"] = sum((weight * loss).mean().detach() for loss in losses).reshape(1)
    with torch.no_grad():
        for c, t in zip(critics, targets):
            for p, tp in zip(c.parameters(), t.parameters()):
                tp.mul_(1 - TAU).add_(TAU * p)
    saved |= prefixed("after", state([1, 1]))
    save_file(saved, path)


main(sys.argv[1])
