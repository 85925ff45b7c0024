"""Progress of a training: a line in a terminal, a bar in a notebook, nothing anywhere else."""

from __future__ import annotations

import html
import sys
import time
from typing import Any


def view(wanted: bool) -> View | None:
    """What shows progress here, if anything does."""
    if not wanted:
        return None
    if _in_notebook():
        return NotebookView()
    return TerminalView() if sys.stderr is not None and sys.stderr.isatty() else None


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    return shell is not None and type(shell.get_ipython()).__name__ == "ZMQInteractiveShell"


class View:
    """Turns progress into words."""

    def __init__(self) -> None:
        self._what, self._first, self._since = "", 0, time.monotonic()

    def show(self, what: str, done: int, total: int, last: float | None) -> None:
        """Shows how far something is; ``total`` is 0 where nobody knows."""
        if what != self._what:
            self._what, self._first, self._since = what, done, time.monotonic()
        seconds = time.monotonic() - self._since
        rate = (done - self._first) / seconds if seconds > 1 else 0.0
        words = f"{done:,}" + (f" of {total:,}" if total else "")
        if rate > 0 and total:
            words += f", {rate:,.0f} a second, {_duration((total - done) / rate)} left"
        if last is not None:
            words += f", return {last:.4g}"
        self.draw(what, words, done / total if total else None)

    def draw(self, what: str, words: str, share: float | None) -> None:
        """Draws it."""
        raise NotImplementedError

    def clear(self) -> None:
        """Takes it away."""


class TerminalView(View):
    """One line on standard error."""

    def draw(self, what: str, words: str, share: float | None) -> None:
        """Draws it."""
        bar = "" if share is None else "█" * round(20 * share) + "░" * (20 - round(20 * share)) + " "
        sys.stderr.write(f"\r\x1b[2K{what} {bar}{words}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Takes it away."""
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()


class NotebookView(View):
    """A bar below the cell."""

    def __init__(self) -> None:
        super().__init__()
        self._handle: Any = None

    def draw(self, what: str, words: str, share: float | None) -> None:
        """Draws it."""
        value = "" if share is None else f" value='{share:.4f}'"
        self._put(f"<div>{html.escape(what)} <progress max='1'{value}></progress> {html.escape(words)}</div>")

    def clear(self) -> None:
        """Takes it away."""
        if self._handle is not None:
            self._put("")

    def _put(self, text: str) -> None:
        from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

        if self._handle is None:
            self._handle = display(HTML(text), display_id=True)
        else:
            self._handle.update(HTML(text))


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}" if minutes >= 60 else f"{minutes}:{seconds:02}"
