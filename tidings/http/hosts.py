"""Check of `Host`, and of the `Origin` of WebSockets, against the configured names of an HTTP listener."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from tidings.config import env, host_names

VARIABLE = "TIDINGS_HTTP_HOSTS"
# Paths that balancers and Prometheus request by address. They accept every `Host`.
UNCHECKED = frozenset(("/", "/health", "/health/live", "/health/ready", "/health/load", "/metrics", "/v1/metrics"))
# Names that clients on this machine may always use.
_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))
# Characters: a name has at most 253, a port a colon and 5 digits, an address two brackets.
_MAX_AUTHORITY = 262
# Host, and optionally a port.
_AUTHORITY = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:@/\\\s]+)(:[0-9]{0,5})?")

Headers = Iterable[tuple[bytes, bytes]]


def parse(value: str) -> frozenset[str]:
    """Parse names and addresses separated by commas. Raises `env.mistake`.

    `*.example.com` stands for every name below `example.com`.
    """
    found, wrong = set(), []
    for part in filter(None, map(str.strip, value.split(","))):
        name = _canonical(part.strip("[]"))
        if host_names.is_host(name, wildcard=True):
            found.add(name)
        else:
            wrong.append(
                f"{part!r} in {VARIABLE} is neither a host name like api.example.com nor an address (without a port)"
            )
    if wrong:
        raise env.mistake("; ".join(wrong))
    return frozenset(found)


class Hosts:
    """Configured names of a listener. If there are none, callers accept every `Host` and `Origin`."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = frozenset(names)

    def __bool__(self) -> bool:
        return bool(self._names)

    def host_error(self, headers: Headers, target: bytes, *, is_local: bool) -> str:
        """Return the error text for the host of a request; empty when it is a configured name.

        target:   target of the request line. In absolute form, its host is checked as well: it takes precedence over
                  the header's (RFC 9112, section 3.2.2).
        is_local: the client is on this machine.
        """
        given = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(given) != 1:
            return f"the request has {len(given)} Host headers instead of one"
        authorities = given if target[:1] in (b"/", b"*") else [*given, _authority_of(target)]
        wrong = next((authority for authority in authorities if not self._is_ours(authority, is_local=is_local)), None)
        return "" if wrong is None else f"Host {wrong[:100]!r} is not in {VARIABLE} of this server"

    def origin_error(self, headers: Headers, *, is_local: bool) -> str:
        """Return the error text for the `Origin` of a WebSocket handshake; empty for a configured name.

        A handshake without `Origin` is accepted: only browsers have to send it (RFC 6455, section 10.2).

        is_local: the client is on this machine.
        """
        for name, value in headers:
            if name == b"origin":
                origin = value.decode("latin-1")
                if not self._is_ours(_authority_of(value), is_local=is_local):
                    return f"Origin {origin[:100]!r} is not in {VARIABLE} of this server"
        return ""

    def _is_ours(self, authority: str, *, is_local: bool) -> bool:
        # The search for a wildcard takes time by the square of the length.
        matched = _AUTHORITY.fullmatch(authority) if len(authority) <= _MAX_AUTHORITY else None
        if matched is None:
            return False
        name = _canonical(matched[1].strip("[]"))
        if name in self._names or (is_local and name in _LOCAL):
            return True
        _, dot, parent = name.partition(".")
        while dot:
            if f"*.{parent}" in self._names:
                return True
            _, dot, parent = parent.partition(".")
        return False


ANY = Hosts()


def _authority_of(url: bytes) -> str:
    """Return the host and port of an absolute HTTP URL; empty for any other text."""
    try:
        parts = urlsplit(url.decode("ascii"))
    except ValueError:
        return ""
    return parts.netloc if parts.scheme in ("http", "https") else ""


def _canonical(name: str) -> str:
    try:
        return ipaddress.ip_address(name).compressed
    except ValueError:
        return name.lower().removesuffix(".")
