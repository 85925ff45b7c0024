"""PyTorch and d3rlpy, which are too large for every test run: `make peers` has them."""

import numpy as np
import pytest

import offing


def test_the_penalty_is_a_module_with_gradients(log):
    torch = pytest.importorskip("torch")
    from offing.compat.torch import SumoPenalty

    columns = [torch.from_numpy(log[key]) for key in ("observations", "actions", "next_observations", "rewards")]
    sumo = offing.Sumo(*columns)
    penalty = SumoPenalty(sumo, lam=2.0)
    obs, act, after, rew = (x[:50].clone() for x in columns)
    after = after + 0.7
    with torch.no_grad():
        found = penalty(obs, act, after, rew[:, None])
    u = sumo(obs, act, after)
    np.testing.assert_allclose(found[:, 0].numpy(), sumo.penalty(rew, u, lam=2.0), rtol=1e-4, atol=1e-5)
    assert "cost" in penalty.state_dict() and penalty.to(torch.float64).cost.dtype == torch.float64
    # The gradient of u is that of finite differences.
    moved = after.clone().requires_grad_()
    penalty.score(obs, act, moved).sum().backward()
    step = 1e-2
    for column in range(4):
        sides = []
        for sign in (1, -1):
            other = after.clone()
            other[:, column] += sign * step
            sides.append(sumo(obs, act, other))
        slope = (sides[0] - sides[1]) / (2 * step)
        # Where the nearest row changes in between, u has an edge.
        assert np.median(np.abs(slope - moved.grad[:, column].numpy())) < 1e-2


def test_a_torch_function_is_an_estimator(log, train):
    torch = pytest.importorskip("torch")
    net = torch.nn.Linear(4, 1)

    def estimator(obs, act, next_obs):
        assert not torch.is_grad_enabled(), "the caller's own state is in force"
        return net(torch.from_numpy(next_obs)).abs().squeeze(1)

    with torch.no_grad():
        assert train("mopo", steps=40, estimator=estimator).finished


def test_d3rlpy_gives_data_and_takes_a_policy(log, tmp_path):
    d3rlpy = pytest.importorskip("d3rlpy")
    from d3rlpy.metrics import evaluate_qlearning_with_environment

    from offing.compat.d3rlpy import D3RLPolicy
    from offing.gym import SimEnv

    dataset = d3rlpy.dataset.MDPDataset(log.observations, log.actions, log.rewards, log.terminals, log.timeouts)
    run = offing.train("bc", dataset, dir=tmp_path / "run", steps=500, evaluate_every=500, progress=False)
    direct = offing.Dataset(
        log.observations, log.actions, log.rewards, terminals=log.terminals, timeouts=log.timeouts, name="mdp-dataset"
    )
    assert run.config["data"] == offing.train("bc", direct, dir=tmp_path / "direct", steps=10, progress=False).config["data"]
    score = evaluate_qlearning_with_environment(D3RLPolicy(run.policy), SimEnv("point-mass"), n_trials=5)
    ours = offing.evaluate(run.policy, lambda: SimEnv("point-mass"), episodes=20).mean
    assert abs(score - ours) < 30 and np.isfinite(score)
