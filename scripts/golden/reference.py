"""Shared by td3bc.py and iql.py: networks, Adam and gradients in NumPy and f64, by the textbook and nothing else.

Gradients are central differences of the loss, so that no rule of differentiation is trusted on either side.
Generated with numpy 2.4.6, safetensors 0.8.0.
"""

import numpy as np


class Net:
    """A ReLU network: a list of weights and biases with Adam's moments and, if asked for, a target copy."""

    def __init__(self, rng, sizes, target):
        draw = lambda n, *shape: rng.uniform(-1, 1, shape) / np.sqrt(n)
        # Both sides start from the same f32 numbers.
        fresh = lambda: [
            w.astype(np.float32).astype(np.float64)
            for n, m in zip(sizes, sizes[1:])
            for w in (draw(n, m, n), draw(n, m))
        ]
        self.weights = fresh()
        self.first = [np.zeros_like(w) for w in self.weights]
        self.second = [np.zeros_like(w) for w in self.weights]
        self.target = fresh() if target else None
        self.steps = 0

    def __call__(self, x, target=False):
        weights = self.target if target else self.weights
        for i in range(0, len(weights), 2):
            x = x @ weights[i].T + weights[i + 1]
            if i + 2 < len(weights):
                x = np.maximum(x, 0)
        return x

    def save(self, out, name):
        fields = [("", self.weights), (".m", self.first), (".v", self.second)]
        fields += [(".target", self.target)] if self.target is not None else []
        for suffix, values in fields:
            for i, value in enumerate(values):
                out[f"{name}.{i // 2}.{('weight', 'bias')[i % 2]}{suffix}"] = value.astype(np.float32)


def gradient(loss, weights, step=1e-6):
    """∂loss()/∂weights by central differences; `loss` reads the weights where they are."""
    found = []
    for w in weights:
        g = np.zeros_like(w)
        for at in np.ndindex(w.shape):
            kept = w[at]
            w[at] = kept + step
            high = loss()
            w[at] = kept - step
            low = loss()
            w[at] = kept
            g[at] = (high - low) / (2 * step)
        found.append(g)
    return found


def adam(w, m, v, g, lr, t):
    """Kingma & Ba 2015, Algorithm 1, in place."""
    m += 0.1 * (g - m)
    v += 0.001 * (g * g - v)
    w -= lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


def descend(nets, loss, lr):
    """One step of Adam of some networks on a loss; returns the loss before it."""
    before = loss()
    gradients = [gradient(loss, net.weights) for net in nets]
    for net, gradient_of_net in zip(nets, gradients):
        net.steps += 1
        for w, m, v, g in zip(net.weights, net.first, net.second, gradient_of_net):
            adam(w, m, v, g, lr, net.steps)
    return before


def average(net, tau):
    for t, w in zip(net.target, net.weights):
        t += tau * (w - t)


def batch(rng, rows, obs, act):
    single = lambda x: x.astype(np.float32)
    return {
        "obs": single(rng.normal(size=(rows, obs))),
        "act": single(np.tanh(rng.normal(size=(rows, act)))),
        "rew": single(rng.normal(size=rows)),
        "next_obs": single(rng.normal(size=(rows, obs))),
        "done": single(rng.random(rows) < 0.3),
    }


def wide(tensors):
    return {name: value.astype(np.float64) for name, value in tensors.items()}


def prefixed(prefix, tensors):
    return {f"{prefix}.{name}": np.ascontiguousarray(value) for name, value in tensors.items()}
