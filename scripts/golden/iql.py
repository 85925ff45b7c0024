"""Three updates of implicit Q-learning (Kostrikov et al. 2021) in NumPy, for crates/offing/tests/golden_td3_iql.rs.

    python scripts/golden/iql.py crates/offing/tests/golden/iql.safetensors
"""

import sys

import numpy as np
from safetensors.numpy import save_file

from reference import Net, adam, average, batch, descend, gradient, prefixed, wide

OBS, ACT, HIDDEN, BATCH, UPDATES, RUN = 5, 2, [12, 12], 16, 3, 10
# The paper's largest weight is 100, which fresh networks never reach.
GAMMA, TAU, LR, EXPECTILE, BETA, LARGEST = 0.99, 0.005, 3e-4, 0.7, 3.0, 1.5


def main(path):
    rng = np.random.default_rng(1)
    # The second half of the actor's outputs stands for log σ in offing; here, as in the paper's code, log σ has no input.
    actor = Net(rng, [OBS, *HIDDEN, 2 * ACT], target=False)
    log_std, first, second = np.full(ACT, -0.5), np.zeros(ACT), np.zeros(ACT)
    critics = [Net(rng, [OBS + ACT, *HIDDEN, 1], target=True) for _ in range(2)]
    value = Net(rng, [OBS, *HIDDEN, 1], target=False)
    q = lambda net, b, target=False: net(np.concatenate([b["obs"], b["act"]], 1), target)[:, 0]

    def state():
        out = {}
        actor.save(out, "actor.0")
        for j, critic in enumerate(critics):
            critic.save(out, f"critic.{j}")
        value.save(out, "value.0")
        out["log_std"] = np.stack([log_std, first, second], 1).reshape(-1)
        out["steps"] = np.array([value.steps], dtype=np.uint64)
        return out

    saved = prefixed("before", state())
    for update in range(UPDATES):
        given = batch(rng, BATCH, OBS, ACT)
        saved |= prefixed(f"batch.{update}", given)
        b = wide(given)
        target = np.minimum(*[q(c, b, target=True) for c in critics])

        def expectile_loss():
            u = target - value(b["obs"])[:, 0]
            return np.mean(np.abs(EXPECTILE - (u < 0)) * u**2)

        losses = [descend([value], expectile_loss, LR)]
        v = value(b["obs"])[:, 0]
        weight = np.minimum(np.exp(BETA * (target - v)), LARGEST)

        def weighted_regression():
            mean, std = np.tanh(actor(b["obs"])[:, :ACT]), np.exp(np.clip(log_std, -5, 2))
            density = -0.5 * ((b["act"] - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
            return -np.mean(weight * density.sum(1))

        # The cosine of a run of RUN updates.
        rate = LR * 0.5 * (1 + np.cos(np.pi * update / RUN))
        of_log_std = gradient(weighted_regression, [log_std])[0]
        losses.append(descend([actor], weighted_regression, rate))
        adam(log_std, first, second, of_log_std, rate, actor.steps)
        y = b["rew"] + GAMMA * (1 - b["done"]) * value(b["next_obs"])[:, 0]
        error = lambda: sum(np.mean((q(c, b) - y) ** 2) for c in critics)
        losses.append(descend(critics, error, LR) / 2)
        for critic in critics:
            average(critic, TAU)
        saved[f"losses.{update}"] = np.array([*losses, np.mean(v), np.mean(weight)])
        if update in (0, UPDATES - 1):
            saved |= prefixed(f"after.{update}", state())
    save_file(saved, path)


main(sys.argv[1])
