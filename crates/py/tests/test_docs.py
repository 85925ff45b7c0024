"""Every example in the documentation runs, and the stubs say what the module has."""

import ast
import doctest
import importlib
import importlib.util
import inspect
import pkgutil
import runpy
from pathlib import Path

import pytest

import offing
from offing import _offing

ROOT = Path(__file__).parents[3]
# What only `make peers` and `make ray-test` install.
LARGE = {"offing.compat.torch": "torch", "offing.compat.d3rlpy": "d3rlpy", "offing.ray": "ray"}
MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(offing.__path__, "offing.")
    if found.name not in ("offing._offing", "offing.__main__")
    and (found.name not in LARGE or importlib.util.find_spec(LARGE[found.name]))
]


@pytest.fixture(scope="session")
def examples(log, tmp_path_factory):
    """What the examples have at hand: a dataset, a folder, a small run."""
    from offing.gym import SimEnv

    folder = tmp_path_factory.mktemp("examples")
    run = offing.train("bc", log, dir=folder / "run", steps=200, evaluate_every=100, progress=False)
    return {"data": log, "folder": folder, "run": run, "SimEnv": SimEnv}


@pytest.mark.parametrize("module", [offing, *MODULES], ids=lambda m: m.__name__)
def test_examples_run(module, examples):
    found = doctest.testmod(module, extraglobs=examples, optionflags=doctest.ELLIPSIS)
    assert found.failed == 0


def test_the_examples_are_found():
    finder = doctest.DocTestFinder()
    assert sum(len(test.examples) for module in MODULES for test in finder.find(module)) > 20


def test_everything_public_says_what_it_is():
    for module in [offing, *MODULES]:
        assert module.__doc__, module
    for name in offing.__all__:
        thing = getattr(offing, name)
        assert name == "__version__" or thing.__doc__, name
        if isinstance(thing, type):
            for key, member in vars(thing).items():
                if not key.startswith("_") and callable(member) and not isinstance(member, type):
                    assert getattr(member, "__doc__", None), f"{name}.{key}"
    assert (Path(offing.__file__).parent / "py.typed").exists()


def test_the_stubs_say_what_the_module_has():
    stubs = ast.parse((Path(offing.__file__).parent / "_offing.pyi").read_text())
    functions = {node.name: node for node in stubs.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in stubs.body if isinstance(node, ast.ClassDef)}
    native = {name: getattr(_offing, name) for name in dir(_offing) if not name.startswith("_")}
    # Those with a value are names of types.
    typed = [node for node in stubs.body if isinstance(node, ast.AnnAssign) and node.value is None]
    constants = {ast.unparse(node.target) for node in typed} - {"__version__"}
    assert set(native) == {*functions, *classes, *constants}
    for name, node in functions.items():
        _same_arguments(name, node, native[name])
    for name, node in classes.items():
        methods = {inner.name: inner for inner in node.body if isinstance(inner, ast.FunctionDef)}
        has = {key for key in vars(native[name]) if not key.startswith("__") or key == "__len__"}
        assert has == set(methods) - {"__init__"}, name
        for key, method in methods.items():
            member = vars(native[name]).get(key)
            if key != "__init__" and callable(member) or isinstance(member, staticmethod):
                _same_arguments(f"{name}.{key}", method, getattr(native[name], key))


def _same_arguments(name, node, function):
    wanted = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    found = [parameter for parameter in inspect.signature(function).parameters]
    assert [w for w in wanted if w != "self"] == [f for f in found if f != "self"], name


TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_run(path, tmp_path, monkeypatch, capsys):
    if "import torch" in path.read_text():
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OFFING_TUTORIAL", "small")
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
