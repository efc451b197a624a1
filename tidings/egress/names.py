"""Looking names up with the system's resolver, in threads that do nothing else.

The system's resolver cannot be interrupted, and a name whose servers are dead holds its thread for many seconds. So the
threads are not those in which files are written, nor the few that the event loop has for names; they are daemons, which
hold up no end of the process.
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

REFUSED = Counter("tidings_outgoing_lookups_refused_total", "Names that were not looked up because too many waited")

THREADS = 16
THREADS_OF_A_NAME = 2  # a lost packet holds up one of them, a dead name no more than these
MAX_WAITING = 1000  # callers, of whatever name; one more is refused

Resolved = tuple[socket.AddressFamily, str]  # the address as text, with the zone of a link-local one
Ask = Callable[[str], Sequence[Resolved]]


class TooManyLookups(OSError):
    """Too many callers wait for names; some will be answered soon."""


@dataclasses.dataclass(slots=True, eq=False)
class _Question:
    """One name while somebody waits for it or a thread asks for it."""

    host: str
    threads: int = 0
    waiting: set[asyncio.Future[Sequence[Resolved]]] = dataclasses.field(default_factory=set)


class Names:
    """The addresses of names. Of one event loop; remembers no answer.

    Who asks for a name that is being looked up often enough gets that answer. Names for which no thread is free wait
    their turn.
    """

    def __init__(self, ask: Ask | None = None, *, max_waiting: int = MAX_WAITING) -> None:
        """ask(host): called in a thread; raises `OSError`. By default the system's resolver."""
        self._ask = ask or _ask_system
        self._max_waiting = max_waiting
        self._questions: dict[str, _Question] = {}
        # In this order the threads that become free are given away. Each question that somebody waits for is here, or
        # has a thread.
        self._turns: dict[_Question, None] = {}
        self._threads = 0
        self._waiting = 0

    @property
    def unresolved(self) -> int:
        """Names that somebody waits for or a thread asks for."""
        return len(self._questions)

    @property
    def waiting(self) -> int:
        """Callers without an answer."""
        return self._waiting

    async def __call__(self, host: str, port: int) -> Sequence[Resolved]:
        """The addresses of `host`, best first; they do not depend on the port.

        Raises `OSError` when it has none or nobody can say, `TooManyLookups` when too many wait. Takes as long as the
        caller lets it: put a deadline around it.
        """
        if self._waiting >= self._max_waiting:
            REFUSED.inc()
            raise TooManyLookups("too many names are being looked up: the resolver is slow, or does not answer")
        question = self._questions.setdefault(host, _Question(host))
        answer: asyncio.Future[Sequence[Resolved]] = asyncio.get_running_loop().create_future()
        question.waiting.add(answer)
        self._waiting += 1
        try:
            if question.threads < THREADS_OF_A_NAME:
                self._turns[question] = None
                self._start()
            return await answer
        finally:
            if answer.done() and not answer.cancelled():
                # A caller that was cancelled just now leaves nobody to look at the error.
                answer.exception()
            self._waiting -= 1
            question.waiting.discard(answer)
            self._forget(question)

    def _start(self) -> None:
        """Give the free threads to those whose turn it is."""
        loop = asyncio.get_running_loop()
        while self._turns and self._threads < THREADS:
            question = next(iter(self._turns))
            del self._turns[question]
            # Those who waited may have been answered by another thread.
            if not question.waiting:
                continue
            thread = threading.Thread(target=self._run, args=(loop, question), name="name lookup", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                if not question.threads:
                    _answer(question, (), TooManyLookups(f"no name can be looked up: {error}"))
                continue
            self._threads += 1
            question.threads += 1

    def _run(self, loop: asyncio.AbstractEventLoop, question: _Question) -> None:
        addresses: Sequence[Resolved] = ()
        error: BaseException | None = None
        try:
            addresses = self._ask(question.host)
        except BaseException as raised:
            error = raised
        # The loop may be closed: nobody waits any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._ended, question, addresses, error)

    def _ended(self, question: _Question, addresses: Sequence[Resolved], error: BaseException | None) -> None:
        self._threads -= 1
        question.threads -= 1
        # While another thread asks for the same, it may do better than an error.
        if error is None or not question.threads:
            _answer(question, addresses, error)
        self._forget(question)
        self._start()

    def _forget(self, question: _Question) -> None:
        if not question.waiting and not question.threads and self._questions.get(question.host) is question:
            del self._questions[question.host]
            self._turns.pop(question, None)


def _answer(question: _Question, addresses: Sequence[Resolved], error: BaseException | None) -> None:
    for answer in question.waiting:
        if answer.done():
            continue
        if error is None:
            answer.set_result(addresses)
        else:
            answer.set_exception(error)
    question.waiting.clear()


def _ask_system(host: str) -> Sequence[Resolved]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "not the name of a host") from error
    return [(family, _with_zone(address)) for family, _, _, _, address in found if family in _FAMILIES]


_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def _with_zone(address: tuple[Any, ...]) -> str:
    text = str(address[0])
    if len(address) == 4 and address[3] and "%" not in text:
        return f"{text}%{address[3]}"
    return text
