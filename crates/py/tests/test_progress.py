"""Progress in a terminal, in a notebook, and nowhere."""

import io
import sys
import types

import pytest

from offing import _progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_gets_one_line_that_goes_away(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    view = _progress.view(True)
    assert isinstance(view, _progress.TerminalView)
    view.show("training", 50, 100, 1.5)
    said = sys.stderr.getvalue()
    assert "training ██████████░░░░░░░░░░ 50 of 100, return 1.5" in said and "\n" not in said
    view.clear()
    assert sys.stderr.getvalue().endswith("\r\x1b[2K")


def test_a_training_shows_its_progress_and_clears_it(log, tmp_path, monkeypatch):
    import offing

    monkeypatch.setattr(sys, "stderr", Terminal())
    offing.train("bc", log, dir=tmp_path / "run", steps=200)
    assert "training" in sys.stderr.getvalue() and "200 of 200" in sys.stderr.getvalue()
    assert sys.stderr.getvalue().endswith("\r\x1b[2K")


def test_a_notebook_gets_a_bar(monkeypatch):
    shown = []

    class Handle:
        def update(self, text):
            shown.append(text)

    def display(text, display_id):
        shown.append(text)
        return Handle()

    shell = types.ModuleType("IPython")
    shell.get_ipython = lambda: type("ZMQInteractiveShell", (), {})()
    shell.display = types.ModuleType("IPython.display")
    shell.display.HTML, shell.display.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", shell.display)
    view = _progress.view(True)
    assert isinstance(view, _progress.NotebookView)
    view.show("<model>", 3, 0, None)
    view.show("training", 25, 100, None)
    view.clear()
    assert "<progress max='1'></progress> 3" in shown[0] and "&lt;model&gt;" in shown[0]
    assert "value='0.2500'" in shown[1] and shown[2] == ""


@pytest.mark.parametrize("wanted", [True, False])
def test_a_file_gets_nothing(wanted, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert _progress.view(wanted) is None


def test_durations_are_read_at_a_glance():
    assert [_progress._duration(s) for s in (5, 65, 3700)] == ["0:05", "1:05", "1:01:40"]
