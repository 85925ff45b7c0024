"""The checks of the documentation find what they are there to find."""

from __future__ import annotations

from pathlib import Path

import book
import pytest
import readme_figures
import run_docs


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two pages, an outside file and a summary."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "presets").mkdir()
    (tmp_path / "presets" / "a.toml").write_text("x = 1\n")
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        (tmp_path / name).write_text(f"# {name}\n")
    (tmp_path / "book.toml").write_text("")
    (docs / "SUMMARY.md").write_text("- [One](one.md)\n- [Contributing](../CONTRIBUTING.md)\n")
    (docs / "one.md").write_text("# One\n\n## A `code` word\n\n[b](#a-code-word) [p](../presets/a.toml) [dir](../presets)\n")
    for name, value in {"ROOT": tmp_path, "DOCS": docs, "SUMMARY": docs / "SUMMARY.md"}.items():
        monkeypatch.setattr(book, name, value)
    return tmp_path


def test_good_links_pass_and_bad_ones_are_named_with_their_line(site: Path) -> None:
    assert book.check_links() == [] and book.check_summary() == []
    page = site / "docs" / "one.md"
    page.write_text(page.read_text() + "\n[x](gone.md) [y](#nowhere) `[z](code.md)`\n\n```console\n[in](code.md)\n```\n<img src=\"no.svg\">\n")
    wrong = "\n".join(book.check_links())
    assert "docs/one.md:7: gone.md" in wrong and "docs/one.md:7: #nowhere" in wrong and "no.svg" in wrong
    assert "code.md" not in wrong, "code has no links"
    (site / "docs" / "two.md").write_text("# Two\n")
    assert "two.md is not listed" in book.check_summary()[0]


def test_a_staged_site_holds_what_its_pages_link_to(site: Path) -> None:
    stage = site / "stage"
    book.stage_all(stage)
    text = (stage / "docs" / "one.md").read_text()
    assert "(repository/presets/a.toml.txt)" in text and "(repository/presets/files.md)" in text
    assert (stage / "docs/repository/presets/a.toml.txt").read_text() == "x = 1\n"
    summary = (stage / "docs" / "SUMMARY.md").read_text()
    assert "(repository/CONTRIBUTING.md)" in summary and "repository/presets/files.md" in summary


def test_console_lines_are_read_with_their_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_docs, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- not run (fetch): needs a network -->\n```console\n$ offing data fetch x\n$ offing data list   # c\noutput\n```\n\n"
        "```console\n$ offing train a \\\n    --steps 3\n```\n<!-- not run: slow -->\n\ntext\n```console\n$ offing b\n```\n"
    )
    lines = [(line.text, line.reason) for line in run_docs.lines_of(page)]
    assert lines == [
        ("offing data fetch x", "needs a network"),
        ("offing data list   # c", None),
        ("offing train a     --steps 3", None),
        ("offing b", None),
    ], "a mark belongs to the block right below it"
    assert run_docs.without_comment("offing data audit x   # exit code 1: fix") == ("offing data audit x", "exit code 1: fix")


def test_commands_become_smaller_and_keep_their_meaning() -> None:
    assert run_docs.smaller("offing eval p --task hopper --episodes 20".split()) == "offing eval p --task hopper --episodes 1".split()
    assert run_docs.smaller("offing data list".split()) == ["offing", "data", "list"]
    command, reason = run_docs.runnable("tail -f steps.csv | offing score hopper.knn - --threshold 2.1")
    assert reason is None and command == "set -o pipefail; cat steps.csv | offing score hopper.knn - --threshold 2.1"
    assert run_docs.runnable("pip install .")[0] is None
    command, _ = run_docs.runnable("make no-such-target")
    assert command is not None and "exit 2" in command, "a target that the Makefile lacks is an error"


def test_figures_are_drawn_from_committed_numbers() -> None:
    bars = readme_figures.search_bars()
    assert bars[0][0] == "offing" and bars[-1][3] > 1000, "FAISS Flat is that much slower"
    assert all(sets.data is not None for sets in readme_figures.landfall_bars())
    assert readme_figures.draw_search(readme_figures.THEMES[0]).startswith("<svg")
