"""Start child processes that die with this one, however it dies."""

from __future__ import annotations

import concurrent.futures
import ctypes
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None

# The kernel sends the death signal when the *thread* that forked ends, not the process. So all children are forked by
# this one thread, which lives until the interpreter ends; `start` may then be called from any short-lived thread.
_forker = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="forker")


def _die_with_parent() -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def start(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: Any = subprocess.DEVNULL,
    stderr: Any = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a child in a new session, so that Ctrl-C reaches only the parent. It is killed when the parent ends."""

    def fork() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )

    return _forker.submit(fork).result()
