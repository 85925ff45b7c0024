"""Shared by the golden scripts: names of tensors as offing writes them. Generated with torch 2.15.0, safetensors 0.8.0."""

import torch
import torch.nn.functional as F
from torch import nn


def mlp(sizes, activation):
    """A plain PyTorch MLP with a linear output."""
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(nn.Linear(sizes[i], sizes[i + 1]))
        if i + 2 < len(sizes):
            layers.append(activation())
    return nn.Sequential(*layers)


class Normalised(nn.Module):
    """Linear, normalisation, activation; the linear layers have the names that `save_net` looks for."""

    def __init__(self, sizes, activation):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.activation = activation

    def forward(self, x):
        *hidden, last = self.layers
        for layer in hidden:
            z = layer(x)
            x = self.activation(F.layer_norm(z, z.shape[-1:]))
        return last(x)

    def __iter__(self):
        return iter(self.layers)


def linears(net):
    return [m for m in net if isinstance(m, nn.Linear)]


def save_net(out, name, net, optimiser=None, target=None):
    """Weights, moments and target of one network as `<name>.<layer>.weight[.m|.v|.target]`."""
    others = linears(target) if target is not None else None
    for i, layer in enumerate(linears(net)):
        for what in ("weight", "bias"):
            p = getattr(layer, what)
            out[f"{name}.{i}.{what}"] = p.detach().clone()
            if optimiser is not None:
                s = optimiser.state.get(p, {})
                out[f"{name}.{i}.{what}.m"] = s.get("exp_avg", torch.zeros_like(p)).detach().clone()
                out[f"{name}.{i}.{what}.v"] = s.get("exp_avg_sq", torch.zeros_like(p)).detach().clone()
            if others is not None:
                out[f"{name}.{i}.{what}.target"] = getattr(others[i], what).detach().clone()


def prefixed(prefix, tensors):
    return {f"{prefix}.{k}": v.contiguous() for k, v in tensors.items()}
