"""offing on a Ray cluster: grids of experiments, and exact search over an index that no single machine can hold.

``python -m offing.ray table1 --profile quick`` runs the cells of ``offing reproduce table1 --profile quick`` as Ray tasks
on the cluster that is running, and makes the tables at the end. All nodes must see the same directories (the run
directories and $OFFING_HOME): a cell whose node was lost is scheduled again elsewhere and goes on from its checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from offing import _offing
from offing._arrays import matrix
from offing.search import Index


#: How often a cell whose worker was lost is tried again.
RETRIES = 10

#: Where offing looks for things; workers are told.
PLACES = ("OFFING_HOME", "D4RL_DATASET_DIR", "MINARI_DATASETS_PATH", "MUJOCO_LIB")


class ShardedIndex:
    """An exact index in parts, one Ray actor each; answers equal those of one :class:`offing.Index` over all rows.

    ``shards`` are the parts in the order of their rows: matrices, Ray references to matrices, or functions without
    arguments that return one (called on the node that keeps the part, so that no machine ever holds all rows).
    """

    def __init__(self, shards: Sequence[Any], metric: str = "euclidean", threads: int = 1) -> None:
        if not shards:
            raise ValueError("shards: wanted at least one part, found none")
        actor = ray.remote(_Shard).options(num_cpus=threads)
        self._parts: list[Any] = [actor.remote(shard, metric, threads) for shard in shards]
        sizes = ray.get([part.size.remote() for part in self._parts])
        self.dim = sizes[0][1]
        for i, (_, dim) in enumerate(sizes):
            if dim != self.dim:
                raise ValueError(f"shards: wanted parts of {self.dim} columns as the first has, found {dim} in part {i}")
        self._starts = np.cumsum([0] + [rows for rows, _ in sizes])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def search(self, queries: Any, k: int = 1) -> tuple[NDArray[np.float32], NDArray[np.uint64]]:
        """Distances and row numbers of the ``k`` nearest rows of each query, nearest first; ties go to the lower row."""
        if not 1 <= k <= len(self):
            raise ValueError(f"k: wanted 1 to {len(self)}, the number of rows, found {k}")
        queries = ray.put(matrix(queries, "queries"))
        found = ray.get([part.search.remote(queries, k) for part in self._parts])
        distances = np.concatenate([d for d, _ in found], axis=1)
        rows = np.concatenate([r + np.uint64(s) for (_, r), s in zip(found, self._starts)], axis=1)
        # Parts come in the order of their rows, and each puts lower rows first among equals: a stable sort keeps that.
        order = np.argsort(distances, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(distances, order, 1), np.take_along_axis(rows, order, 1)

    def max_self(self, k: int = 1, chunk: int = 100_000) -> float:
        """The largest distance of any row to its k-th neighbour among the others: the ε of SUMO's Eq. 7, as a distance."""
        largest = 0.0
        for part, start, stop in zip(self._parts, self._starts, self._starts[1:]):
            for at in range(0, int(stop - start), chunk):
                own = np.arange(start + at, min(start + at + chunk, stop), dtype=np.uint64)
                distances, rows = self.search(ray.get(part.rows.remote(at, at + len(own))), k + 1)
                # Without the row itself; where more than k twins hide it, the last of them stands in for it.
                others = rows != own[:, None]
                others[others.all(axis=1), -1] = False
                largest = max(largest, float(distances[others].reshape(len(own), k)[:, -1].max()))
        return largest


class _Shard:
    """One part, on one node."""

    def __init__(self, x: Any, metric: str, threads: int) -> None:
        self._rows = matrix(x() if callable(x) else x, "shard")
        self._index = Index(self._rows, metric, threads)

    def size(self) -> tuple[int, int]:
        return self._rows.shape

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        return self._rows[start:stop]

    def search(self, queries: Any, k: int) -> tuple[NDArray[np.float32], NDArray[np.uint64]]:
        distances, rows = self._index.search(queries, min(k, len(self._rows)))
        return distances, rows.astype(np.uint64)


def run_grid(name: str, words: Sequence[str] = (), threads: int = 1) -> int:
    """Runs the cells of ``offing reproduce NAME WORDS…`` on the cluster and collects; the exit code of the collection."""
    base = ["reproduce", name, *words]
    listed = subprocess.run([*_offing.COMMAND, *base, "--list-cells", "--json"], capture_output=True, text=True)
    if listed.returncode != 0:
        raise ValueError(listed.stderr.strip().removeprefix("error: "))
    cells = [json.loads(line) for line in listed.stdout.splitlines()]
    if any(cell["alone"] for cell in cells):
        raise ValueError(f"{name}: times mean nothing where cells run side by side; use `offing reproduce {name}`")
    # A lost node is no fault of the cell, so it is tried again; but one that brings every worker down must come to an end.
    work = ray.remote(_run_cell).options(num_cpus=threads, max_retries=RETRIES)
    here = os.getcwd(), {key: os.environ[key] for key in PLACES if key in os.environ}
    waiting = {work.remote(base, cell["id"], threads, *here): cell for cell in cells}
    while waiting:
        (done,), _ = ray.wait(list(waiting), num_returns=1)
        cell = waiting.pop(done)
        try:
            trouble = ray.get(done)
        except ray.exceptions.RayError as error:
            trouble = f"failed: {str(error).strip().splitlines()[0]}"
        print(f"· {cell['id']}: {trouble or 'done'} ({len(cells) - len(waiting)} of {len(cells)})", flush=True)
    return subprocess.run([*_offing.COMMAND, *base, "--collect"]).returncode


def _run_cell(base: list[str], cell: str, threads: int, cwd: str, places: dict[str, str]) -> str | None:
    """One cell in this worker, so that it dies with the worker and leaves no process behind; what went wrong, if so.

    Paths mean what they mean where the grid was started: workers begin where the cluster was.
    """
    try:
        os.chdir(cwd)
        for key in PLACES:
            os.environ.pop(key, None)
        os.environ.update(places)
        code = _offing.main(["-q", "--threads", str(threads), *base, "--cell", cell])
    except (OSError, RuntimeError, ValueError) as error:
        return f"failed: {error}"
    return None if code == 0 else f"failed with exit code {code}"


def main() -> None:
    """``python -m offing.ray NAME …``."""
    parser = argparse.ArgumentParser(prog="python -m offing.ray", description=__doc__.split("\n\n")[1])
    parser.add_argument("name", help="the experiment, such as table1; other words go to `offing reproduce`")
    parser.add_argument("--address", default="auto", help="the Ray cluster [default: the one running here]")
    parser.add_argument("--threads-per-cell", type=int, default=1, metavar="N")
    # Options that only `offing reproduce` knows take words of their own: one in front would pass for the name.
    if len(sys.argv) > 1 and sys.argv[1].startswith("-") and sys.argv[1] not in ("-h", "--help"):
        parser.error(f"wanted the experiment first, such as table1, found `{sys.argv[1]}`; put options behind it")
    known, words = parser.parse_known_args()
    ray.init(address=known.address, log_to_driver=False)
    try:
        sys.exit(run_grid(known.name, words, known.threads_per_cell))
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
