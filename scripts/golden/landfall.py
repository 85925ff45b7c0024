"""One step of Landfall's critics and of its actor in PyTorch, for crates/offing/src/algorithms/landfall_tests.rs.

Critics have layer normalisation (without gain and bias) and a Huber loss towards the smaller of two targets; the actor
follows the mean of the critics and stays near given actions.

    python scripts/golden/landfall.py crates/offing/tests/golden/landfall.safetensors
"""

import copy
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from common import mlp, prefixed, save_net

OBS, ACT, HIDDEN, BATCH, CRITICS = 7, 3, [32, 20], 16, 3
GAMMA, TAU, LR, WEIGHT, LOG_STD = 0.99, 0.005, 3e-4, 2.5, -1.6


class Critic(nn.Module):
    """Linear, normalisation, ReLU; the linear layers have the names that `save_net` looks for."""

    def __init__(self):
        super().__init__()
        sizes = [OBS + ACT, *HIDDEN, 1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x):
        *hidden, last = self.layers
        for layer in hidden:
            z = layer(x)
            x = torch.relu(F.layer_norm(z, z.shape[-1:]))
        return last(x).squeeze(-1)

    def __iter__(self):
        return iter(self.layers)


def main(path):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    actor = mlp([OBS, *HIDDEN, 2 * ACT], nn.ReLU)
    critics = [Critic() for _ in range(CRITICS)]
    targets = copy.deepcopy(critics)
    for target in targets:
        for p in target.parameters():
            p.data += 0.01 * torch.randn_like(p)
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
    obs, next_obs = torch.randn(BATCH, OBS), torch.randn(BATCH, OBS)
    act, nearest = torch.tanh(torch.randn(BATCH, ACT)), torch.tanh(torch.randn(BATCH, ACT))
    rew, done = 3 * torch.randn(BATCH), (torch.rand(BATCH) < 0.3).float()
    eps = torch.randn(BATCH, ACT)
    saved |= prefixed(
        "batch", dict(obs=obs, act=act, rew=rew, next_obs=next_obs, done=done, eps=eps, nearest=nearest)
    )
    with torch.no_grad():
        mu = actor(next_obs).chunk(2, dim=-1)[0]
        a = torch.tanh(mu + torch.exp(torch.tensor(LOG_STD)) * eps)
        q = torch.stack([t(torch.cat([next_obs, a], -1)) for t in targets])
        y = rew + GAMMA * (1 - done) * q.min(0).values
    losses = [F.huber_loss(c(torch.cat([obs, act], -1)), y) for c in critics]
    critic_opt.zero_grad()
    sum(losses).backward()
    critic_opt.step()
    with torch.no_grad():
        for c, t in zip(critics, targets):
            for p, tp in zip(c.parameters(), t.parameters()):
                tp.mul_(1 - TAU).add_(TAU * p)

    pi = torch.tanh(actor(obs).chunk(2, dim=-1)[0])
    q = torch.stack([c(torch.cat([obs, pi], -1)) for c in critics]).mean(0)
    loss = F.mse_loss(pi, nearest) - WEIGHT * q.mean() / q.abs().mean().detach()
    actor_opt.zero_grad()
    loss.backward()
    actor_opt.step()
    saved["losses"] = torch.tensor([sum(losses).item() / CRITICS, loss.item()])
    saved |= prefixed("after", state([1, 1]))
    save_file(saved, path)


main(sys.argv[1])
