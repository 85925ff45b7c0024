"""Logs of a task that nobody has described."""

import copy

import numpy as np
import pytest
from conftest import SMALL

import offing

MODEL = {"ensemble": SMALL["model"]["ensemble"]}


@pytest.fixture
def drift(log):
    """The point mass under another name; its episodes end beyond a line."""
    data = copy.deepcopy(log)
    data.name = "drift"
    data.terminals = data.next_observations[:, 0] > np.quantile(data.next_observations[:, 0], 0.95)
    return data


def test_when_episodes_end_is_learnt_where_nobody_says_it(drift, train, caplog):
    with caplog.at_level("INFO", logger="offing"):
        run = train(data=drift, steps=60, model=MODEL)
    (note,) = [record.message for record in caplog.records if "is learnt from the" in record.message]
    assert f"the {drift.terminals.sum()} rows of the log that do" in note
    assert run.metrics["terminated"][-1] > 0 and run.config["settings"]["model"].get("termination") is None
    asked = train(data=drift, dir="asked", steps=60, model={**MODEL, "termination": {"kind": "learnt"}})
    assert run.metrics["terminated"].tolist() == asked.metrics["terminated"].tolist()
    drift.terminals[:] = False
    never = train(data=drift, dir="never", steps=60, model=MODEL)
    assert never.metrics["terminated"][-1] == 0


def test_ends_that_are_lost_with_their_next_states_are_missed_aloud(drift, train):
    drift.terminals[:] = False
    drift.terminals[59::60], drift.next_observations = True, None
    drift.timeouts[:] = False
    with pytest.warns(offing.TrainingWarning, match="the 20 rows that end have no next state and are left out"):
        train(data=drift, steps=20, model=MODEL)


def test_a_file_that_loses_its_ends_is_told_of_on_loading(tmp_path):
    rng = np.random.default_rng(0)
    rows = [[trial, *rng.normal(size=3), step == 19 and trial < 3] for trial in range(9) for step in range(20)]
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",", header="trial,p [Pa],valve,gain,tripped", comments="")
    columns = {"obs": ["p [Pa]"], "act": "valve", "rew": "gain", "done": "tripped", "episode": "trial"}
    with pytest.warns(offing.DataWarning, match="the 3 rows that end have no next state and are left out"):
        data = offing.load_dataset(tmp_path / "t.csv", columns=columns)
    assert not data.terminals.any()


def test_one_sensor_or_one_actuator_may_be_a_plain_column(log):
    data = offing.Dataset(log.observations, log.actions[:, 0], log.rewards)
    assert data.actions.shape == (1200, 1)
    data.observations = log.observations[:, 1]
    assert data.transitions()["observations"].shape[1] == 1
    with pytest.raises(ValueError, match="actions: wanted 1200 rows as in observations, found 2"):
        offing.Dataset(log.observations, [0.5, 0.7], log.rewards)


def test_an_id_without_gymnasium_says_what_to_install(log, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ImportError, match=r"pip install 'offing\[gym\]'"):
        offing.train("bc", log, env="Drift-v0")
