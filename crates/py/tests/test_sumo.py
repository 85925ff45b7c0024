"""offing.Sumo against its formula."""

import numpy as np
import pytest

import offing


def test_it_says_what_it_is(data):
    assert repr(offing.Sumo(*data, k=2)) == "Sumo(600 transitions, k=2, vector=s+a+s', metric=euclidean, columns=raw)"


def test_the_score_is_the_formula(data):
    obs, act, nxt, _ = data
    sumo = offing.Sumo(obs, act, nxt, k=3)
    q = [x[:40] + 0.3 for x in (obs, act, nxt)]
    points, queries = np.hstack([obs, act, nxt]).astype(np.float64), np.hstack(q).astype(np.float64)
    d = np.sort(np.linalg.norm(queries[:, None] - points[None], axis=2), axis=1)[:, 2]
    np.testing.assert_allclose(sumo(*q), np.log1p(d), rtol=1e-5)
    assert len(sumo) == 600


def test_thresholds_cut_what_lies_beyond_them(data):
    obs, act, nxt, rew = data
    sumo = offing.Sumo(obs, act, nxt, rew)
    far = obs + np.linspace(0, 4, 600, dtype=np.float32)[:, None]
    u = sumo(far, act, nxt)
    assert (sumo.truncate(far, act, nxt, alpha=0.8) == (u > sumo.epsilon(0.8))).all()
    assert np.isclose(np.log1p(sumo.radius(1.0)), sumo.epsilon(1.0), rtol=1e-6)
    _, distances, rows = sumo.support(obs, act, nxt, rows=2)
    assert (rows[:, 0] == np.arange(600)).all() and (distances[:, 0] == 0).all()


def test_penalties_follow_equation_6(data):
    obs, act, nxt, rew = data
    sumo = offing.Sumo(obs, act, nxt, rew)
    u = sumo(obs + 1, act, nxt)
    expected = rew.astype(np.float32) - 2 * u / sumo.epsilon(1.0) * (rew.max() - rew.min())
    np.testing.assert_allclose(sumo.penalty(rew, u, lam=2.0), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="r_max"):
        offing.Sumo(obs, act, nxt).penalty(rew, u)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"k": 600}, "600"), ({"vector": "s+q"}, "s\\+a"), ({"metric": "x"}, "euclidean"), ({"vector": "s+a+r+s'"}, "rewards")],
)
def test_bad_settings_are_named(data, settings, words):
    obs, act, nxt, _ = data
    with pytest.raises(ValueError, match=words):
        offing.Sumo(obs, act, nxt, **settings)


def test_columns_must_fit(data):
    obs, act, nxt, _ = data
    with pytest.raises(ValueError, match="same number of rows"):
        offing.Sumo(obs, act[:-1], nxt)
