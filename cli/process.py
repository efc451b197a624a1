"""Runner of one process: settings from the environment, logging, event loop, and the ready message to its parent."""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, TypeVar

import prometheus_client

from cli import process_records, unread_variables
from tidings import __version__
from tidings.aio import crashpoints, service
from tidings.installation.settings import LogSettings, ProcessSettings
from tidings.observability import interpreter_gc, log, tracing
from tidings.secrets import private_files

INTERVAL = 0.001  # seconds of CPU time of the whole process
MAX_DEPTH = 100


@contextlib.contextmanager
def profiling(path: str) -> Iterator[None]:
    """Sample the main thread while the block runs, then write `path`; an empty path does nothing.

    SIGUSR2 discards the samples so far, so that a profile can leave out the start and a warm-up.
    """
    if not path:
        yield
        return
    stacks: collections.Counter[tuple[str, ...]] = collections.Counter()

    def sample(number: int, frame: FrameType | None) -> None:
        stack: list[str] = []
        while frame is not None and len(stack) < MAX_DEPTH:
            code = frame.f_code
            stack.append(f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}:{frame.f_lineno}")
            frame = frame.f_back
        stacks[tuple(reversed(stack))] += 1

    earlier = signal.signal(signal.SIGPROF, sample), signal.signal(signal.SIGUSR2, lambda *_: stacks.clear())
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in zip((signal.SIGPROF, signal.SIGUSR2), earlier, strict=True):
            signal.signal(number, handler)
        with open(path, "w", opener=private_files.opener) as file:
            file.writelines(f"{';'.join(stack)} {count}\n" for stack, count in stacks.most_common())


try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment,unused-ignore]

Settings = TypeVar("Settings", bound=ProcessSettings)
Ready = Callable[[Any], None]
Serve = Callable[[Settings, asyncio.Event, Ready], Awaitable[None]]

logger = logging.getLogger(__name__)

# Seconds between SIGTERM and SIGKILL after the supervisor is lost.
ORPHAN_GRACE = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options for the pipes between `tidings up` and its children."""
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--lifeline-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--variables-fd", type=int, help=argparse.SUPPRESS)


def configure_logging(name: str, settings: LogSettings, write: Callable[[str], None] | None = None) -> None:
    """Configure logging from the settings.

    write: called with each line; None to write to standard error.
    """
    target = {} if write is None else {"write": write}
    log.configure(name, level=settings.log_level, style=settings.log_style, **target)


def run(
    name: str,
    read: Callable[[Mapping[str, str]], Settings],
    serve: Serve[Settings],
    options: argparse.Namespace,
    *,
    fork: Callable[[Settings, Sequence[int]], None] | None = None,
) -> int:
    """Read the settings, then serve until SIGINT or SIGTERM. Raises the errors of `serve`, and `SettingsError`.

    fork(settings, pipes): called while this process has one thread; processes forked in it must close the pipes, for
        whose end the parent waits
    """
    pipes = [pipe for pipe in (options.ready_fd, options.lifeline_fd) if pipe is not None]
    for pipe in pipes:
        # This process's children must not inherit them.
        os.set_inheritable(pipe, False)
    if options.variables_fd is not None:
        # When the parent ends, this pipe closes too.
        more = wait_for_variables(options.variables_fd)
        if more is None:
            return 0
        os.environ.update(more)
    settings = read(os.environ)
    # The time at which each series began would be a fifth of all lines of a scrape.
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    if fork is not None:
        fork(settings, pipes)
    if options.lifeline_fd is not None:
        die_with(options.lifeline_fd)
    configure_logging(name, settings)
    unread_variables.report(os.environ)
    private_files.restrict_all(settings.data_dir)
    for endpoint in settings.endpoints():
        if endpoint.is_open:
            logger.warning(
                "plaintext.allowed", extra={"part": endpoint.part, "address": endpoint.variable, "host": endpoint.host}
            )
    crashpoints.arm(os.environ.get("TIDINGS_CRASH_AT"))
    with (
        process_records.recorded(name, settings.data_dir, os.environ),
        profiling(settings.profile),
        tracing.enabled(name, __version__, wanted=settings.traces),
    ):
        run_loop(_serve(name, settings, serve, options.ready_fd))
    return 0


def wait_for_variables(descriptor: int) -> Mapping[str, str] | None:
    """Wait for further environment variables, which the parent writes to a pipe as one JSON object.

    Returns `None` when the parent closes the pipe without writing, because it needs no process any more.
    """
    with os.fdopen(descriptor) as pipe:
        text = pipe.read()
    found: Mapping[str, str] | None = json.loads(text) if text else None
    return found


def run_loop(main: Any) -> Any:
    """Run a coroutine like `asyncio.run`, on uvloop if it is installed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if uvloop else None) as runner:
        return runner.run(main)


def die_with(lifeline: int) -> None:
    """Stop this process when the other end of the pipe closes, that is, when the supervisor ends for any reason.

    A separate thread waits for this, so that a busy event loop does not delay it.
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
        interpreter_gc.settle()
        where = describe(offered)
        logger.info("process.ready", extra=dict(where))
        if ready_fd is not None:
            with os.fdopen(ready_fd, "w") as pipe:
                pipe.write(json.dumps({"process": name, **where}) + "\n")

    await serve(settings, stop, ready)


def describe(offered: Any) -> Mapping[str, Any]:
    """Return the content of a process's ready message as a mapping of plain values.

    offered: a dataclass, a mapping or None.
    """
    if offered is None:
        return {}
    if dataclasses.is_dataclass(offered) and not isinstance(offered, type):
        return dataclasses.asdict(offered)
    return dict(offered)
