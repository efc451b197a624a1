"""Client of the Redis master that Sentinels name.

It is apart from `redis_url`, so that settings are read without the client library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from tidings.net.redis_url import RedisUrl

# Seconds that a Sentinel has to respond before the next one is tried.
SENTINEL_SECONDS = 0.4


def make_client(address: RedisUrl, options: Mapping[str, Any], *, sentinel_password: str = "") -> Redis:
    """Return a client of the master, which asks the Sentinels for its address before each new connection.

    options: of connections to the master; the TLS options also apply to the Sentinels.
    """
    tls: dict[str, Any] = {"ssl": True} if address.is_secure else {}
    timeouts = {"socket_timeout": SENTINEL_SECONDS, "socket_connect_timeout": SENTINEL_SECONDS}
    to_sentinels = {name: value for name, value in options.items() if name.startswith("ssl_")} | timeouts | tls
    if sentinel_password:
        to_sentinels["password"] = sentinel_password
    named = {"username": address.username, "password": address.password}
    to_master = {name: value for name, value in named.items() if value} | dict(options) | tls
    make: Any = Sentinel
    sentinels = make(list(address.hosts), sentinel_kwargs={**to_sentinels, "retry": Retry(NoBackoff(), 0)})
    master: Redis = sentinels.master_for(address.master, db=address.database, **to_master)
    return master
