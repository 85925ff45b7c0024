"""Every example in the documentation runs."""

import doctest
import runpy
from pathlib import Path

import pytest

import offing
import offing.data
import offing.gym
import offing.learning
import offing.search
import offing.uncertainty

MODULES = [offing, offing.data, offing.gym, offing.learning, offing.search, offing.uncertainty]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_examples_run(module):
    assert doctest.testmod(module).failed == 0


def test_everything_public_says_what_it_is():
    for module in MODULES:
        assert module.__doc__
        for name in getattr(module, "__all__", []):
            thing = getattr(module, name)
            assert name == "__version__" or thing.__doc__, name
            if isinstance(thing, type):
                for key, member in vars(thing).items():
                    assert key.startswith("_") or key == "path" or getattr(member, "__doc__", None), f"{name}.{key}"
    assert (Path(offing.__file__).parent / "py.typed").exists()


def test_the_tutorial_runs(capsys):
    pytest.importorskip("torch")
    pytest.importorskip("gymnasium")
    runpy.run_path(str(Path(__file__).parents[3] / "docs" / "sumo_in_pytorch.py"))
    said = capsys.readouterr().out
    assert said.count("Spearman's rho") == 2 and "least supported" in said
