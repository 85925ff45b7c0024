"""Pages as a reader meets them, in a headless Chromium: a replay plays and scrubs, a report hides a series and reads a value.

Needs: pip install pytest; Chromium (Debian's package `chromium`)
Run:   cargo build && pytest scripts/test_pages.py
"""

import pathlib

import pytest

from browser import Browser, program
from built import offing

# Small networks, few steps: what is tested is the page.
SMALL = ["model.ensemble.hidden=[16]", "model.ensemble.decay=[0.0,0.0]", "model.ensemble.max_epochs=2", "sac.hidden=[16]", "rollout.starts=50", "rollout.length=2",
         "rollout.every=20", "train.episodes=1", "train.evaluate_every=10", "train.batch=16", "model.termination.kind=never"]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def chromium() -> None:
    if not program():
        pytest.fail("Chromium is missing: apt-get install chromium")


def succeeded(*arguments: object) -> str:
    done = offing("-q", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Two seeds of a model-based run on generated data."""
    place = tmp_path_factory.mktemp("pages")
    data = place / "hopper-random.hdf5"
    succeeded("data", "make", "hopper-random", "--rows", 1500, "--out", data)
    settings = [word for setting in SMALL for word in ("--set", setting)]
    for seed in (0, 1):
        succeeded("train", "mopo+sumo", data, "--steps", 80, "--seed", seed, "--dir", place / "runs" / f"s{seed}", *settings)
    return place


@pytest.fixture(scope="module")
def report(runs: pathlib.Path) -> pathlib.Path:
    succeeded("report", runs / "runs", "--out", runs / "report.html")
    return runs / "report.html"


def test_a_replay_plays_pauses_and_scrubs_in_step_with_its_charts(runs: pathlib.Path) -> None:
    page = runs / "replay.html"
    succeeded("replay", runs / "runs" / "s0", "-o", page, "--horizon", 5)
    with Browser() as browser:
        browser.open(page)
        # It begins by itself; the button pauses it.
        browser.until("+document.querySelector('.controls input').value > 0")
        browser.run("document.querySelector('.play').textContent === 'Pause' && document.querySelector('.play').click()")
        assert browser.run("document.querySelector('.play').textContent") == "Play"
        browser.run("const s = document.querySelector('.controls input'); s.value = 3; s.dispatchEvent(new Event('input'))")
        assert browser.run("document.querySelector('output').textContent").startswith("step 3 · 0.02 s")
        drawn = "document.querySelector('canvas').toDataURL()"
        before = browser.run(drawn)
        browser.run("s.value = 0; s.dispatchEvent(new Event('input'))")
        assert browser.run(drawn) != before, "another step is another picture"
        # The speed of the clock: half of it, half the steps.
        browser.run("document.querySelector('.controls select').value = '0.1'; document.querySelector('.play').click()")
        browser.until("+s.value > 0")
        browser.run("document.querySelector('.play').click()")
        # A click on a chart leads to that step and names the nearest logged rows.
        box = browser.run("(() => { const b = document.querySelector('.stack .plot').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        browser.run(f"scrollTo(0, {box[1]} - 100)")
        box = browser.run("(() => { const b = document.querySelector('.stack .plot').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        browser.point(box[0] + box[2] - 15, box[1] + box[3] / 2, click=True)
        last = browser.run("document.querySelector('.near').textContent")
        assert last.startswith("Step ") and "episode " in last and "distance" in last
        step = int(last.split()[1].rstrip(":"))
        assert browser.run("+s.value") == step and step > 3


def test_a_report_hides_a_series_reads_values_and_changes_its_scale(report: pathlib.Path) -> None:
    assert report.stat().st_size < 2_000_000
    with Browser() as browser:
        browser.open(report)
        browser.until("document.querySelectorAll('figure.chart svg[role=img]').length > 0")
        lines = "Chart.all[0].area.querySelectorAll('svg > path[stroke-dasharray]').length"
        assert browser.run(lines) == 1, "the data's mean"
        key = "[...document.querySelectorAll('.key')].find((k) => k.textContent.includes('data'))"
        browser.run(f"{key}.click()")
        assert browser.run(lines) == 0 and browser.run(f"{key}.getAttribute('aria-pressed')") == "false"
        # The mouse and the arrow keys read the same value, which is the one in the page's data.
        wanted = browser.run("(() => { const s = Chart.all[0].plot.series[0]; return number(s.y.at(-1)); })()")
        box = browser.run("(() => { const b = Chart.all[0].area.getBoundingClientRect(); return [b.right, b.top + b.height / 2]; })()")
        browser.point(box[0] - 16, box[1])
        assert wanted in browser.run("document.querySelector('.tip').textContent")
        browser.run("Chart.all[0].point(null); Chart.all[0].area.querySelector('svg').focus()")
        browser.press("End")
        assert wanted in browser.run("document.querySelector('.unseen').textContent")
        # Two seeds: a band, or a line each.
        assert browser.run("Chart.all[0].area.querySelectorAll('polygon').length") == 1
        browser.run("const m = document.querySelector('.tools select'); m.value = 'lines'; m.dispatchEvent(new Event('change'))")
        assert browser.run("Chart.all[0].area.querySelectorAll('polygon').length") == 0
        # Smoothing moves points, a logarithmic axis other ticks.
        path = "Chart.all[0].area.querySelector('path[fill=none]').getAttribute('d')"
        before = browser.run(path)
        browser.run("const w = document.querySelector('.tools input'); w.value = 0.9; w.dispatchEvent(new Event('input'))")
        assert browser.run(path) != before
        browser.run("document.querySelector('.small').click()")
        assert browser.run("Chart.all[0].y.log") is True


@pytest.mark.parametrize("width", [400, 1300])
def test_a_page_fits_its_window_in_light_and_dark(report: pathlib.Path, width: int) -> None:
    for dark, ink in ((False, "rgb(26, 32, 39)"), (True, "rgb(231, 234, 237)")):
        with Browser(width, 800, dark) as browser:
            browser.open(report)
            browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            browser.until("Chart.all.every((c) => c.area.querySelector('svg'))")
            assert browser.run("document.documentElement.scrollWidth") <= width, "nothing sticks out"
            assert browser.run("getComputedStyle(document.body).color") == ink
            small = "Math.min(...[...document.querySelectorAll('.plot text, td, p, summary')].map((e) => parseFloat(getComputedStyle(e).fontSize)))"
            assert browser.run(small) >= 12, "text is as large on a phone"
            # Every control has a name that a screen reader can say.
            nameless = "[...document.querySelectorAll('button, select, input')].filter((e) => !(e.textContent.trim() || e.ariaLabel || e.closest('label')))"
            assert browser.run(f"{nameless}.length") == 0
    with Browser(width) as browser:
        browser.open(report)
        browser.run("document.getElementById('theme').click(); document.getElementById('theme').click()")
        assert browser.run("getComputedStyle(document.body).color") == "rgb(231, 234, 237)", "dark by choice"


def test_own_data_have_pages_without_dashes_or_scores(tmp_path: pathlib.Path) -> None:
    rows = ["obs_0,obs_1,act_0,reward,episode"]
    rows += [f"{(i * 7 % 30) / 30},{(i * 11 % 30) / 30},{(i * 13 % 20) / 10 - 1},{(i % 30) / 30},{i // 30}" for i in range(900)]
    log = tmp_path / "tank.csv"
    log.write_text("\n".join(rows) + "\n")
    settings = [word for setting in SMALL for word in ("--set", setting)]
    succeeded("train", "mopo+sumo", log, "--steps", 20, "--dir", tmp_path / "run", *settings)
    page = tmp_path / "run" / "report.html"
    with Browser(400) as browser:
        browser.open(page)
        text = browser.run("document.querySelector('main').innerText")
        assert "No simulator knows this task" in text and "normalised" not in text
        cells = browser.run("[...document.querySelectorAll('td, dd')].map((c) => c.firstChild?.textContent)")
        assert "-" not in cells, cells


def test_every_page_of_the_repository_has_one_look(runs: pathlib.Path) -> None:
    data = runs / "hopper-random.hdf5"
    pages = [runs / f"{name}.html" for name in ("audit", "against", "dynamics")]
    offing("-q", "data", "audit", data, "-o", pages[0])
    offing("-q", "data", "audit", data, "--against", data, "-o", pages[1])
    few = ["--set", "model.max_epochs=1", "--set", "model.hidden=[8]", "--set", "model.decay=[0.0,0.0]", "--windows", 5]
    succeeded("dynamics", data, *few, "--report", pages[2])
    with Browser(400) as browser:
        for page in pages:
            browser.open(page)
            browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            browser.until("Chart.all.every((c) => c.area.querySelector('svg'))")
            assert browser.run("document.querySelectorAll('#theme').length") == 1, page
            assert browser.run("document.documentElement.scrollWidth") <= 400, page


def test_a_watched_page_reloads_itself_until_the_runs_are_finished(runs: pathlib.Path) -> None:
    page = runs / "watched.html"
    succeeded("report", "--watch", runs / "runs" / "s0", "--out", page, "--no-replay")
    assert "data-refresh" not in page.read_text(), "a finished run is not waited for"
