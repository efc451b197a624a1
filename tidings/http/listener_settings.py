"""Settings of HTTP listeners: limits for unauthenticated clients, trusted proxies, host names."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any

from tidings.config import env
from tidings.http import hosts
from tidings.net import unauthenticated


def _networks(value: str) -> tuple[unauthenticated.Network, ...]:
    found: list[unauthenticated.Network] = []
    wrong: list[str] = []
    for part in filter(None, map(str.strip, value.split(","))):
        try:
            found.append(ipaddress.ip_network(part))
        except ValueError:
            wrong.append(f"{part!r} in TIDINGS_TRUSTED_PROXIES is neither a network like 10.0.0.0/8 nor an address")
    if wrong:
        raise env.mistake("; ".join(wrong))
    return tuple(found)


class UnauthenticatedSettings(env.Variables):
    """Limits for unauthenticated clients over HTTP."""

    # Connections open at a time, of all addresses and of one.
    connections: Annotated[int, env.integer(1, 100_000)] = env.variable("TIDINGS_HTTP_STRANGERS", 256)
    connections_each: Annotated[int, env.integer(1, 100_000)] = env.variable("TIDINGS_HTTP_STRANGERS_EACH", 100)
    # Requests per second, and twice as many connections, of all addresses and of one.
    rate: Annotated[float, env.number()] = env.variable("TIDINGS_HTTP_STRANGERS_RATE", 16.0)
    rate_each: Annotated[float, env.number()] = env.variable("TIDINGS_HTTP_STRANGERS_RATE_EACH", 8.0)
    # Connections that wait for a slot, of all addresses and of one.
    waiting: Annotated[int, env.integer(0, 100_000)] = env.variable("TIDINGS_HTTP_STRANGERS_WAITING", 1_024)
    waiting_each: Annotated[int, env.integer(0, 100_000)] = env.variable("TIDINGS_HTTP_STRANGERS_WAITING_EACH", 256)
    # Connections that wait for a slot, of all addresses that have logged in within the last hour.
    waiting_known: Annotated[int, env.integer(0, 100_000)] = env.variable("TIDINGS_HTTP_WAITING", 2_048)


UnauthenticatedLimits = Annotated[
    UnauthenticatedSettings, env.computed(lambda data: UnauthenticatedSettings.part(data["variables"]))
]

# Proxies that forward requests of others; limits for unauthenticated clients do not apply to the proxy's address.
TrustedProxies = Annotated[tuple[unauthenticated.Network, ...], env.text(_networks)]
TRUSTED_PROXIES: Any = env.variable("TIDINGS_TRUSTED_PROXIES", ())
# Names by which clients over HTTP may address a listener.
HttpHosts = Annotated[frozenset[str], env.text(hosts.parse)]
HTTP_HOSTS: Any = env.variable(hosts.VARIABLE, frozenset())
