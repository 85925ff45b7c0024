"""Disturbs what runs for long or writes much, at random, and compares what it ends with.

`python scripts/chaos.py --kills 300` makes an undisturbed dataset, training, study, table and download. Then, round after round, it
starts one of them in a fresh home and directory, kills it (SIGKILL, SIGTERM) at random moments, harms its files in between, lets it
finish and compares every byte. It must leave the files of an undisturbed one and no others. Exit code 1 says that something was lost.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import http.server
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
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

STUDY = ["train.steps=100", "starts=10", "length=10", "bootstrap=10"]

# The exit code of a stop on request.
STOPPED = 130
# A user who owns nothing here.
NOBODY = 65534
# How often each is disturbed.
KINDS = {"train": 4, "calibrate": 1, "data make": 1, "reproduce": 1, "fetch": 2}


class Hub(http.server.BaseHTTPRequestHandler):
    """Minari's hub, as far as `data fetch` asks it, over a slow line: a list with checksums, and parts of two files."""

    FILES = {"data/main_data.hdf5": random.Random(0).randbytes(1_500_000), "data/metadata.json": b"{}"}
    protocol_version = "HTTP/1.1"

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            pass  # whoever asked was killed

    def do_GET(self) -> None:
        if "/tree/" in self.path:
            entry = lambda name, data: {
                "type": "file", "path": f"chaos/set-v0/{name}", "size": len(data), "oid": "0" * 40,
                "lfs": {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)},
            }  # fmt: skip
            return self.answer(200, json.dumps([entry(*item) for item in self.FILES.items()]).encode(), {})
        data = self.FILES[self.path.split("set-v0/")[1]]
        wanted = self.headers.get("Range")
        if not wanted:
            return self.answer(200, data, {})
        start = int(wanted.removeprefix("bytes=").split("-")[0])
        if start >= len(data):
            return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
        self.answer(206, data[start:], {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"})

    def answer(self, code: int, body: bytes, more: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), "ETag": '"1"', **more}.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for at in range(0, len(body), 50_000):
                self.wfile.write(body[at : at + 50_000])
                time.sleep(0.02)
        except OSError:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


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
        if self.kind == "fetch":
            return ["data", "fetch", "mujoco/chaos/set-v0", "--mirror", f"https://huggingface.co/={self.bench.hub}"]
        places = ["--seeds", "2", "--dir", str(self.dir), *SMALL, *(word for value in STUDY for word in ("--set", value))]
        if self.kind == "reproduce":
            return ["reproduce", "table3", "--only", data, "--out", str(self.place / "tables"), *places]
        return ["calibrate", data, "--csv", str(self.place / "c.csv"), *places, "--estimators", "sumo", "pairwise"]

    def start(self, limit: int | None = None, user: int | None = None) -> subprocess.Popen[bytes]:
        """Starts it; with a `limit` no file may grow beyond so many bytes, which is what a full disk looks like."""
        environment = {k: v for k, v in os.environ.items() if k != "MUJOCO_LIB"}
        environment |= {"OFFING_HOME": str(self.home), "MINARI_DATASETS_PATH": str(self.place / "minari")}

        def full() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # an error of the write instead, as of a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        return subprocess.Popen(
            [self.bench.program, "-q", "--threads", "2", *self.words()], cwd=self.place, env=environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=full if limit is not None else None, user=user, group=user,
            extra_groups=None if user is None else [],
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
        places = {"data make": "home/datasets/*.hdf5", "calibrate": "c.csv", "reproduce": "tables/*", "fetch": "minari/**/*"}
        return {path.name: path.read_bytes() for path in self.files(places[self.kind])}

    def names(self) -> set[str]:
        """Every file. A stop saves a checkpoint of its own, a damaged one is set aside on purpose, a lock is whoever's is first."""
        all_files = (path for path in self.place.rglob("*") if path.is_file() and path.suffix not in (".damaged", ".lock"))
        number = lambda path: path.with_stem("N") if path.parent.name == "checkpoints" and path.stem.isdigit() else path
        return {str(number(path).relative_to(self.place)) for path in all_files}

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
    made = job.files("run/**/checkpoints/*.safetensors", "home/models/*/*", "home/index/*.knn*", "minari/**/*.partial")
    if not made:
        return None
    path = rng.choice(sorted(made))
    os.truncate(path, path.stat().st_size // 2)
    return "torn file"


def deleted(job: Job, rng: random.Random) -> str | None:
    """A file is gone that is made again."""
    made = job.files("run/**/checkpoints/*.safetensors", "home/models/*/*", "home/index/*.knn*", "run/**/events.out*", "minari/**/*.partial*")
    if not made:
        return None
    rng.choice(sorted(made)).unlink()
    return "deleted file"


def from_the_future(job: Job, _: random.Random) -> str | None:
    """The clock went back a day since the files were written."""
    for path in job.files("run/**/*", "home/models/**/*", "home/index/*", "minari/**/*"):
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
    """All files may only be read: refused in one line, or done without them."""
    if os.geteuid() == 0:
        process = job.start(user=NOBODY)  # root writes anywhere
        said = process.communicate(timeout=600)[1].decode(errors="replace")
    else:
        places = [place for place in (job.dir, job.home, job.place) if place.is_dir()]
        for place in places:
            place.chmod(0o555)
        try:
            process = job.start()
            said = process.communicate(timeout=600)[1].decode(errors="replace")
        finally:
            for place in places:
                place.chmod(0o755)
    if process.returncode not in (0, 2) or "panicked" in said or (process.returncode and len(said.splitlines()) > 3):
        raise Lost(f"{job.kind}: without the right to write it ended with {process.returncode}: {said}")
    return "read-only"


HARM = [torn, torn, deleted, deleted, from_the_future, full_disk, read_only, second_process]


class Bench:
    """The program, the undisturbed outcomes, and the counts."""

    def __init__(self, program: str, simulator: Path | None, work: Path, rng: random.Random) -> None:
        self.work, self.rng = work, rng
        # A copy, which no build replaces and every user may start.
        self.program = shutil.copy(program, work / "offing")
        self.counts: collections.Counter[str] = collections.Counter()
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.hub = f"http://127.0.0.1:{server.server_port}/"
        self.engine, self.data = work / "fetched" / "mujoco", work / "hopper-random.hdf5"
        if simulator is not None and simulator.is_dir():
            shutil.copytree(simulator, self.engine, ignore=shutil.ignore_patterns(".*"))
        environment = os.environ | {"OFFING_HOME": str(work / "fetched")}
        make = [self.program, "-q", "data", "make", "hopper-random", "--rows", "3000", "--out", str(self.data)]
        subprocess.run(make, check=True, env=environment, stdout=subprocess.DEVNULL)
        self.whole: dict[str, tuple[dict[str, bytes], set[str]]] = {}
        self.seconds: dict[str, float] = {}

    def undisturbed(self, kind: str) -> tuple[dict[str, bytes], set[str]]:
        """What such a job ends with; the first time, it is run for that."""
        if kind not in self.whole:
            job = Job(self, kind, f"whole {kind}")
            self.seconds[kind] = job.finish()
            self.whole[kind] = job.outcome(), job.names()
            if not self.whole[kind][0]:
                raise SystemExit(f"{kind}: an undisturbed one left nothing to compare")
        return self.whole[kind]

    def round(self, number: int, kills: int) -> int:
        """Kills one job up to `kills` times, harms it, lets it finish; how many kills met a living process."""
        kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
        wanted, names = self.undisturbed(kind)
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
        found = job.outcome()
        if found.keys() != wanted.keys():
            raise Lost(f"{kind}: wrote {sorted(found)}, undisturbed {sorted(wanted)}")
        differs = [name for name in wanted if found[name] != wanted[name]]
        if differs:
            raise Lost(f"{kind}: {', '.join(differs)} differ from an undisturbed run")
        # What was deleted after it was needed is not made again; what nobody needs may not be there.
        if left := job.names() - names:
            raise Lost(f"{kind}: left behind {sorted(left)}")
        shutil.rmtree(job.place)
        return done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop then, whatever the number of kills")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--program", default="target/debug/offing")
    parser.add_argument("--simulator", type=Path, help="the directory mujoco of a home, instead of fetching it")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="chaos-"))
    work.chmod(0o755)
    began, kills, rounds, lost = time.monotonic(), 0, 0, 0
    bench = Bench(args.program, args.simulator, work, random.Random(args.seed))
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
