"""Names whose name servers do not respond delay only themselves."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
import uvloop

from tests.coreapp.signals import soon
from tidings.egress import addresses, names
from tidings.egress.guard import EgressGuard
from tidings.egress.names import NameResolver, Resolved, TooManyLookups
from tidings.egress.settings import OutgoingSettings

HERE = (socket.AF_INET, "127.0.0.1")
THERE = (socket.AF_INET, "127.0.0.2")


class Resolver:
    """Resolver that resolves or fails a name when the test decides; names that start with "quick" at once."""

    def __init__(self) -> None:
        self.lookups: list[str] = []
        self.under_way = 0
        self._changed = threading.Condition()
        self._results: dict[str, list[Sequence[Resolved] | OSError]] = {}
        self._ended = False

    def __call__(self, host: str) -> Sequence[Resolved]:
        with self._changed:
            self.lookups.append(host)
            if host.startswith("quick"):
                return [HERE]
            self.under_way += 1
            try:
                self._changed.wait_for(lambda: self._ended or self._results.get(host))
                result: Sequence[Resolved] | OSError = OSError("the test is over")
                if not self._ended:
                    result = self._results[host].pop(0)
            finally:
                self.under_way -= 1
            if isinstance(result, OSError):
                raise result
            return result

    def complete(self, host: str, result: Sequence[Resolved] | OSError) -> None:
        """Complete one lookup of the name."""
        with self._changed:
            self._results.setdefault(host, []).append(result)
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()


@pytest.fixture
def resolver() -> Iterator[Resolver]:
    found = Resolver()
    yield found
    found.end()


def begin(looked_up: NameResolver, *hosts: str) -> list[asyncio.Task[Sequence[Resolved]]]:
    async def resolve(host: str) -> Sequence[Resolved]:
        return await looked_up(host, 443)

    return [asyncio.create_task(resolve(host)) for host in hosts]


async def end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


Main = Callable[[Coroutine[Any, Any, None]], None]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_unanswered_lookups_do_not_block_other_threads(resolver: Resolver, run: Main) -> None:
    async def main() -> None:
        guard = EgressGuard(OutgoingSettings(addresses.LOOPBACK), NameResolver(resolver))
        # More than the event loop's own pool can have.
        waiting = [asyncio.create_task(guard.resolve(f"dead{number}.example", 443)) for number in range(40)]
        try:
            await soon(lambda: resolver.under_way > 0)
            async with asyncio.timeout(10):
                assert await asyncio.to_thread(lambda: "a file is written") == "a file is written"
            await soon(lambda: resolver.under_way == names.THREADS)
            await end(*waiting)
        finally:
            resolver.end()

    run(main())


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_hanging_lookup_does_not_block_process_exit(loop: str) -> None:
    program = f"""
import asyncio, socket, threading, {loop}
from tidings.egress.guard import EgressGuard
from tidings.egress.settings import ONLY_PUBLIC

asked = threading.Event()

def never(*args, **more):
    asked.set()
    threading.Event().wait()

socket.getaddrinfo = never

async def main():
    waiting = asyncio.create_task(EgressGuard(ONLY_PUBLIC).connect("dead.example", 443))
    await asyncio.to_thread(asked.wait)
    print("asked")

{loop}.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert (done.stdout, done.stderr) == ("asked\n", "")


async def test_at_most_two_threads_look_up_one_name_and_share_the_result(resolver: Resolver) -> None:
    looked_up = NameResolver(resolver)
    waiting = begin(looked_up, *["slow.example"] * 10)
    await soon(lambda: resolver.under_way == 2)
    resolver.complete("slow.example", [HERE])
    assert await asyncio.gather(*waiting) == [[HERE]] * 10
    assert resolver.lookups == ["slow.example"] * 2
    # Results are not cached: a new call gets a new result, though an old lookup still hangs.
    [later] = begin(looked_up, "slow.example")
    await soon(lambda: len(resolver.lookups) == 3)
    for _ in range(2):
        resolver.complete("slow.example", [THERE])
    assert await later == [THERE]


async def test_a_failed_lookup_is_ignored_while_another_for_the_name_is_running(resolver: Resolver) -> None:
    looked_up = NameResolver(resolver)
    waiting = begin(looked_up, *["flaky.example"] * 3)
    await soon(lambda: resolver.under_way == 2)
    resolver.complete("flaky.example", socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"))
    await soon(lambda: resolver.under_way == 1)
    resolver.complete("flaky.example", [HERE])
    assert await asyncio.gather(*waiting) == [[HERE]] * 3
    failing = begin(looked_up, "gone.example")
    resolver.complete("gone.example", socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    with pytest.raises(socket.gaierror):
        await failing[0]


async def test_queued_names_are_looked_up_in_order_except_cancelled_ones(resolver: Resolver) -> None:
    looked_up = NameResolver(resolver)
    dead = begin(looked_up, *(f"dead{number}.example" for number in range(names.THREADS)))
    await soon(lambda: resolver.under_way == names.THREADS)
    gone = begin(looked_up, "gone.example")
    patient = begin(looked_up, "quick.example")
    await soon(lambda: looked_up.waiting == names.THREADS + 2)
    await end(*gone)
    assert not patient[0].done()
    resolver.complete("dead3.example", [HERE])
    assert await patient[0] == [HERE]
    assert "gone.example" not in resolver.lookups
    await end(*dead)


async def test_cancelled_callers_leave_no_queued_lookups(resolver: Resolver) -> None:
    looked_up = NameResolver(resolver)
    await asyncio.gather(*begin(looked_up, *(f"quick{number}.example" for number in range(100))))
    for _ in range(10):
        impatient = begin(looked_up, *["dead.example"] * 10, *(f"dead{number}.example" for number in range(50)))
        await soon(lambda: looked_up.waiting == 60)
        await end(*impatient)
    assert len(resolver.lookups) == 100 + names.THREADS
    assert looked_up.unresolved <= names.THREADS
    resolver.end()
    await soon(lambda: not looked_up.unresolved)
    assert not looked_up.waiting
    assert await looked_up("quick.example", 443) == [HERE]


async def test_a_lookup_beyond_the_waiting_limit_raises_toomanylookups(resolver: Resolver) -> None:
    looked_up = NameResolver(resolver, max_waiting=3)
    guard = EgressGuard(OutgoingSettings(addresses.LOOPBACK), looked_up)
    waiting = begin(looked_up, *["dead.example"] * 3)
    await soon(lambda: looked_up.waiting == 3)
    with pytest.raises(TooManyLookups, match="too many name lookups are in progress"):
        await guard.connect("quick.example", 443)
    await guard.check("https://quick.example/")
    await end(*waiting)
    assert await looked_up("quick.example", 443) == [HERE]


async def test_the_default_resolver_is_the_system_s() -> None:
    found = await NameResolver()("localhost", 443)
    assert {text for _, text in found} <= {"127.0.0.1", "::1"}
    for host in ("a" * 70, "no-such-name.invalid"):
        with pytest.raises(socket.gaierror):
            await NameResolver()(host, 443)
