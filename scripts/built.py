"""Finds the programs under test: by an environment variable, else in the Cargo target directory (debug, then release)."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def program(name, variable, build):
    """The file `name` below a profile's directory; `build` is the command that builds it."""
    if variable in os.environ:
        return os.environ[variable]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    for profile in ("debug", "release"):
        path = target / profile / name
        if path.exists():
            return str(path)
    pytest.exit(f"build it first: {build}")


def offing(*arguments):
    """Runs the command line and returns the result."""
    found = program("offing", "OFFING", "cargo build")
    return subprocess.run([found, *map(str, arguments)], capture_output=True, text=True)
