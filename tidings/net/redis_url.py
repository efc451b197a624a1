"""Redis and Valkey URLs, as in `TIDINGS_REDIS_URL`: a server, a cluster, or the Sentinels of a master."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from tidings.config import host_names

SENTINEL_PORT = 26379
_SCHEME = re.compile(r"(redis|valkey)(s?)(\+sentinel)?")


class UnusableRedisUrl(ValueError):
    """The URL has an unknown form; `str()` names the known forms, and contains nothing of the URL."""


@dataclasses.dataclass(frozen=True, slots=True)
class RedisUrl:
    """A parsed URL."""

    # One server, or any node of a cluster: the URL with the scheme that the client library knows.
    plain: str
    # The server, or the Sentinels, with their ports.
    hosts: Sequence[tuple[str, int]]
    # Name of the server in the Sentinels; empty without Sentinels.
    master: str
    # Whether connections use TLS.
    is_secure: bool
    username: str
    password: str
    database: int


def parse(url: str) -> RedisUrl:
    """Parse `redis://host:6379`, `rediss://…` with TLS, or `redis+sentinel://host:26379,host2:26379/master`.

    Each is also accepted with `valkey` instead of `redis`. Raises `UnusableRedisUrl`.
    """
    scheme, separator, rest = url.partition("://")
    form = _SCHEME.fullmatch(scheme)
    if form is None or not separator:
        raise UnusableRedisUrl(
            "is not an address like redis://host:6379, rediss://host:6379 or redis+sentinel://host:26379,host2:26379/master"
        )
    is_secure, has_sentinels = bool(form[2]), bool(form[3])
    plain = f"redis{form[2]}://{rest}"
    user, _, hosts = rest.partition("/")[0].rpartition("@")
    name, _, password = user.partition(":")
    parts = [urlsplit(f"//{host}") for host in (hosts.split(",") if has_sentinels else [hosts])]
    try:
        found = [(part.hostname or "", part.port or (SENTINEL_PORT if has_sentinels else 6379)) for part in parts]
    except ValueError:
        raise UnusableRedisUrl("has a port that is not a number from 0 to 65535") from None
    if not all(host for host, _ in found):
        raise UnusableRedisUrl("names no host")
    if not all(host_names.is_host(host) for host, _ in found):
        raise UnusableRedisUrl("has a host that is neither a host name like redis.example nor an address like 10.0.0.5")
    master, _, database = rest.partition("/")[2].partition("?")[0].partition("/") if has_sentinels else ("", "", "")
    if has_sentinels and not (master and re.fullmatch(r"[0-9]*", database)):
        raise UnusableRedisUrl("names no master: redis+sentinel://host:26379,host2:26379/master or …/master/database")
    return RedisUrl(plain, found, master, is_secure, unquote(name), unquote(password), int(database or 0))
