"""Unmarked resets: are they found where nothing in a file says that an episode ended?

    python scripts/check_resets.py OFFING FILE.hdf5|FILE.npz …

OFFING is the program. Each file (D4RL's HDF5, or NeoRL-2's npz) knows where its episodes end. The script writes a copy
without next states, terminals and time limits, lets `offing data convert` read it, and compares where the copy's episodes
end with where they do.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np


def load(path):
    """Observations, actions, rewards, and whether an episode ends at each row."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            ends = file["done"].ravel().astype(bool) | file["truncated"].ravel().astype(bool)
            return file["obs"], file["action"], file["reward"].ravel(), ends
    import h5py

    with h5py.File(path) as file:
        ends = file["terminals"][:].astype(bool) | file["timeouts"][:].astype(bool)
        return file["observations"][:], file["actions"][:], file["rewards"][:], ends


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program = sys.argv[1]
    print(f"{'file':34} {'rows':>9} {'resets':>7} {'found':>7} {'missed':>7} {'false':>6}")
    for path in map(pathlib.Path, sys.argv[2:]):
        obs, act, rew, ends = load(path)
        true = set(np.flatnonzero(ends[:-1]))
        with tempfile.TemporaryDirectory() as folder:
            copy, read = pathlib.Path(folder, "log.npz"), pathlib.Path(folder, "read.npz")
            # The reward of a row is its number, so that rows which are left out can be told.
            numbers = np.arange(len(rew), dtype=np.float32)
            np.savez(copy, observations=obs, actions=act, rewards=numbers, terminals=np.zeros(len(rew), bool))
            subprocess.run([program, "-q", "data", "convert", copy, read], check=True, capture_output=True)
            with np.load(read) as file:
                kept = set(file["rewards"].astype(int))
        # A row whose next state is not in the file is left out: the last, and those before a reset.
        found = {row for row in range(len(rew) - 1) if row not in kept}
        print(
            f"{path.name:34} {len(rew):9d} {len(true):7d} {len(true & found):7d} {len(true - found):7d} "
            f"{len(found - true):6d}"
        )


if __name__ == "__main__":
    main()
