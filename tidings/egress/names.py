"""Name resolution with the system's resolver on dedicated threads.

The system's resolver cannot be interrupted, and a name whose servers are dead blocks its thread for many seconds. So it
does not use the threads that write files, nor the few that the event loop has for names. The threads are daemons, which
do not delay the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import Counter

REFUSED = Counter("tidings_outgoing_lookups_refused_total", "Name lookups refused because too many waited")

THREADS = 16
THREADS_OF_A_NAME = 2  # a lost packet blocks one of them, a dead name no more than these
MAX_WAITING = 1000  # callers, for all names together; one more is refused

Resolved = tuple[socket.AddressFamily, str]  # the address as text, with the zone of a link-local one
ResolveName = Callable[[str], Sequence[Resolved]]


class TooManyLookups(OSError):
    """Too many callers wait for names: try again, as some of them will have a result soon."""


@dataclasses.dataclass(slots=True, eq=False)
class _Lookup:
    """One name that a caller waits for or a thread resolves."""

    host: str
    # Threads that resolve it.
    threads: int = 0
    # Callers that wait for it.
    waiting: set[asyncio.Future[Sequence[Resolved]]] = dataclasses.field(default_factory=set)


class NameResolver:
    """Resolves names to addresses, on one event loop; caches nothing.

    A caller of a name that `THREADS_OF_A_NAME` threads already resolve gets their result. Names without a free thread
    wait in order.
    """

    def __init__(self, resolve_name: ResolveName | None = None, *, max_waiting: int = MAX_WAITING) -> None:
        """ask(host): resolves a name, in a thread; raises `OSError`. `None`: the system's resolver.
        max_waiting: callers.
        """
        self._resolve_name = resolve_name or _resolve_by_system
        self._max_waiting = max_waiting
        self._lookups: dict[str, _Lookup] = {}
        # Names that wait for a thread, in order. Each name that a caller waits for is here, or has a thread.
        self._unresolved: dict[_Lookup, None] = {}
        self._threads = 0
        self._waiting = 0

    @property
    def unresolved(self) -> int:
        """Names that a caller waits for or a thread resolves."""
        return len(self._lookups)

    @property
    def waiting(self) -> int:
        """Callers without a result."""
        return self._waiting

    async def __call__(self, host: str, port: int) -> Sequence[Resolved]:
        """Return the addresses of `host`, best first; they do not depend on the port.

        Raises `OSError` when there are none or resolving fails, `TooManyLookups` when too many callers wait. Has no
        time limit: the caller sets a deadline.
        """
        if self._waiting >= self._max_waiting:
            REFUSED.inc()
            raise TooManyLookups("too many name lookups are in progress: the resolver is slow or does not respond")
        lookup = self._lookups.setdefault(host, _Lookup(host))
        future: asyncio.Future[Sequence[Resolved]] = asyncio.get_running_loop().create_future()
        lookup.waiting.add(future)
        self._waiting += 1
        try:
            if lookup.threads < THREADS_OF_A_NAME:
                self._unresolved[lookup] = None
                self._start()
            return await future
        finally:
            if future.done() and not future.cancelled():
                # Mark the error as retrieved: a caller that was cancelled just now does not.
                future.exception()
            self._waiting -= 1
            lookup.waiting.discard(future)
            self._remove(lookup)

    def _start(self) -> None:
        """Give the free threads to the names that wait first."""
        loop = asyncio.get_running_loop()
        while self._unresolved and self._threads < THREADS:
            lookup = next(iter(self._unresolved))
            del self._unresolved[lookup]
            # Another thread may have answered its callers.
            if not lookup.waiting:
                continue
            thread = threading.Thread(target=self._run, args=(loop, lookup), name="name lookup", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                if not lookup.threads:
                    _resolve_futures(lookup, (), TooManyLookups(f"no name can be looked up: {error}"))
                continue
            self._threads += 1
            lookup.threads += 1

    def _run(self, loop: asyncio.AbstractEventLoop, lookup: _Lookup) -> None:
        addresses: Sequence[Resolved] = ()
        error: BaseException | None = None
        try:
            addresses = self._resolve_name(lookup.host)
        except BaseException as raised:
            error = raised
        # The loop may be closed, and then has no callers.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._ended, lookup, addresses, error)

    def _ended(self, lookup: _Lookup, addresses: Sequence[Resolved], error: BaseException | None) -> None:
        self._threads -= 1
        lookup.threads -= 1
        # Keep an error back while another thread resolves the same name, as it may succeed.
        if error is None or not lookup.threads:
            _resolve_futures(lookup, addresses, error)
        self._remove(lookup)
        self._start()

    def _remove(self, lookup: _Lookup) -> None:
        if not lookup.waiting and not lookup.threads and self._lookups.get(lookup.host) is lookup:
            del self._lookups[lookup.host]
            self._unresolved.pop(lookup, None)


def _resolve_futures(lookup: _Lookup, addresses: Sequence[Resolved], error: BaseException | None) -> None:
    for future in lookup.waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(addresses)
        else:
            future.set_exception(error)
    lookup.waiting.clear()


def _resolve_by_system(host: str) -> Sequence[Resolved]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "not a host name") from error
    return [(family, _with_zone(address)) for family, _, _, _, address in found if family in _FAMILIES]


_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def _with_zone(address: tuple[Any, ...]) -> str:
    text = str(address[0])
    if len(address) == 4 and address[3] and "%" not in text:
        return f"{text}%{address[3]}"
    return text
