# %% [markdown]
# # SUMO inside somebody's PyTorch code
# The penalty of a MOPO rollout, and what max-aleatoric would have said. It needs offing and torch. First it generates a hopper
# dataset of 20,000 steps in the simulator (a few seconds). The model is deliberately small, written as MOPO-like code bases such as
# OfflineRL-Kit write theirs; it knows nothing of offing.

# %% Logged data: any arrays will do; here the simulator records them.
import numpy as np
import torch

import offing
from offing.compat.torch import SumoPenalty
from offing.gym import SimEnv

torch.manual_seed(0)
torch.set_num_threads(2)
data = offing.make_dataset("hopper-medium-replay", rows=20_000)
obs, act, nxt, rew = (torch.from_numpy(data[k]) for k in ("observations", "actions", "next_observations", "rewards"))


# %% A probabilistic ensemble: each member predicts mean and log-variance of (s' − s, r).
class Ensemble(torch.nn.Module):
    def __init__(self, members=5, hidden=128):
        super().__init__()
        self.center, self.scale = torch.cat([obs, act], 1).mean(0), torch.cat([obs, act], 1).std(0) + 1e-6
        out, into = obs.shape[1] + 1, obs.shape[1] + act.shape[1]
        sizes = [into, hidden, hidden, 2 * out]
        self.members = torch.nn.ModuleList(
            torch.nn.Sequential(
                *(layer for a, b in zip(sizes[:-2], sizes[1:-1]) for layer in (torch.nn.Linear(a, b), torch.nn.SiLU())),
                torch.nn.Linear(*sizes[-2:]),
            )
            for _ in range(members)
        )

    def forward(self, s, a):
        x = (torch.cat([s, a], 1) - self.center) / self.scale
        mean, log_var = torch.stack([m(x) for m in self.members]).chunk(2, dim=-1)
        return mean, log_var.clamp(-10, 0.5)


model = Ensemble()
optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
target = torch.cat([nxt - obs, rew[:, None]], 1)
for step in range(1000):
    rows = torch.randint(len(obs), (256,))
    mean, log_var = model(obs[rows], act[rows])
    loss = ((mean - target[rows]) ** 2 * (-log_var).exp() + log_var).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

# %% MOPO's rollout with SUMO's penalty (Eq. 6). This is the part to copy: three lines of it are offing's.
sumo = offing.Sumo(obs, act, nxt, rew)  # 1. index the data once
penalty = SumoPenalty(sumo, lam=1.0)


@torch.no_grad()
def rollout(policy, s, length=5):
    steps = []
    for _ in range(length):
        a = policy(s)
        mean, log_var = model(s, a)
        one = torch.randint(len(model.members), (len(s),)), torch.arange(len(s))  # a member for each row
        found = mean[one] + torch.randn_like(mean[0]) * (0.5 * log_var[one]).exp()
        s2, r = s + found[:, :-1], found[:, -1]
        u = penalty.score(s, a, s2)  # 2. how far is this step from everything logged?
        penalised = penalty(s, a, s2, r)  # 3. r − λ·û
        aleatoric = (0.5 * log_var).exp().norm(dim=-1).amax(0)  # what MOPO would have used
        steps.append((s, a, penalised, s2, u, aleatoric))
        s = s2
    return [torch.cat(column) for column in zip(*steps)]


def policy(s):
    """Not a policy that produced the data: that is when uncertainty matters."""
    return torch.tanh(s[:, :3] + 0.5 * torch.randn(len(s), 3))


s, a, penalised, s2, u, aleatoric = rollout(policy, obs[torch.randint(len(obs), (500,))])


# %% Which of the two knew where the model was wrong? Replay every imagined (s, a) in the real simulator.
def true_next(s, a):
    env, out = SimEnv("hopper"), []
    env.reset(seed=0)
    for state, action in zip(s.numpy(), a.numpy()):
        try:
            env.resume_from(state)
            out.append(env.step(action)[0])
        except ValueError:  # No body has such a state.
            out.append(np.full(s.shape[1], np.nan))
    return np.stack(out)


def ranks(x):
    return np.argsort(np.argsort(x)).astype(float)


error = np.linalg.norm(s2.numpy() - true_next(s, a), axis=1)
known = np.isfinite(error)
spearman = {
    name: float(np.corrcoef(ranks(score.numpy()[known]), ranks(error[known]))[0, 1])
    for name, score in (("SUMO", u), ("max-aleatoric", aleatoric))
}
for name, rho in spearman.items():
    print(f"{name:15s} Spearman's rho with the true error over {known.sum():,} imagined steps: {rho:.2f}")

# %% The least supported step, and the logged rows nearest to it.
worst = int(u.argmax())
_, distances, rows = sumo.support(s[worst : worst + 1], a[worst : worst + 1], s2[worst : worst + 1], rows=3)
print(f"least supported: u = {u[worst]:.2f}; nearest logged rows {rows[0].tolist()} at {distances[0].round(2).tolist()}")
