"""The documentation as a site: checks its links and builds it with mdBook.

    python scripts/book.py check              # every link and anchor of the Markdown files; SUMMARY.md lists every page
    python scripts/book.py build --out book   # needs `mdbook` (cargo install --locked mdbook); `make book` installs it

Pages stay in docs/ as they are read on a forge. Links out of docs/ (sources, presets, raw results) would lead nowhere on a site,
so `build` copies what they name below docs/repository of a staging directory, and has mdBook render Markdown files among them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SUMMARY = DOCS / "SUMMARY.md"

FENCE = re.compile(r"^(```|~~~)", re.M)
# An image, or a link with up to one image inside; the target without a title.
LINK = re.compile(r"(!?\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\)|\[[^\]]*\])*\]\()([^)\s]+)((?:\s+\"[^\"]*\")?\))")
SOURCE = re.compile(r"(<(?:img|source|a)\b[^>]*?\b(?:src|srcset|href)=\")([^\"]+)(\")")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.M)


def pages() -> list[Path]:
    """Every Markdown file that readers see."""
    found = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    for place in ("docs", "experiments", "policies", "crates/knn"):
        found += (ROOT / place).rglob("*.md")
    return sorted(set(found))


def prose(text: str) -> Iterator[tuple[str, bool]]:
    """Pieces of a page, each with whether it is code: links stand only in what is not."""
    inside, start = False, 0
    for match in FENCE.finditer(text):
        if not inside:
            yield text[start : match.start()], False
            start = match.start()
        else:
            end = text.find("\n", match.end())
            end = len(text) if end < 0 else end
            yield text[start:end], True
            start = end
        inside = not inside
    yield text[start:], inside


def without_code(text: str) -> str:
    """The page with code blanked, so that places stay where they are."""
    plain = "".join(re.sub(r"[^\n]", " ", piece) if code else piece for piece, code in prose(text))
    return re.sub(r"`[^`\n]*`", lambda m: " " * len(m.group()), plain)


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub and mdBook make it."""
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in "-_ ")
    return kept.strip().replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = path.read_text()
    plain = "".join(piece for piece, code in prose(text) if not code)
    found: set[str] = set()
    for match in HEADING.finditer(plain):
        name, number = anchor(match.group(1)), 1
        while (name if number == 1 else f"{name}-{number - 1}") in found:
            number += 1
        found.add(name if number == 1 else f"{name}-{number - 1}")
    return found | set(re.findall(r"<a id=\"([^\"]+)\"", plain))


def is_outside(target: str) -> bool:
    return bool(re.match(r"[a-z][a-z0-9+.-]*:", target))


def on_the_forge(page: Path, target: str) -> bool:
    """Badges of workflows: links that climb out of the repository to the forge's own pages."""
    return page == ROOT / "README.md" and target.startswith("../../actions/")


def check_links() -> list[str]:
    wrong = []
    for page in pages():
        text = page.read_text()
        plain = without_code(text)
        for match in [*LINK.finditer(plain), *SOURCE.finditer(plain)]:
            target = match.group(2)
            if is_outside(target) or on_the_forge(page, target):
                continue
            line = plain.count("\n", 0, match.start()) + 1
            place = f"{page.relative_to(ROOT)}:{line}"
            name, _, fragment = target.partition("#")
            path = (page.parent / unquote(name)).resolve() if name else page
            if not path.exists():
                wrong.append(f"{place}: {target}: there is no such file")
            elif not path.is_relative_to(ROOT):
                wrong.append(f"{place}: {target}: leads out of the repository")
            elif fragment and path.suffix == ".md" and fragment not in anchors(path):
                wrong.append(f"{place}: {target}: no heading of {path.relative_to(ROOT)} has this anchor")
    return wrong


def listed() -> list[Path]:
    return [(DOCS / match.group(2)).resolve() for match in LINK.finditer(SUMMARY.read_text())]


def check_summary() -> list[str]:
    known = listed()
    missing = [page for page in sorted(DOCS.rglob("*.md")) if page != SUMMARY and page not in known]
    return [f"docs/SUMMARY.md: {page.relative_to(DOCS)} is not listed; add it where a reader would look" for page in missing]


# --- staging ----------------------------------------------------------------------------------------------------------


def staged(path: Path, stage: Path) -> Path:
    """Where a file of the repository lies in the staging directory."""
    if path.is_relative_to(DOCS):
        return stage / "docs" / path.relative_to(DOCS)
    return stage / "docs" / "repository" / path.relative_to(ROOT)


def linked_markdown(path: Path) -> Path | None:
    """The page that a link to this path opens: itself, or a directory's README."""
    if path.is_dir():
        path = path / "README.md"
    return path if path.suffix == ".md" and path.is_file() else None


def stage_all(stage: Path) -> None:
    """Copies docs/ and all that it links to, with links that lead to the copies."""
    shutil.rmtree(stage, ignore_errors=True)
    (stage / "docs").mkdir(parents=True)
    shutil.copy(ROOT / "book.toml", stage)
    for path in DOCS.rglob("*"):
        if path.is_file() and path.suffix != ".md":
            target = staged(path, stage)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    open_pages, done, unlisted, directories = [SUMMARY, *listed()], set(), [], set()
    while open_pages:
        page = open_pages.pop()
        if page in done:
            continue
        done.add(page)
        text, markdown, linked = rewritten(page, stage)
        if page != SUMMARY and page not in listed():
            unlisted.append(page)
        open_pages += markdown
        directories |= linked
        target = staged(page, stage)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    with staged(SUMMARY, stage).open("a") as summary:
        # Rendered because a page leads there; folded away at the end of the list.
        if unlisted or directories:
            summary.write("\n# Behind the numbers\n\n")
        entries = [(page.parent if page.name == "README.md" else page, staged(page, stage)) for page in unlisted]
        entries += [(directory, list_files(directory, stage)) for directory in directories]
        for source, page in sorted(entries):
            title = source.relative_to(ROOT).as_posix().removeprefix("experiments/runs/")
            summary.write(f"- [{title}]({page.relative_to(stage / 'docs').as_posix()})\n")


def copied(path: Path, stage: Path) -> Path:
    """The copy of a file that is no page. A browser shows text of an unknown kind only under a name that it knows."""
    copy = staged(path, stage)
    if path.suffix in {".rs", ".toml", ".py", ".jsonl", ".csv", ".md", ".tex"} and not path.is_relative_to(DOCS):
        copy = copy.with_name(copy.name + ".txt")
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, copy)
    return copy


def list_files(directory: Path, stage: Path) -> Path:
    """A page with the files of a directory, which are copied."""
    page = staged(directory, stage) / "files.md"
    page.parent.mkdir(parents=True, exist_ok=True)
    name = directory.relative_to(ROOT).as_posix()
    lines = [f"# {name}", ""]
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        link = copied(path, stage).relative_to(page.parent).as_posix()
        lines.append(f"- [{path.relative_to(directory).as_posix()}](<{link}>)")
    page.write_text("\n".join([*lines, ""]))
    return page


def rewritten(page: Path, stage: Path) -> tuple[str, list[Path], set[Path]]:
    """A page's text with links to copies, which are made; and the Markdown files and directories that it leads to."""
    text, markdown_files, directories = page.read_text(), [], set()
    plain, here = without_code(text), staged(page, stage).parent
    edits: list[tuple[int, int, str]] = []
    for match in [*LINK.finditer(plain), *SOURCE.finditer(plain)]:
        target = match.group(2)
        name, hash_mark, fragment = target.partition("#")
        if is_outside(target) or on_the_forge(page, target) or not name:
            continue
        path = (page.parent / unquote(name)).resolve()
        markdown = linked_markdown(path)
        if markdown is not None:
            markdown_files.append(markdown)
            copy = staged(markdown, stage)
        elif path.is_dir():
            directories.add(path)
            copy = staged(path, stage) / "files.md"
        else:
            copy = copied(path, stage)
        new = Path(os.path.relpath(copy, here)).as_posix() + hash_mark + fragment
        edits.append((match.start(2), match.end(2), new))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text, markdown_files, directories


def build(out: Path, mdbook: str) -> None:
    stage = ROOT / "target" / "book"
    stage_all(stage)
    subprocess.run([mdbook, "build", str(stage), "--dest-dir", str(out.resolve())], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="links, anchors, SUMMARY.md")
    builder = commands.add_parser("build", help="the site")
    builder.add_argument("--out", type=Path, default=ROOT / "book")
    builder.add_argument("--mdbook", default="mdbook")
    args = parser.parse_args()
    wrong = check_links() + check_summary()
    for line in wrong:
        print(line, file=sys.stderr)
    if args.command == "build" and not wrong:
        build(args.out, args.mdbook)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
