"""CPU profile of a process: its stacks sampled once per millisecond of CPU time.

`TIDINGS_PROFILE=path` enables it. `path` is written when the process ends normally, one line per stack with its count,
`outermost;…;innermost 12`: the format that flame graph programs read.
"""

from __future__ import annotations

import collections
import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from tidings.secrets import private_files

INTERVAL = 0.001  # seconds of CPU time of the whole process
MAX_DEPTH = 100


@contextlib.contextmanager
def profiling(path: str) -> Iterator[None]:
    """Sample the main thread while the block runs, then write `path`; an empty path does nothing."""
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

    earlier = signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, earlier)
        with open(path, "w", opener=private_files.opener) as file:
            file.writelines(f"{';'.join(stack)} {count}\n" for stack, count in stacks.most_common())
