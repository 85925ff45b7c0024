"""Threads that share an index, and processes that inherit or receive one."""

import multiprocessing
import threading

import numpy as np
import pytest

import offing

ROWS = np.random.default_rng(0).normal(size=(20_000, 8)).astype(np.float32)


def test_threads_search_one_index_at_once():
    index = offing.Index(ROWS)
    expected = index.search(ROWS, 3)[1]
    found = {}

    def work(i):
        found[i] = index.search(ROWS, 3)[1]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((found[i] == expected).all() for i in range(4))


def test_other_python_threads_run_during_a_search():
    index, over, turns = offing.Index(ROWS), threading.Event(), 0

    def search():
        index.search_self(20)
        over.set()

    thread = threading.Thread(target=search)
    thread.start()
    while not over.is_set():
        turns += 1
    thread.join()
    # With the interpreter's lock held the loop would get no turn before the search is over.
    assert turns > 1000


INDEX = SUMO = None


def answers(_):
    distances, rows = INDEX.search(ROWS[:2000] + 0.1, 4)
    return rows, INDEX.max_self(), SUMO(ROWS[:500, :3] + 1, ROWS[:500, 3:5], ROWS[:500, 5:])


def prepare():
    global INDEX, SUMO
    INDEX = offing.Index(ROWS, threads=2)
    SUMO = offing.Sumo(ROWS[:, :3], ROWS[:, 3:5], ROWS[:, 5:], threads=2)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_get_the_parents_answers(method):
    prepare()
    expected = answers(0)  # The parent's threads are running now.
    context = multiprocessing.get_context(method)
    # A forked child inherits the index, a spawned one makes its own.
    with context.Pool(2, initializer=None if method == "fork" else prepare) as pool:
        for rows, largest, u in pool.map_async(answers, range(4)).get(timeout=120):
            assert (rows == expected[0]).all() and largest == expected[1] and (u == expected[2]).all()
    assert (answers(0)[0] == expected[0]).all()


def load(path):
    return offing.load_dataset(path).rewards.sum()


def test_a_forked_child_runs_commands_after_its_parent_did(log, tmp_path):
    path = str(log.save(tmp_path / "log.npz"))
    expected = load(path)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(load, (path,)).get(timeout=120) == expected
