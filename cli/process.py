"""Runs one process: settings from the environment, logging, the event loop, and a word to whoever started it."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from cli import process_records, unread_variables
from tidings import __version__
from tidings.runtime import crashpoints, garbage, log, private_files, sampling, service, tracing
from tidings.runtime.settings import LogSettings, ProcessSettings

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment,unused-ignore]

Settings = TypeVar("Settings", bound=ProcessSettings)
Ready = Callable[[Any], None]
Serve = Callable[[Settings, asyncio.Event, Ready], Awaitable[None]]

logger = logging.getLogger(__name__)

# Seconds from the loss of the supervisor to the end of a process that does not stop by itself.
ORPHAN_GRACE = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The two pipes by which `tidings up` and its children know of each other."""
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lifeline-fd", type=int, help=argparse.SUPPRESS)


def configure_logging(name: str, settings: LogSettings, write: Callable[[str], None] | None = None) -> None:
    """Log as the settings say, to standard error or to `write`, line by line."""
    target = {} if write is None else {"write": write}
    log.configure(name, level=settings.log_level, style=settings.log_style, **target)


def run(
    name: str,
    read: Callable[[Mapping[str, str]], Settings],
    serve: Serve[Settings],
    options: argparse.Namespace,
) -> int:
    """Read the settings, then serve until SIGINT or SIGTERM. Raises whatever `serve` raises, and `SettingsError`."""
    for pipe in filter(None, (options.ready_fd, options.lifeline_fd)):
        # Whoever started us looks for their ends, which children of our own must not keep open.
        os.set_inheritable(pipe, False)
    if options.lifeline_fd is not None:
        die_with(options.lifeline_fd)
    settings = read(os.environ)
    configure_logging(name, settings)
    unread_variables.report(os.environ)
    private_files.mend(settings.data_dir)
    for way in settings.ways():
        if way.is_open:
            logger.warning("plaintext.allowed", extra={"part": way.part, "address": way.variable, "host": way.host})
    crashpoints.arm(os.environ.get("TIDINGS_CRASH_AT"))
    with (
        process_records.kept(name, settings.data_dir, os.environ),
        sampling.profiling(settings.profile),
        tracing.kept(name, __version__, wanted=settings.traces),
    ):
        run_loop(_serve(name, settings, serve, options.ready_fd))
    return 0


def run_loop(main: Any) -> Any:
    """`asyncio.run` on uvloop where there is one."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop else None) as runner:
        return runner.run(main)


def die_with(lifeline: int) -> None:
    """Stop when the other end of the pipe closes, which is when the supervisor ends, however it ends.

    A thread of its own, so that a busy event loop does not delay it.
    """

    def watch() -> None:
        while os.read(lifeline, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(ORPHAN_GRACE)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


async def _serve(name: str, settings: Settings, serve: Serve[Settings], ready_fd: int | None) -> None:
    stop = asyncio.Event()
    service.stop_on_signals(stop)

    def ready(offered: Any) -> None:
        garbage.settle()
        where = describe(offered)
        logger.info("process.ready", extra=dict(where))
        if ready_fd is not None:
            with os.fdopen(ready_fd, "w") as pipe:
                pipe.write(json.dumps({"process": name, **where}) + "\n")

    await serve(settings, stop, ready)


def describe(offered: Any) -> Mapping[str, Any]:
    """A process's description of itself when it is ready, in plain values: a dataclass, a mapping or nothing."""
    if offered is None:
        return {}
    if dataclasses.is_dataclass(offered) and not isinstance(offered, type):
        return dataclasses.asdict(offered)
    return dict(offered)
