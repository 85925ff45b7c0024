"""Exact neighbour search, SUMO's uncertainty, and model-based offline RL.

>>> import numpy as np, offing
>>> x = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
>>> distances, rows = offing.Index(x).search(x[:3], k=2)
>>> rows[:, 0].tolist(), float(distances[0, 0])
([0, 1, 2], 0.0)

Search and SUMO: :class:`Index`, :class:`Sumo`. Data: :class:`Dataset`, :func:`load_dataset`, :func:`make_dataset`.
Learning: :func:`train`, :class:`Policy`, :func:`calibrate`. Simulators for Gymnasium: :mod:`offing.gym`.
"""

from offing._offing import __version__
from offing.data import Dataset, load_dataset, make_dataset
from offing.learning import Policy, calibrate, train
from offing.search import Index
from offing.uncertainty import Sumo

__all__ = [
    "Dataset",
    "Index",
    "Policy",
    "Sumo",
    "__version__",
    "calibrate",
    "load_dataset",
    "make_dataset",
    "train",
]
