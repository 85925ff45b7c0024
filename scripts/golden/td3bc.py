"""Four TD3+BC updates (Fujimoto & Gu 2021) in NumPy, for crates/offing/tests/golden_td3_iql.rs.

    python scripts/golden/td3bc.py crates/offing/tests/golden/td3bc.safetensors
"""

import sys

import numpy as np
from safetensors.numpy import save_file

from reference import Net, average, batch, descend, prefixed, wide

OBS, ACT, HIDDEN, BATCH, UPDATES = 5, 2, [12, 12], 16, 4
GAMMA, TAU, LR, ALPHA, DELAY, NOISE, CLIP = 0.99, 0.005, 3e-4, 2.5, 2, 0.2, 0.5


def main(path):
    rng = np.random.default_rng(0)
    # The second half of the actor's outputs stands for log σ in offing and is not used.
    actor = Net(rng, [OBS, *HIDDEN, 2 * ACT], target=True)
    # Far enough from 0 that the noise takes some target actions beyond 1.
    actor.target[-1] += 1
    critics = [Net(rng, [OBS + ACT, *HIDDEN, 1], target=True) for _ in range(2)]
    policy = lambda obs, target=False: np.tanh(actor(obs, target)[:, :ACT])
    q = lambda net, obs, act, target=False: net(np.concatenate([obs, act], 1), target)[:, 0]

    def state():
        out = {}
        actor.save(out, "actor.0")
        for j, critic in enumerate(critics):
            critic.save(out, f"critic.{j}")
        out["steps"] = np.array([actor.steps, critics[0].steps], dtype=np.uint64)
        return out

    saved = prefixed("before", state())
    for update in range(UPDATES):
        given = batch(rng, BATCH, OBS, ACT)
        # Some beyond the clip.
        given["eps"] = (2 * rng.normal(size=(BATCH, ACT))).astype(np.float32)
        saved |= prefixed(f"batch.{update}", given)
        b = wide(given)
        act = policy(b["next_obs"], target=True) + np.clip(NOISE * b["eps"], -CLIP, CLIP)
        smallest = np.minimum(*[q(c, b["next_obs"], np.clip(act, -1, 1), target=True) for c in critics])
        y = b["rew"] + GAMMA * (1 - b["done"]) * smallest
        error = lambda: sum(np.mean((q(c, b["obs"], b["act"]) - y) ** 2) for c in critics)
        losses = [descend(critics, error, LR) / 2]
        if (update + 1) % DELAY == 0:
            weight = ALPHA / np.mean(np.abs(q(critics[0], b["obs"], policy(b["obs"]))))

            def loss():
                pi = policy(b["obs"])
                return np.mean((pi - b["act"]) ** 2) - weight * np.mean(q(critics[0], b["obs"], pi))

            losses.append(descend([actor], loss, LR))
            for net in [actor, *critics]:
                average(net, TAU)
        saved[f"losses.{update}"] = np.array(losses)
        if update in (1, UPDATES - 1):
            saved |= prefixed(f"after.{update}", state())
    save_file(saved, path)


main(sys.argv[1])
