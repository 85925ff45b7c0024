"""TensorBoard's own reader finds every record of a run in its event file, every step once, also after a resume.

Needs: pip install pytest tensorboard numpy
Run:   cargo build && pytest scripts/test_tensorboard.py
"""

import json

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

from built import offing


def compare(run):
    """The event file holds every number of metrics.jsonl, at its step, and nothing else."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    events = EventAccumulator(str(run)).Reload()
    wanted = {}
    for record in records:
        for tag, value in record.items():
            if tag != "step" and isinstance(value, (int, float)):
                wanted.setdefault(tag, []).append((record["step"], np.float32(value)))
    assert wanted and sorted(events.Tags()["scalars"]) == sorted(wanted)
    for tag, points in wanted.items():
        assert [(e.step, np.float32(e.value)) for e in events.Scalars(tag)] == points
    # This reader checks the checksum of every record and drops the rest of the file at the first wrong one.
    raw = list(RawEventFileLoader(str(run / "events.out.tfevents.offing")).Load())
    assert len(raw) == 1 + len(records)
    return [record["step"] for record in records]


def test_the_event_file_holds_the_metrics(tmp_path):
    rng, rows = np.random.default_rng(0), 500
    arrays = {
        "observations": rng.normal(size=(rows, 3)),
        "next_observations": rng.normal(size=(rows, 3)),
        "actions": rng.uniform(-1, 1, size=(rows, 2)),
        "rewards": rng.normal(size=rows),
    }
    ends = np.arange(rows) % 50 == 49
    np.savez(tmp_path / "own.npz", terminals=ends, timeouts=ends & False, **{k: v.astype("f4") for k, v in arrays.items()})
    run = tmp_path / "run"
    settings = ["train.evaluate_every=50", "train.checkpoint_every=100", "hidden=[8]"]
    settings = [word for setting in settings for word in ("--set", setting)]
    done = offing("-q", "train", "bc", tmp_path / "own.npz", "--dir", run, "--steps", 300, *settings)
    assert done.returncode == 0, done.stderr
    assert compare(run) == [50, 100, 150, 200, 250, 300]
    before = (run / "events.out.tfevents.offing").read_bytes()
    # Without its newest checkpoint the run resumes from step 200 and records 250 and 300 again.
    (run / "checkpoints" / "000000000300.safetensors").unlink()
    done = offing("-q", "train", "--resume", run)
    assert done.returncode == 0, done.stderr
    assert compare(run) == [50, 100, 150, 200, 250, 300]
    assert (run / "events.out.tfevents.offing").read_bytes() == before, "no clock in it: the same bytes"
