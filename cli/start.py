"""Entry point of the program `tidings`."""

from __future__ import annotations

import importlib

_INTERRUPTED = 130


def run() -> int:
    """Run one command, as `cli.main.main` does. Ctrl-C during its imports ends the program without a traceback."""
    try:
        main = importlib.import_module("cli.main").main
    except KeyboardInterrupt:
        return _INTERRUPTED
    return int(main())
