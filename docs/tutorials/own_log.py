# %% [markdown]
# # From a log in its own units to a policy
# Kelvin, pascal, kilowatt: nothing is scaled by hand, going in or coming out. The tank should be at 325 K; its valve trips at 1.1 bar.
# %%
import os

import gymnasium
import numpy as np

import offing


class Tank(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(np.float32([200, 5e4]), np.float32([500, 2e5]))
    action_space = gymnasium.spaces.Box(0, 40, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.minute, self.state = 0, np.array([293, 1e5]) + [3, 300] * self.np_random.normal(size=2)
        return self.state.astype(np.float32), {}

    def step(self, action):
        warm, push = self.state
        warm += 0.15 * float(action[0]) - 0.06 * (warm - 288) + 0.1 * self.np_random.normal()
        push += 0.4 * (1e5 + 220 * (warm - 293) - push) + 50 * self.np_random.normal()
        self.minute, self.state, tripped = self.minute + 1, np.array([warm, push]), bool(push > 1.1e5)
        return self.state.astype(np.float32), 2 - abs(warm - 325) / 20 - 10 * tripped, tripped, self.minute >= 60, {}


# %% The log: 80 shifts of an operator who heats too little, and not the same every time.
rng, env, log = np.random.default_rng(0), Tank(), []


def operator(obs):
    return np.clip([12 + 0.5 * (312 - obs[0]) + 10 * rng.normal()], 0, 40)


for shift in range(80):
    obs, over = env.reset(seed=shift)[0], False
    while not over:
        action = operator(obs)
        after, reward, tripped, late, _ = env.step(action)
        log.append((obs, action, reward, after, tripped, late and not tripped))
        obs, over = after, tripped or late
data = offing.Dataset(*map(np.array, zip(*log)), name="tank")

# %% Training: when imagined shifts end is a function in pascal, and policies are scored in the tank itself.
small = os.environ.get("OFFING_TUTORIAL") == "small"
budget = dict(steps=600, warm_start={"steps": 300}) if small else dict(steps=1500, warm_start={"steps": 500})
networks = dict(sac={"hidden": [64, 64]}, model={"ensemble": {"hidden": [64, 64], "decay": [0, 0, 0], "max_updates": 2000}})
for seed in range(1 if small else 3):
    run = offing.train(
        "landfall", data, env=Tank, termination=lambda obs, act, next_obs: next_obs[:, 1] > 1.1e5, seed=seed,
        profile="quick", evaluate_every=500, **{"train.action_range": {"low": [0], "high": [40]}}, **budget, **networks,
    )
    learnt, logged = (offing.evaluate(who, Tank, episodes=50, seed=7) for who in (run.policy, operator))
    print(f"seed {seed}: operator {logged.mean:.1f}, learnt {learnt.mean:.1f}, trips {(learnt.lengths < 60).sum()} of 50")
    assert learnt.mean > logged.mean and (learnt.lengths == 60).all()
