"""Check of the Redis server that several nodes of the network share."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, RedisError

from cli.doctor.findings import Finding, error, fine, warning
from tidings.net import redis_master, redis_url
from tidings.net.redis_url import RedisUrl

SECONDS = 5.0
FULL_PART = 0.8  # part of `maxmemory` above which there is a warning


class RedisServerCheck:
    """Check of one Redis server, any node of a Redis Cluster, or the master that Sentinels name."""

    name = "redis"

    def __init__(self, url: str, *, password: str = "", sentinel_password: str = "", authorities: str = "") -> None:
        """Create the check.

        password: password for a URL without one; empty for none.
        sentinel_password: password of the Sentinels; empty for none.
        authorities: PEM file to verify the server's certificate; empty for the system's authorities.
        """
        self._url = url
        self._sentinel_password = sentinel_password
        options: dict[str, Any] = {"socket_timeout": SECONDS, "socket_connect_timeout": SECONDS}
        if password:
            options["password"] = password
        self._authorities = authorities
        self._options = options

    async def run(self) -> Sequence[Finding]:
        try:
            address = redis_url.parse(self._url)
            client = self._make_client(address)
        except ValueError as failure:
            return [error(self.name, f"TIDINGS_REDIS_URL {failure}", "correct it: redis://host:6379 or rediss://…")]
        shown = ",".join(f"{host}:{port}" for host, port in address.hosts) + (
            f"/{address.master}" * bool(address.master)
        )
        started = time.monotonic()
        try:
            await client.ping()
            took = (time.monotonic() - started) * 1000
            info = await client.info()
        except AuthenticationError as failure:
            return [error(self.name, f"{shown}: {failure}", "correct TIDINGS_REDIS_PASSWORD")]
        except (RedisError, OSError, TimeoutError) as failure:
            remedy = "start it, or correct TIDINGS_REDIS_URL; until then network nodes deliver nothing to each other"
            return [error(self.name, f"{shown}: {str(failure)[:200] or type(failure).__name__}", remedy)]
        finally:
            await client.aclose()
        return [fine(self.name, f"{shown} responds in {took:.0f} ms: {_version(info)}"), *self.evaluate(info)]

    def _make_client(self, address: RedisUrl) -> Redis:
        tls = {"ssl_ca_certs": self._authorities} if self._authorities and address.is_secure else {}
        options = {**self._options, **tls}
        if address.master:
            return redis_master.make_client(address, options, sentinel_password=self._sentinel_password)
        return Redis.from_url(address.plain, **options)

    def evaluate(self, info: Mapping[str, Any]) -> list[Finding]:
        """Return findings about the server's memory.

        info: response to INFO.
        """
        limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
        policy = str(info.get("maxmemory_policy", "noeviction"))
        found = []
        if limit and policy != "noeviction":
            remedy = "set maxmemory-policy noeviction: a device whose entry is evicted counts as offline"
            found.append(warning(self.name, f"maxmemory-policy is {policy}", remedy))
        if limit and used > limit * FULL_PART:
            text = f"{used / limit:.0%} of its {limit / 2**20:,.0f} MiB are used"
            found.append(warning(self.name, text, "give it more memory"))
        return found


def _version(info: Mapping[str, Any]) -> str:
    name = "Valkey" if "valkey_version" in info else "Redis"
    return f"{name} {info.get('valkey_version') or info.get('redis_version', '?')}"
