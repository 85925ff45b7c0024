"""Counts lines of Rust code by crate: without tests, comments and blank lines.

    python scripts/code_lines.py [COMMIT]     the working tree, or a commit

Tests are files under tests/, files called tests.rs or *_tests.rs, and items behind #[cfg(test)]. The last lines name the
longest files, which no reader should have to scroll through.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path, PurePath

LONGEST = 5


def git(*args: str) -> str:
    return subprocess.run(["git", *args], capture_output=True, text=True, check=True).stdout


def sources(commit: str | None) -> dict[str, str]:
    """Path and text of every Rust file."""
    if commit is None:
        names = git("ls-files", "--cached", "--others", "--exclude-standard", "*.rs").split()
        return {name: Path(name).read_text() for name in names if Path(name).exists()}
    names = git("ls-tree", "-r", "--name-only", commit).split()
    return {name: git("show", f"{commit}:{name}") for name in names if name.endswith(".rs")}


def is_test(name: str) -> bool:
    path = PurePath(name)
    return "tests" in path.parts[:-1] or path.name == "tests.rs" or path.name.endswith("_tests.rs")


def code_lines(text: str) -> int:
    lines, count, i = text.splitlines(), 0, 0
    while i < len(lines):
        line = lines[i].strip()
        if line.startswith("#[cfg(test)]"):
            i = end_of_item(lines, i + 1)
            continue
        count += bool(line) and not line.startswith("//")
        i += 1
    return count


def end_of_item(lines: list[str], i: int) -> int:
    """The line after the item that starts at line i, attributes first: up to its `;` or its last closing brace."""
    while lines[i].strip().startswith("#["):
        i += 1
    if re.search(r";\s*$", lines[i]):
        return i + 1
    depth, opened = 0, False
    while i < len(lines) and not (opened and depth <= 0):
        depth += lines[i].count("{") - lines[i].count("}")
        opened |= "{" in lines[i]
        i += 1
    return i


def main() -> None:
    found = sources(sys.argv[1] if len(sys.argv) > 1 else None)
    by_crate: Counter[str] = Counter()
    for name, text in found.items():
        if not is_test(name):
            by_crate["/".join(PurePath(name).parts[:2])] += code_lines(text)
    for crate, count in sorted(by_crate.items()):
        print(f"{count:7,}  {crate}")
    print(f"{by_crate.total():7,}  in all")
    lengths = sorted(((len(text.splitlines()), name) for name, text in found.items()), reverse=True)
    for count, name in lengths[:LONGEST]:
        print(f"{count:7,}  lines with comments and tests in {name}")


if __name__ == "__main__":
    main()
