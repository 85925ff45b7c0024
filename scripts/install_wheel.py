"""Installs the newest wheel of a directory into an empty environment, uses it, and says how long that took and how large it is."""

import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

USE = """
import numpy as np, offing
x = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
assert (offing.Index(x).search(x)[1][:, 0] == np.arange(1000)).all()
steps = [np.random.default_rng(i).normal(size=(2000, n)) for i, n in enumerate((3, 1, 3))]
data = offing.Dataset(steps[0], steps[1].clip(-1, 1), steps[0][:, 0], steps[2], timeouts=np.arange(2000) % 50 == 49)
run = offing.train("bc", data, dir="run", steps=200, progress=False)
assert run.policy(steps[0]).shape == (2000, 1)
print("used:", run)
"""


def main() -> None:
    wheel = max(Path(sys.argv[1]).glob("offing-*.whl"), key=lambda path: path.stat().st_mtime).resolve()
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", "numpy"], check=True)
        began = time.monotonic()
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", wheel], check=True)
        seconds = time.monotonic() - began
        installed = sum(path.stat().st_size for path in Path(folder).glob("lib/python*/site-packages/offing/**/*") if path.is_file())
        subprocess.run([python, "-c", USE], check=True, cwd=folder)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {installed / 1e6:.1f} MB installed, pip took {seconds:.1f} s")


if __name__ == "__main__":
    main()
