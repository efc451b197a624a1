"""Coreapp as a Webapp sees it: a real link server with scripted responses."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import Any, TypeVar

from tidings.wire import connection as wire
from tidings.wire import core

Request = TypeVar("Request", bound=core.Frame)

LINK_KEY = "link key of the tests"
GROUP = "15550000000-1700000000"


class FakeCoreapp:
    """Coreapp that responds like a healthy one, unless the test scripts something else."""

    def __init__(self, key: str = LINK_KEY) -> None:
        self.requests: list[Any] = []  # all requests received, except greetings and pings
        self.greetings = 0
        self.version = core.LINK_VERSION  # of the link; 0 is a release that closes a connection on a ping
        self.stands_still = False  # True to respond to nothing, like a stopped process
        self._key = key
        # Response to each kind of request; None for no response.
        self._script: dict[type[core.Frame], Callable[[Any], core.Frame | None]] = {
            core.CheckContacts: _all_valid,
            core.AcceptMessage: lambda q: core.Accepted(n=q.n, id=f"gBEG{len(self.requests)}", wa_id=q.to),
            core.GetIdentity: lambda q: core.Identity(q.n, "Sjvjlx8G6Z0=", 1_602_532_300_000, True),
            core.AcknowledgeIdentity: lambda q: core.Done(n=q.n),
            core.MarkRead: lambda q: core.Done(n=q.n),
            core.GetHealth: lambda q: core.Health(n=q.n, gateway_status="connected", node="fake", shards=[0]),
            core.SettingsChanged: lambda q: core.Done(n=q.n),
            core.RequestCode: lambda q: core.Done(n=q.n),
            core.VerifyCode: lambda q: core.Done(n=q.n),
            core.ExportKeys: lambda q: core.Exported(n=q.n, data="the keys of " + q.account),
            core.RestoreKeys: lambda q: core.Done(n=q.n),
            core.CollectGarbage: lambda q: core.Done(n=q.n),
            core.CreateGroup: lambda q: core.GroupList(n=q.n, groups=[core.GroupEntry(GROUP, 1_700_000_000)]),
            core.ListGroups: lambda q: core.GroupList(n=q.n, groups=[core.GroupEntry(GROUP, 1_700_000_000)]),
            core.GetGroup: _describe_group,
            core.GetGroupInvite: lambda q: core.GroupInvite(n=q.n, link="https://join.tidings.invalid/code"),
            core.GetGroupIcon: lambda q: core.GroupIcon(n=q.n, kind="image/png", content=b"\x89PNG\r\n\x1a\nicon"),
            core.ChangeGroup: lambda q: core.Done(n=q.n),
            core.GetMetrics: lambda q: core.Metrics(n=q.n, text=""),
        }
        self._server: asyncio.Server | None = None
        self.connections: set[wire.Connection] = set()
        self._news = asyncio.Event()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def respond(self, kind: type[Request], make: Callable[[Request], core.Frame | None]) -> None:
        self._script[kind] = make

    def refuse(self, kind: type[core.Frame], code: int, details: str, retry_after: int = 0) -> None:
        self.respond(kind, lambda q: core.Refused(n=q.n, code=code, details=details, retry_after=retry_after))

    def requested(self, kind: type[Request]) -> list[Request]:
        return [request for request in self.requests if isinstance(request, kind)]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a request arrived that makes `holds()` true."""
        async with asyncio.timeout(30):
            while not holds():
                self._news = asyncio.Event()
                await self._news.wait()

    async def start(self) -> FakeCoreapp:
        """Listen. After a `stop` it listens on the same port again."""
        self._server = await wire.listen("127.0.0.1", self.port, core.Request, lambda: self)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def take_no_more(self) -> None:
        """Refuse new connections; open ones stay."""
        assert self._server is not None
        self._server.close()

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self.drop()
        # An aborted connection is closed in the next event-loop iteration.
        await asyncio.sleep(0)

    def drop(self) -> None:
        """Cut every connection."""
        for connection in list(self.connections):
            connection.abort("cut by the test")

    def opened(self, connection: wire.Connection) -> None:
        self.connections.add(connection)

    def received(self, connection: wire.Connection, frame: core.Request) -> None:
        if isinstance(frame, core.Hello):
            if not hmac.compare_digest(frame.key, self._key):
                connection.close("wrong key")
                return
            self.greetings += 1
            connection.send(core.Done(n=frame.n, version=self.version))
        elif isinstance(frame, core.Ping):
            if not self.version:
                connection.close("malformed frame")
            elif not self.stands_still:
                connection.send(core.Done(n=frame.n))
        else:
            self.requests.append(frame)
            response = None if self.stands_still else self._script[type(frame)](frame)
            if response is not None:
                connection.send(response)
        self._news.set()

    def closed(self, connection: wire.Connection, reason: str) -> None:
        self.connections.discard(connection)
        self._news.set()


def _all_valid(request: core.CheckContacts) -> core.Contacts:
    def contact(text: str) -> core.Contact:
        digits = "".join(character for character in text if character in "0123456789")
        valid = len(digits) >= 7
        return core.Contact(text, "valid" if valid else "invalid", digits if valid else "")

    return core.Contacts(n=request.n, contacts=[contact(text) for text in request.inputs])


def _describe_group(request: core.GetGroup) -> core.GroupDescription:
    members = ["15550000000", "15550110001"]
    return core.GroupDescription(request.n, request.id, "Lunch", "15550000000", 1_700_000_000, members, members[:1])
