"""Runs the console lines of README.md and docs/, in a scratch directory with small files under the names that the pages use.

    python scripts/run_docs.py --offing target/debug/offing             # all pages
    python scripts/run_docs.py --offing target/debug/offing docs/runs.md

A line runs as it stands, but for size: trainings have tiny networks and end after `--dry-run`, studies and datasets are small.
A line that is not run says why: by a comment above its block, for the whole block or for lines with a word,

    <!-- not run: REASON -->
    <!-- not run (WORD): REASON -->

or because its program is in `OTHERS`. Exit codes other than 0 must stand in the line's comment ("exit code 1").
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"<!-- not run(?: \((?P<word>[^)]*)\))?: (?P<reason>.+?) -->")

# Programs that are not ours, or that CI runs by itself.
OTHERS = {
    "make": "CI runs its targets, or they take long",
    "cargo": "CI runs the tests; the program is built already",
    "pip": "CI builds the package with maturin",
    "python": "scripts have tests of their own",
    "tensorboard": "a server",
}
RUN = "runs/mopo+sumo/hopper-medium-replay/s0-1a2b3c4d"
OWN_RUN = "runs/mopo+sumo/my-logs/s0-1a2b3c4d"


@dataclass
class Line:
    page: str
    number: int
    text: str
    reason: str | None

    def place(self) -> str:
        return f"{self.page}:{self.number}"


def lines_of(page: Path) -> Iterator[Line]:
    """The commands of a page's console blocks, with why they are not run."""
    name = page.relative_to(ROOT).as_posix()
    inside, marks, continued = False, list[re.Match[str]](), None
    for number, text in enumerate(page.read_text().splitlines(), 1):
        if text.startswith("```"):
            if inside:
                marks = []
            inside = text.startswith("```console") and not inside
        elif not inside:
            found = MARK.search(text)
            marks = [*marks, found] if found else ([] if text.strip() else marks)
        elif continued or text.startswith("$ "):
            line = (continued or "") + text.removeprefix("$ ")
            if line.endswith("\\"):
                continued = line.removesuffix("\\")
                continue
            continued = None
            reasons = [mark["reason"] for mark in marks if not mark["word"] or mark["word"] in line]
            yield Line(name, number, line, reasons[0] if reasons else None)


def without_comment(line: str) -> tuple[str, str]:
    """The command and its comment."""
    command, _, comment = line.partition(" #")
    return command.strip(), comment.strip()


TINY = {
    "model.ensemble.hidden": "[16,16]",
    "model.ensemble.decay": "[0.0,0.0,0.0]",
    "sac.hidden": "[16,16]",
    "rollout.starts": "50",
}


@functools.cache
def tiny(name: str) -> tuple[str, ...]:
    """Settings that make the networks of an algorithm small: those of `TINY` that it has."""
    listed = subprocess.run(["offing", "settings", name], capture_output=True, text=True)
    if listed.returncode:  # a dataset, so the algorithm is the default
        return tiny("landfall") if name != "landfall" else ()
    keys = {line.split(" = ")[0] for line in listed.stdout.splitlines()}
    return tuple(word for key, value in TINY.items() if key in keys for word in ("--set", f"{key}={value}"))


def training(words: list[str]) -> list[str]:
    """What makes a training small: nothing is learnt, networks are tiny, and profiles bring no rows of their own."""
    if {"--resume", "--help"} & set(words):
        return []
    rows = ["--rows", "2000"] if "--profile" in words else []
    return [*rows, *tiny(words[2]), *([] if "--dry-run" in words else ["--dry-run"])]


def smaller(words: list[str]) -> list[str]:
    """An offing command with the same meaning and less work."""
    for i, word in enumerate(words[:-1]):
        if word == "--rows":
            words[i + 1] = str(min(int(words[i + 1]), 2000))
    added = {
        ("train",): training(words) if words[1:2] == ["train"] else [],
        ("calibrate",): "--rows 2000 --seeds 1 --estimators sumo,pairwise --set starts=4 --set length=5 --set bootstrap=10 "
        "--set train.steps=20 --set model.ensemble.max_epochs=1".split(),
        ("dynamics",): ["--rows", "2000", "--set", "model.max_epochs=1"],
        # Beside the cache: a second dataset of one name would make the name unclear.
        ("data", "make"): ["--rows", "2000", "--out", "made.hdf5"],
        ("data", "convert"): ["--force"],
        ("rank",): ["--steps", "20", "--length", "10"],
        ("eval",): ["--episodes", "1"],
        ("replay",): ["--steps", "60", "--horizon", "10"],
        ("reproduce",): ["--list-cells"] if len(words) > 2 else [],
    }
    for path, options in added.items():
        if tuple(words[1 : 1 + len(path)]) == path:
            taken = {option for option in options if option.startswith("--") and option != "--set"}
            kept = drop(words, taken)
            return [*kept, *options]
    return words


def drop(words: list[str], options: set[str]) -> list[str]:
    """Without options that take one value and are given anew."""
    out, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in options and word not in {"--dry-run", "--list-cells", "--force"}:
            skip = True
        else:
            out.append(word)
    return out


def runnable(command: str) -> tuple[str | None, str | None]:
    """The shell line to run, or why there is none."""
    if command.startswith("cargo run --release -- "):
        command = "offing " + command.removeprefix("cargo run --release -- ")
    first = command.split()[0]
    if command == "offing quickstart":
        return None, "crates/cli/tests/cli.rs runs it, in a small size"
    if first.startswith("scripts/"):
        there = (ROOT / first).is_file()
        return (None, "a script for developers") if there else (f"echo 'there is no {first}' >&2; exit 2", None)
    if first in OTHERS:
        if first == "make":
            target = command.split()[1]
            if not re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.M):
                return f"echo 'the Makefile has no target {target}' >&2; exit 2", None
        return None, OTHERS[first]
    command = command.replace("tail -f ", "cat ").replace("s0-…", "s0-1a2b3c4d").replace("ALGORITHM", "bc")
    command = re.sub(r"\bRUN\b", RUN, command).replace("DATASET", "hopper-medium-replay").replace("~/", "$HOME/")
    stages = []
    for stage in re.split(r"\s\|\s", command):
        # A redirection ends the line; a comparison stands within quotes.
        redirected = re.search(r" > ([^\s'\"]+)$", stage)
        main, target = (stage[: redirected.start()], redirected[1]) if redirected else (stage, None)
        words = shlex.split(main)
        if words[0] == "offing":
            options = words[1:3] if words[1:2] == ["--threads"] else []
            rest = words[:1] + words[1 + len(options) :]
            # A glob stays one, a quoted setting stays quoted.
            main = " ".join(word if "*" in word or "$HOME" in word else shlex.quote(word) for word in smaller(rest))
        stages.append(f"{main} > {target}" if target else main)
    return "set -o pipefail; " + " | ".join(stages), None


# --- the scratch directory --------------------------------------------------------------------------------------------

SETUP = f"""
offing -q data make hopper-medium-replay --rows 2000
offing -q data make hopper-medium --rows 2000
offing -q data make walker2d-medium --rows 2000
offing -q data make halfcheetah-medium-replay --rows 2000
offing -q data make hopper-medium-replay --rows 2500 --seed 1 --out d4rl/hopper_medium_replay-v2.hdf5
offing -q data make hopper-medium --rows 2500 --seed 1 --out d4rl/hopper_medium-v2.hdf5
offing -q data convert d4rl/hopper_medium_replay-v2.hdf5 trials.csv
offing -q data convert trials.csv my-logs.parquet
offing -q data convert d4rl/hopper_medium-v2.hdf5 new.parquet
cp my-logs.parquet monday.parquet
cp new.parquet friday.parquet
cp new.parquet logged.parquet
cp trials.csv log.csv
cp trials.csv observations.csv
offing -q train mopo+sumo hopper-medium-replay --dir {RUN} --steps 20 {{small}}
offing -q train mopo+sumo my-logs.parquet --dir {OWN_RUN} --steps 20 {{small}} --set model.termination.kind=never
cp {RUN}/policy.safetensors policy.safetensors
"""
SMALL = (
    "--set model.ensemble.max_updates=20 --set train.episodes=1 "
    + " ".join(f"--set {key}={value}" for key, value in TINY.items())
)


def write_files(scratch: Path) -> None:
    columns = "\n".join(
        [
            f"obs = {[f'obs_{i}' for i in range(11)]}",
            f"act = {[f'act_{i}' for i in range(3)]}",
            "rew = 'reward'",
            f"next_obs = {[f'next_obs_{i}' for i in range(11)]}",
            "done = 'terminal'\ntimeout = 'timeout'\nepisode = 'episode'",
        ]
    )
    (scratch / "columns.toml").write_text(columns + "\n")
    rows = [[0.1 * (i + j) for j in range(25)] for i in range(5)]
    (scratch / "steps.csv").write_text("".join(",".join(f"{x:.3f}" for x in row) + "\n" for row in rows))
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 11), }"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    values = b"".join(struct.pack("<11f", *row[:11]) for row in rows)
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    (scratch / "observations.npy").write_bytes(head + values)
    for place in (".local/share/bash-completion/completions", ".zfunc", ".config/fish/completions"):
        (scratch / "user" / place).mkdir(parents=True)
    (scratch / "d4rl").mkdir()
    shutil.copytree(ROOT / "policies", scratch / "runs/collect/hopper/s0/policies")


def environment(scratch: Path, offing: Path, home: Path) -> dict[str, str]:
    programs = scratch / "bin"
    programs.mkdir()
    (programs / "offing").symlink_to(offing.resolve())
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(scratch / "user"),
        "OFFING_HOME": str(home),
        "D4RL_DATASET_DIR": str(scratch / "d4rl"),
        "MINARI_DATASETS_PATH": str(scratch / "minari"),
    }


def shell(command: str, scratch: Path, env: dict[str, str]) -> tuple[int, str]:
    try:
        done = subprocess.run(["bash", "-c", command], cwd=scratch, env=env, capture_output=True, text=True, timeout=600)
    except subprocess.TimeoutExpired:
        return -1, "no end after ten minutes"
    return done.returncode, done.stdout[-2000:] + done.stderr[-2000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="pages to run [default: README.md and all of docs/]")
    parser.add_argument("--offing", type=Path, required=True, help="the program")
    parser.add_argument("--simulator", type=Path, help="an OFFING_HOME whose simulator to take, instead of fetching one")
    parser.add_argument("--verbose", action="store_true", help="show every line with its seconds")
    args = parser.parse_args()
    pages = [page.resolve() for page in args.pages] or [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    lines = [line for page in pages for line in lines_of(page)]
    failed, done, left = 0, dict[str, int](), dict[str, int]()
    with tempfile.TemporaryDirectory(prefix="offing-docs-") as name:
        scratch = Path(name)
        home = scratch / "home"
        home.mkdir()
        if args.simulator and (args.simulator / "mujoco").is_dir():
            shutil.copytree(args.simulator / "mujoco", home / "mujoco", symlinks=True)
        env = environment(scratch, args.offing, home)
        os.environ["PATH"] = env["PATH"]
        write_files(scratch)
        for command in SETUP.format(small=SMALL).strip().splitlines():
            begun = time.monotonic()
            code, output = shell(command, scratch, env)
            if args.verbose:
                print(f"{time.monotonic() - begun:6.1f} s  {command}", flush=True)
            if code:
                print(f"setup: {command}\n{output}", file=sys.stderr)
                return 1
        for line in lines:
            command, comment = without_comment(line.text)
            prepared, reason = (None, line.reason) if line.reason else runnable(command)
            if prepared is None:
                left[reason or ""] = left.get(reason or "", 0) + 1
                continue
            # Pages repeat each other: once is enough.
            done[prepared] = done.get(prepared, 0) + 1
            if done[prepared] > 1:
                continue
            begun = time.monotonic()
            code, output = shell(prepared, scratch, env)
            allowed = {0, *(int(n) for n in re.findall(r"exit code (\d+)", comment))}
            if args.verbose:
                print(f"{time.monotonic() - begun:6.1f} s  {line.place()}  {prepared}", flush=True)
            if code not in allowed:
                failed += 1
                print(f"{line.place()}: `{command}` ended with exit code {code}\n  ran: {prepared}\n{output}", file=sys.stderr)
    print(f"{sum(done.values())} console lines ran ({len(done)} different ones), {failed} wrongly; {sum(left.values())} not run:")
    for reason, count in sorted(left.items(), key=lambda item: -item[1]):
        print(f"  {count:3} {reason}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
