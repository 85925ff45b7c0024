"""Exact neighbour search, SUMO's uncertainty, and model-based offline RL.

>>> import numpy as np, offing
>>> x = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
>>> distances, rows = offing.Index(x).search(x[:3], k=2)
>>> rows[:, 0].tolist(), float(distances[0, 0])
([0, 1, 2], 0.0)

Search and SUMO: :class:`Index`, :class:`Sumo`. Data: :class:`Dataset`, :func:`load_dataset`, :func:`make_dataset`,
:func:`audit`, :func:`score`. Learning: :func:`train`, :class:`Run`, :class:`Policy`, :func:`evaluate`, :func:`rank`. Studies:
:func:`calibrate`, :func:`check_estimator`, :func:`reproduce`. Simulators for Gymnasium: :mod:`offing.gym`. In place of other packages:
:mod:`offing.compat`.
"""

from offing._offing import __version__
from offing._own import Members
from offing.data import Dataset, DataWarning, load_dataset, make_dataset
from offing.evaluation import Evaluation, evaluate
from offing.policy import Policy
from offing.run import Metrics, Run
from offing.search import Index
from offing.studies import Reproduction, Scores, audit, calibrate, check_estimator, rank, reproduce, score
from offing.training import Every, TrainingState, TrainingWarning, train
from offing.uncertainty import Sumo

__all__ = [
    "DataWarning",
    "Dataset",
    "Evaluation",
    "Every",
    "Index",
    "Members",
    "Metrics",
    "Policy",
    "Reproduction",
    "Run",
    "Scores",
    "Sumo",
    "TrainingState",
    "TrainingWarning",
    "__version__",
    "audit",
    "calibrate",
    "check_estimator",
    "evaluate",
    "load_dataset",
    "make_dataset",
    "rank",
    "reproduce",
    "score",
    "train",
]
