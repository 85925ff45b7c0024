"""Three SAC updates in PyTorch (autograd, torch.optim.Adam), for crates/offing/tests/golden_sac.rs. The second file's networks
are normalised, and its critics' loss is a weighted sum of two means: over the first rows and over the others.

    python scripts/golden/sac.py crates/offing/tests/golden/sac.safetensors crates/offing/tests/golden/sac_normalised.safetensors
"""

import copy
import math
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from common import Normalised, mlp, prefixed, save_net

OBS, ACT, HIDDEN, BATCH, UPDATES = 7, 3, [32, 32], 16, 3
GAMMA, TAU, LR, ENTROPY = 0.99, 0.005, 3e-4, -float(ACT)
# Of the second file: widths that fill no vector register, rows of the first mean, and its weight.
NARROW, LOGGED, WEIGHT = [24, 18], 5, 0.7


def sample(actor, obs, eps):
    mu, log_std = actor(obs).chunk(2, dim=-1)
    log_std = log_std.clamp(-5, 2)
    z = mu + log_std.exp() * eps
    # The exact form of ln(1 - tanh(z)^2), as in crates/offing/src/nn.
    jacobian = 2 * (math.log(2) - z - F.softplus(-2 * z))
    log_prob = -0.5 * eps**2 - log_std - 0.5 * math.log(2 * math.pi) - jacobian
    return torch.tanh(z), log_prob.sum(-1)


def main(path, normalised):
    torch.manual_seed(0)
    torch.set_num_threads(1)

    def net(inputs, outputs):
        if normalised:
            return Normalised([inputs, *NARROW, outputs], torch.relu)
        return mlp([inputs, *HIDDEN, outputs], nn.ReLU)

    actor = net(OBS, 2 * ACT)
    critics = [net(OBS + ACT, 1) for _ in range(2)]
    targets = copy.deepcopy(critics)
    log_alpha = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    actor_opt = torch.optim.Adam(actor.parameters(), lr=LR)
    critic_opt = torch.optim.Adam([p for c in critics for p in c.parameters()], lr=LR)
    alpha_opt = torch.optim.Adam([log_alpha], lr=LR)

    def state(steps):
        out = {}
        save_net(out, "actor.0", actor, actor_opt)
        for j, (c, t) in enumerate(zip(critics, targets)):
            save_net(out, f"critic.{j}", c, critic_opt, t)
        s = alpha_opt.state.get(log_alpha, {})
        zero = torch.zeros(1, dtype=torch.float64)
        moments = [s.get("exp_avg", zero), s.get("exp_avg_sq", zero)]
        out["log_alpha"] = torch.cat([log_alpha.detach(), *moments]).clone()
        out["steps"] = torch.tensor([steps] * 3, dtype=torch.uint64)
        return out

    saved = prefixed("before", state(0))
    for update in range(UPDATES):
        obs, next_obs = torch.randn(BATCH, OBS), torch.randn(BATCH, OBS)
        act = torch.tanh(torch.randn(BATCH, ACT))
        rew, done = torch.randn(BATCH), (torch.rand(BATCH) < 0.3).float()
        eps_next, eps = torch.randn(BATCH, ACT), torch.randn(BATCH, ACT)
        saved |= prefixed(
            f"batch.{update}",
            dict(obs=obs, act=act, rew=rew, next_obs=next_obs, done=done, eps_next=eps_next, eps=eps),
        )
        alpha = log_alpha.detach().exp().float()
        with torch.no_grad():
            a, log_prob = sample(actor, next_obs, eps_next)
            q = torch.min(*[t(torch.cat([next_obs, a], -1)).squeeze(-1) for t in targets])
            y = rew + GAMMA * (1 - done) * (q - alpha * log_prob)
        values = [c(torch.cat([obs, act], -1)).squeeze(-1) for c in critics]
        if normalised:
            parts = [(slice(LOGGED), WEIGHT), (slice(LOGGED, None), 1 - WEIGHT)]
            critic_loss = sum(w * F.mse_loss(q[rows], y[rows]) for q in values for rows, w in parts)
        else:
            critic_loss = sum(F.mse_loss(q, y) for q in values)
        critic_opt.zero_grad()
        critic_loss.backward()
        critic_opt.step()

        a, log_prob = sample(actor, obs, eps)
        q = torch.min(*[c(torch.cat([obs, a], -1)).squeeze(-1) for c in critics])
        actor_loss = (alpha * log_prob - q).mean()
        actor_opt.zero_grad()
        actor_loss.backward()
        actor_opt.step()

        alpha_loss = -(log_alpha * (log_prob.detach().double() + ENTROPY)).mean()
        alpha_opt.zero_grad()
        alpha_loss.backward()
        alpha_opt.step()

        with torch.no_grad():
            for c, t in zip(critics, targets):
                for p, tp in zip(c.parameters(), t.parameters()):
                    tp.mul_(1 - TAU).add_(TAU * p)
        saved[f"losses.{update}"] = torch.tensor([critic_loss.item() / 2, actor_loss.item()])
        if update in (0, UPDATES - 1):
            saved |= prefixed(f"after.{update + 1}", state(update + 1))
    save_file(saved, path)


main(sys.argv[1], normalised=False)
main(sys.argv[2], normalised=True)
