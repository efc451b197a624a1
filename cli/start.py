"""Entry point of the program `tidings`."""

from __future__ import annotations

import importlib
import os
import sys

_INTERRUPTED = 130


def run() -> int:
    """Run one command, as `cli.main.main` does. Ctrl-C during its imports ends the program without a traceback."""
    _open_streams()
    try:
        main = importlib.import_module("cli.main").main
    except KeyboardInterrupt:
        return _INTERRUPTED
    return int(main())


def _open_streams() -> None:
    """Open closed standard streams on /dev/null: else the next file or pipe would take their descriptors."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free descriptor.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", closefd=False))  # noqa: SIM115
