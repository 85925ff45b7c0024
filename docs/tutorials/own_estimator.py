# %% [markdown]
# # An estimator of your own: checked, calibrated, used
# An estimator says how far a step of the learnt model can be trusted. Here is one that offing does not have: the mean distance to
# the five nearest logged steps, in standardised columns. It takes 15 lines; search, model, training and study stay in Rust.
# %%
import os

import numpy as np

import offing
from offing.gym import SimEnv

small = os.environ.get("OFFING_TUTORIAL") == "small"
data = offing.make_dataset("hopper-medium-replay", rows=5_000 if small else 50_000)


# %% [markdown]
# `score` gives one number a row, larger where a step is less trustworthy. `max_loo` is the largest score of the data's own rows,
# each without help from itself: it sets the scale of penalties (Eq. 6) and of thresholds (Eq. 7).
# %%
class MeanDistance:
    def __init__(self, data, k=5):
        steps = np.hstack([data.observations, data.actions, data.next_observations])
        self.center, self.scale, self.k = steps.mean(axis=0), steps.std(axis=0) + 1e-6, k
        self.index = offing.Index((steps - self.center) / self.scale)

    def score(self, obs, act, next_obs):
        steps = (np.hstack([obs, act, next_obs]) - self.center) / self.scale
        return self.index.search(steps, self.k)[0].mean(axis=1)

    def max_loo(self):
        return self.index.search_self(self.k)[0].mean(axis=1).max()


mine = MeanDistance(data)

# %% [markdown]
# Does it keep an estimator's promises? The first one broken would be named: scores that depend on other rows, say.
# %%
offing.check_estimator(mine, data)

# %% [markdown]
# Does it know where the model is wrong? The study trains a policy in a learnt model, replays every imagined step in the
# simulator, and correlates each estimator's score with the true error.
# %%
sizes = {
    "model": {"ensemble": {"hidden": [64, 64], "decay": [0, 0, 0], "max_updates": 500 if small else 5000}},
    "sac": {"hidden": [64, 64]},
    "rollout": {"starts": 500},
}
found = offing.calibrate(
    data, estimators={"mean-distance": mine, "sumo": "sumo", "pairwise": "pairwise"}, seeds=1,
    starts=20 if small else 100, length=20 if small else 50, train={"steps": 200 if small else 10_000}, **sizes,
)  # fmt: skip
for finding in found["studies"][0]["findings"]:
    print({key: value for key, value in finding.items() if not isinstance(value, (list, dict))})

# %% [markdown]
# Then MOPO learns with it. The same arguments work for `amorel`, `morel` and, with a method `quantile`, for `landfall`.
# %%
run = offing.train("mopo", data, estimator=mine, env=lambda: SimEnv("hopper"), steps=200 if small else 20_000,
                   evaluate_every=200 if small else 5000, episodes=3, **sizes)  # fmt: skip
print(run, run.metrics["return"])
