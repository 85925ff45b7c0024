"""`python -m offing`: the command line, the same as the program `offing`."""

import signal
import sys

from offing import _offing


def main() -> None:
    """Runs the command line and leaves with its exit code."""
    # The command line listens to Ctrl-C itself; Python would only hear of it once the command is over.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_offing.main(sys.argv[1:]))


if __name__ == "__main__":
    main()
