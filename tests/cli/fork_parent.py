"""`python -m tests.cli.fork_parent`: parent of a fork server, whose children do what the variable `DO` states."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any

from cli.fork_server import ForkedProcess, ForkServer, ForkServerEnded

# Created before the fork, so that children share it.
LOADED = {"at": time.monotonic()}


def child(pipes: Mapping[str, int]) -> int:
    """Write what this child sees to its pipe `ready`, then act."""
    seen = {
        "server": os.getppid(),
        "environment": dict(os.environ),
        "descriptors": sorted(os.listdir("/proc/self/fd"), key=int)[:-1],
        "loaded": LOADED["at"],
        "leads its session": os.getsid(0) == os.getpid(),
        "ignores SIGTERM": signal.getsignal(signal.SIGTERM) is signal.SIG_IGN,
    }
    with os.fdopen(pipes["ready"], "w") as pipe:
        json.dump(seen, pipe)
    if os.environ["DO"] == "raise":
        raise RuntimeError("the child has failed")
    if os.environ["DO"] == "stay":
        signal.pause()
    return 3


async def start(server: ForkServer, **variables: str) -> tuple[ForkedProcess, Any]:
    """Start a child; return it, and what it sees."""
    read, write = os.pipe()
    process = await server.spawn(variables, {"ready": write})
    os.close(write)
    with os.fdopen(read) as pipe:
        said = await asyncio.to_thread(pipe.read)
    return process, json.loads(said)


async def main(server: ForkServer, unused: int) -> dict[str, Any]:
    """Return what happened."""
    staying, seen = await start(server, DO="stay", ONLY="this")
    others = [(await start(server, DO=what))[0] for what in ("return", "raise")]
    statuses = [await other.wait() for other in others]
    # Sent to all processes of a service by its supervisor; a child has not inherited the server's indifference.
    pid = seen["server"]
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    staying.terminate()
    statuses.append(await staying.wait())
    staying.terminate()
    killed, _ = await start(server, DO="stay")
    killed.kill()
    statuses.append(await killed.wait())
    left, _ = await start(server, DO="stay")
    os.kill(pid, signal.SIGKILL)
    await server.ended.wait()
    statuses.append(await left.wait())
    os.kill(left.pid, signal.SIGKILL)
    try:
        await start(server, DO="stay")
        refused = ""
    except ForkServerEnded as error:
        refused = str(error)
    server.close()
    return {"seen": seen, "unused": unused, "loaded": LOADED["at"], "statuses": statuses, "refused": refused}


async def stay(server: ForkServer) -> None:
    """Print the ids of the server and of a child, and wait."""
    staying, seen = await start(server, DO="stay")
    print(json.dumps({"server": seen["server"], "child": staying.pid}), flush=True)
    await asyncio.Event().wait()


def terminate_early() -> None:
    """Send SIGTERM to a child of the server at once, while it ignores signals as the server does."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        os.kill(os.getpid(), signal.SIGTERM)


async def start_one(server: ForkServer) -> int:
    """Return the exit status of a child."""
    return await (await server.spawn({"DO": "stay"}, {"ready": pipe[1]})).wait()


if __name__ == "__main__":
    pipe = os.pipe()
    if sys.argv[1:] == ["early"]:
        os.register_at_fork(after_in_child=terminate_early)
    forking = ForkServer.start(child, pipe)
    if sys.argv[1:] == ["stay"]:
        asyncio.run(stay(forking))
    if sys.argv[1:] == ["early"]:
        sys.exit(-asyncio.run(start_one(forking)))
    print(json.dumps(asyncio.run(main(forking, pipe[0]))))
