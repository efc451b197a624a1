"""Connections to hosts that others name, made to exactly the addresses that were checked.

Nothing is resolved again between the check and the connection, so a name whose addresses change (DNS rebinding) cannot
lead to an unchecked one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence

from prometheus_client import Counter

from tidings.egress import addresses, urls
from tidings.egress.names import NameResolver, Resolved
from tidings.egress.responses import ContentParser
from tidings.egress.settings import OutgoingSettings

log = logging.getLogger(__name__)

FORBIDDEN = Counter("tidings_outgoing_forbidden_total", "Connections refused because of their destination")

CHECK_SECONDS = 3.0  # seconds to resolve a name that is only checked
OTHERS_SECONDS = 5.0  # seconds to connect to each of several addresses except the last
MAX_ADDRESSES = 16  # addresses of one name that are checked

Lookup = Callable[[str, int], Awaitable[Sequence[Resolved]]]


class Forbidden(OSError):
    """The host must not be called. It may be allowed later, or resolve to another address.

    `str()` contains the host, the reason and the address.
    """

    def __init__(self, host: str, reason: str, address: str, *, variable: str) -> None:
        """variable: environment variable that would allow it"""
        where = host if address == host else f"{host} ({address})"
        rule = "which is always refused" if reason == addresses.NEVER else f"which {variable} does not list"
        super().__init__(f"{where} is {reason}, {rule}")
        self.host = host
        # Such as "a private address": reveals nothing about names that only this machine can resolve.
        self.reason = reason


class EgressGuard:
    """Checks and makes all connections to hosts that are not in the settings of the process."""

    def __init__(
        self, settings: OutgoingSettings, lookup: Lookup | None = None, *, check_seconds: float = CHECK_SECONDS
    ) -> None:
        """settings: allowed networks and proxy.
        lookup(host, port): returns the addresses of a name, best first; raises `OSError`. `None`: the system's.
        check_seconds: limit of resolving a name in `check`.
        """
        self._check_seconds = check_seconds
        self._allowed = settings.allowed
        self._variable = settings.variable
        self._proxy = settings.proxy
        for network in settings.allowed:
            if not network.prefixlen:
                # Such a network includes the machine's own network and other machines' private addresses.
                log.warning("egress.everything_allowed", extra={"network": str(network)})
        self._names = NameResolver()
        self._lookup = lookup or self._names

    async def resolve(self, host: str, port: int) -> list[Resolved]:
        """Return the addresses of `host` that may be called, at least one, best first.

        Raises `Forbidden` when it has only others, and `OSError` when the name cannot be resolved.
        """
        spelt = addresses.literal(host)
        if spelt is not None:
            found: Sequence[Resolved] = [_resolved(spelt)]
        else:
            found = await self._lookup(host, port)
        good: list[Resolved] = []
        refused: Forbidden | None = None
        for family, text in found[:MAX_ADDRESSES]:
            reason = addresses.refusal(ipaddress.ip_address(text), self._allowed)
            if not reason:
                good.append((family, text))
            elif refused is None:
                refused = Forbidden(host, reason, text, variable=self._variable)
        if good:
            return good
        if refused is None:
            raise socket.gaierror(socket.EAI_NONAME, "the name has no address")
        FORBIDDEN.inc()
        raise refused

    async def check(self, url: str) -> None:
        """Raise `Forbidden` for a URL whose addresses must not be called, and `ValueError` for an invalid URL.

        A name that cannot be resolved now is accepted: it is checked again at every connection.
        """
        host, port, _ = urls.parse(url).origin
        try:
            async with asyncio.timeout(self._check_seconds):
                await self.resolve(host, port)
        except Forbidden:
            raise
        except OSError:  # TimeoutError is one
            return

    async def connect(self, host: str, port: int) -> socket.socket:
        """Return a connected, non-blocking socket to the first checked address that accepts; the caller owns it.

        Raises `Forbidden`, and `OSError` when no address can be reached. Has no time limit: the caller sets a deadline.
        """
        checked = await self.resolve(host, port)
        failures: list[OSError] = []
        for address in checked:
            try:
                # For the last address the caller's deadline is enough.
                is_last = address is checked[-1]
                async with asyncio.timeout(None if is_last else OTHERS_SECONDS / (len(checked) - 1)):
                    return await self._connect_to(address, port)
            except OSError as error:
                failures.append(error)
        if len(failures) == 1:
            raise failures[0]
        raise ConnectionError(f"none of {len(checked)} addresses is reachable: {failures[0]}") from failures[0]

    async def _connect_to(self, address: Resolved, port: int) -> socket.socket:
        if self._proxy is None:
            return await _dial(address, port)
        through = self._proxy
        host, near, _ = through.origin
        spelt = addresses.literal(host)
        sock = await _dial_first([_resolved(spelt)] if spelt is not None else await self._names(host, near), near)
        try:
            await _ask_proxy(sock, through, address, port)
        except BaseException:
            sock.close()
            raise
        return sock


def _resolved(spelt: addresses.Address) -> Resolved:
    return socket.AF_INET if spelt.version == 4 else socket.AF_INET6, str(spelt)


def _scope_id(zone: str) -> int:
    """Return the scope id of the zone of an IPv6 address; 0 for none."""
    if not zone:
        return 0
    if zone.isascii() and zone.isdigit():
        return int(zone)
    return socket.if_nametoindex(zone)


async def _dial(address: Resolved, port: int) -> socket.socket:
    family, text = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        where: tuple[str, int] | tuple[str, int, int, int] = (text, port)
        if family == socket.AF_INET6:
            plain, _, zone = text.partition("%")
            where = (plain, port, 0, _scope_id(zone))
        await asyncio.get_running_loop().sock_connect(sock, where)
    except BaseException:
        sock.close()
        raise
    return sock


async def _dial_first(found: Sequence[Resolved], port: int) -> socket.socket:
    for address in found[:-1]:
        with contextlib.suppress(OSError):
            async with asyncio.timeout(OTHERS_SECONDS / (len(found) - 1)):
                return await _dial(address, port)
    return await _dial(found[-1], port)


async def _ask_proxy(sock: socket.socket, proxy: urls.HttpTarget, address: Resolved, port: int) -> None:
    """Make `proxy` connect `sock` to the address itself, so that the proxy resolves no name."""
    family, text = address
    authority = f"[{text}]:{port}" if family == socket.AF_INET6 else f"{text}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.authorization:
        lines.append(f"Proxy-Authorization: {proxy.authorization}")
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(sock, "\r\n".join([*lines, "", ""]).encode("latin-1"))
    response = ContentParser()
    try:
        while not response.is_headed:
            part = await loop.sock_recv(sock, 4096)
            if not part:
                raise ConnectionError("the proxy did not respond")
            response.feed(part)
    finally:
        response.close()
    if response.status != 200:
        raise ConnectionError(f"the proxy refuses: HTTP {response.status}")
    # The host behind the proxy sends nothing before our request.
    if response.take_content():
        raise ConnectionError("the proxy sent data after its response")
