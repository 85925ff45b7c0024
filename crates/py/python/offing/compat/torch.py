"""PyTorch: SUMO's score as a function that gradients flow through, and its penalty as a module."""

from __future__ import annotations

from typing import Any

import torch

from offing.uncertainty import Sumo


class _Score(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(ctx: Any, sumo: Sumo, obs: torch.Tensor, act: torch.Tensor, next_obs: torch.Tensor) -> torch.Tensor:
        arrays = [x.detach().cpu().numpy() for x in (obs, act, next_obs)]
        if not any(x.requires_grad for x in (obs, act, next_obs)):
            return torch.from_numpy(sumo(*arrays)).to(obs)
        u, *slopes = sumo.gradient(*arrays)
        ctx.save_for_backward(*(torch.from_numpy(slope).to(obs) for slope in slopes))
        return torch.from_numpy(u).to(obs)

    @staticmethod
    def backward(ctx: Any, *outputs: torch.Tensor) -> Any:
        slopes = [slope * outputs[0].unsqueeze(1) for slope in ctx.saved_tensors] or [None] * 3
        return None, *slopes


class SumoPenalty(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """Rewards of imagined steps less λ·û (Eq. 6): one line in a MOPO loop.

    >>> penalty = SumoPenalty(Sumo(*(data[key] for key in ("observations", "actions", "next_observations", "rewards"))), lam=1.0)
    >>> s, a = torch.zeros(5, 4), torch.zeros(5, 2)
    >>> penalty(s, a, s + 1, torch.ones(5, 1)).shape          # rewards keep their shape
    torch.Size([5, 1])

    ``score`` is u alone; its gradient points away from the nearest logged transition, so a policy can be trained through it. Tensors may
    be on any device: the search runs on the CPU.
    """

    cost: torch.Tensor
    """What one unit of u costs."""

    def __init__(self, sumo: Sumo, lam: float = 1.0, reward_range: float | None = None) -> None:
        super().__init__()
        self.sumo, self.lam = sumo, lam
        # What one unit of u costs: Eq. 6 is linear in u.
        costs = sumo.penalty([0.0], [1.0], 1.0, reward_range)
        self.register_buffer("cost", torch.tensor(-float(costs[0])))

    def score(self, obs: torch.Tensor, act: torch.Tensor, next_obs: torch.Tensor) -> torch.Tensor:
        """u of each row (Eq. 4)."""
        found: torch.Tensor = _Score.apply(self.sumo, obs, act, next_obs)  # type: ignore[no-untyped-call, unused-ignore]
        return found

    def forward(
        self, obs: torch.Tensor, act: torch.Tensor, next_obs: torch.Tensor, rewards: torch.Tensor
    ) -> torch.Tensor:
        """The rewards less their penalties, in the shape of the rewards."""
        u = self.score(obs, act, next_obs).to(rewards)
        return rewards - self.lam * self.cost.to(rewards) * u.reshape(rewards.shape)
