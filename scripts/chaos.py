"""Disturbs trainings, studies and generated datasets at random and compares what they end with.

`python scripts/chaos.py --kills 300` makes an undisturbed dataset, training and study. Then, round after round, it starts one of
them in a fresh home and directory, kills it (SIGKILL, SIGTERM) at random moments, harms its files in between, lets it finish and
compares every byte. Temporary files may not be left anywhere. Exit code 1 says that something was lost.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SET = [
    "model.ensemble.hidden=[16,16]", "model.ensemble.decay=[0.0,0.0,0.0]", "model.ensemble.members=3",
    "model.ensemble.elites=2", "model.ensemble.max_epochs=2", "rollout.every=50", "rollout.starts=100", "sac.hidden=[32,32]",
    "train.batch=64", "train.evaluate_every=100", "train.checkpoint_every=50", "train.episodes=2",
]  # fmt: skip
SMALL = [word for value in SET for word in ("--set", value)]
RUN_FILES = [
    "config.toml", "metrics.jsonl", "policy.safetensors", "best.safetensors", "policy.onnx", "events.out.tfevents.offing",
]  # fmt: skip

# Exit codes that a stop on request gives.
STOPPED = 130


class Job:
    """A command with a home and a directory of its own."""

    def __init__(self, bench: Bench, kind: str, name: str) -> None:
        self.bench, self.kind, self.place = bench, kind, bench.work / name
        self.home, self.dir = self.place / "home", self.place / "run"
        self.place.mkdir()
        # The simulator is the one thing that is not made again, since it comes over the network.
        shutil.copytree(bench.engine, self.home / "mujoco", copy_function=os.link)

    def words(self) -> list[str]:
        data = str(self.bench.data)
        if self.kind == "data make":
            return ["data", "make", "hopper-random", "--rows", "20000"]
        if self.kind == "train":
            return ["train", "mopo+sumo", data, "--dir", str(self.dir), "--steps", "400", *SMALL]
        small = ["--set", "train.steps=100", "--set", "starts=10", "--set", "length=10", "--estimators", "sumo", "pairwise"]
        return ["calibrate", data, "--seeds", "2", "--dir", str(self.dir), "--csv", str(self.place / "c.csv"), *SMALL, *small]

    def start(self, limit: int | None = None) -> subprocess.Popen[bytes]:
        """Starts it; with a `limit` no file may grow beyond so many bytes, which is what a full disk looks like."""
        environment = {k: v for k, v in os.environ.items() if k != "MUJOCO_LIB"} | {"OFFING_HOME": str(self.home)}
        full = None if limit is None else lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return subprocess.Popen(
            [self.bench.program, "-q", "--threads", "2", *self.words()], cwd=self.place, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=full,
        )  # fmt: skip

    def finish(self) -> float:
        """Runs it to its end; the seconds it took."""
        began = time.monotonic()
        process = self.start()
        said = process.communicate()[1].decode(errors="replace")
        if process.returncode != 0:
            raise Lost(f"{self.kind}: exit code {process.returncode}: {said}")
        return time.monotonic() - began

    def outcome(self) -> dict[str, bytes]:
        if self.kind == "train":
            return {name: (self.dir / name).read_bytes() for name in RUN_FILES}
        found = (self.home / "datasets").glob("*.hdf5") if self.kind == "data make" else [self.place / "c.csv"]
        return {path.name: path.read_bytes() for path in found}

    def left_behind(self) -> list[str]:
        return [str(p) for p in self.place.rglob("*") if ".part" in p.name or ".damaged" in p.name]

    def files(self, *patterns: str) -> list[Path]:
        return [path for pattern in patterns for path in self.place.glob(pattern) if path.is_file()]


class Lost(Exception):
    """A promise that was not kept."""


def torn(job: Job, rng: random.Random) -> str | None:
    """Half of a file that is made again, and half a line at the end of the metrics."""
    lines = job.files("run/**/metrics.jsonl")
    if lines and rng.random() < 0.5:
        with lines[0].open("ab") as file:
            file.write(b'{"step": 399, "ret')
        return "half a line"
    made = job.files("run/**/checkpoints/*.safetensors", "home/models/*/*", "home/index/*.knn*")
    if not made:
        return None
    path = rng.choice(sorted(made))
    os.truncate(path, path.stat().st_size // 2)
    return "torn file"


def deleted(job: Job, rng: random.Random) -> str | None:
    """A file is gone that is made again."""
    made = job.files("run/**/checkpoints/*.safetensors", "home/models/*/*", "home/index/*.knn*", "run/**/events.out*")
    if not made:
        return None
    rng.choice(sorted(made)).unlink()
    return "deleted file"


def from_the_future(job: Job, _: random.Random) -> str | None:
    """The clock went back a day since the files were written."""
    for path in job.files("run/**/*", "home/models/**/*", "home/index/*"):
        os.utime(path, (time.time() + 86400,) * 2)
    return "clock back"


def full_disk(job: Job, rng: random.Random) -> str | None:
    """No file may grow beyond some size: the program fails or stops, and the next start goes on."""
    process = job.start(limit=rng.choice([0, 100, 5_000, 50_000]))
    said = process.communicate(timeout=600)[1].decode(errors="replace")
    if process.returncode < 0 or "panicked" in said:
        raise Lost(f"{job.kind}: a full disk ends it with {process.returncode}: {said}")
    return "full disk"


def second_process(job: Job, rng: random.Random) -> str | None:
    """Two at once: one works, the other waits or is refused in one line."""
    both = [job.start(), job.start()]
    for process in both:
        said = process.communicate(timeout=600)[1].decode(errors="replace").strip()
        refused = "another process" in said and len(said.splitlines()) == 1
        if process.returncode != 0 and not refused:
            raise Lost(f"{job.kind}: of two processes one ended with {process.returncode}: {said}")
    return "two processes"


def read_only(job: Job, _: random.Random) -> str | None:
    """The directory may only be read: refused without harm."""
    if os.geteuid() == 0 or not job.dir.exists():
        return None  # root may write anywhere
    job.dir.chmod(0o555)
    try:
        process = job.start()
        said = process.communicate(timeout=600)[1].decode(errors="replace")
    finally:
        job.dir.chmod(0o755)
    if process.returncode < 0 or "panicked" in said:
        raise Lost(f"{job.kind}: a directory without writing ends it with {process.returncode}: {said}")
    return "read-only"


HARM = [torn, torn, deleted, deleted, from_the_future, full_disk, read_only, second_process]


class Bench:
    """The program, the undisturbed outcomes, and the counts."""

    def __init__(self, program: str, work: Path, rng: random.Random) -> None:
        self.program, self.work, self.rng = program, work, rng
        self.counts: collections.Counter[str] = collections.Counter()
        self.engine, self.data = work / "fetched" / "mujoco", work / "hopper-random.hdf5"
        environment = os.environ | {"OFFING_HOME": str(work / "fetched")}
        make = [program, "-q", "data", "make", "hopper-random", "--rows", "3000", "--out", str(self.data)]
        subprocess.run(make, check=True, env=environment, stdout=subprocess.DEVNULL)
        self.whole: dict[str, dict[str, bytes]] = {}
        self.seconds: dict[str, float] = {}
        for kind in ("train", "data make", "calibrate"):
            job = Job(self, kind, f"whole {kind}")
            self.seconds[kind] = job.finish()
            self.whole[kind] = job.outcome()

    def round(self, number: int, kills: int) -> int:
        """Kills one job up to `kills` times, harms it, lets it finish; how many kills met a living process."""
        kind = self.rng.choice(["train", "train", "train", "calibrate", "data make"])
        job, done = Job(self, kind, f"round {number}"), 0
        for _ in range(kills):
            process = job.start()
            try:
                process.wait(self.rng.uniform(0, self.seconds[kind]) * self.rng.choice([0.3, 1]))
            except subprocess.TimeoutExpired:
                process.send_signal(sent := self.rng.choice([signal.SIGKILL, signal.SIGTERM]))
                done += 1
                self.counts[sent.name] += 1
            said = process.communicate(timeout=600)[1].decode(errors="replace")
            if process.returncode not in (0, -signal.SIGKILL, -signal.SIGTERM, STOPPED, 3):
                raise Lost(f"{kind}: exit code {process.returncode} after a signal: {said}")
            if self.rng.random() < 0.25:
                self.counts[self.rng.choice(HARM)(job, self.rng) or "nothing to harm"] += 1
        job.finish()
        self.counts[f"rounds of {kind}"] += 1
        found, wanted = job.outcome(), self.whole[kind]
        if found.keys() != wanted.keys():
            raise Lost(f"{kind}: wrote {sorted(found)}, undisturbed {sorted(wanted)}")
        differs = [name for name in wanted if found[name] != wanted[name]]
        if differs:
            raise Lost(f"{kind}: {', '.join(differs)} differ from an undisturbed run")
        left = [path for path in job.left_behind() if not path.endswith(".damaged")]
        if left:
            raise Lost(f"{kind}: left behind {left}")
        shutil.rmtree(job.place)
        return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop then, whatever the number of kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", default="target/debug/offing")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="chaos-"))
    began, kills, rounds, lost = time.monotonic(), 0, 0, 0
    bench = Bench(str(Path(args.program).resolve()), work, random.Random(args.seed))
    if os.geteuid() == 0:
        print("read-only directories are left out: root writes anywhere")
    while kills < args.kills and time.monotonic() - began < 60 * args.minutes:
        rounds += 1
        try:
            kills += bench.round(rounds, min(bench.rng.randint(1, 12), args.kills - kills))
        except Lost as why:
            lost += 1
            print(f"round {rounds} of seed {args.seed}: {why} (kept: {work / f'round {rounds}'})", flush=True)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(bench.counts.items()))
    print(f"{kills} kills in {rounds} rounds, {time.monotonic() - began:.0f} s: {lost} lost ({counts})")
    if lost == 0:
        shutil.rmtree(work)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
