"""Client of the Redis or Valkey that all nodes share: a server, the master of Sentinels, or a cluster.

It uses few commands, each on one key.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import redis.asyncio as redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisClusterException, RedisError, ResponseError

from network.errors import NetworkError
from network.settings import Cluster
from tidings.net import redis_master

Value = TypeVar("Value")

log = logging.getLogger(__name__)

# Seconds for a command; then the caller continues without it.
TIMEOUT = 1.5
# Commands in flight at a time to a Redis Cluster.
PARALLEL = 64


class RedisUnavailable(NetworkError):
    """Redis does not respond or refuses the command: continue without it and try again later."""


class Script:
    """Lua script of `scripts`, sent as its hash once Redis has it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode()).hexdigest()  # noqa: S324


class RedisClient:
    """Connections to Redis. Every method raises `RedisUnavailable`."""

    def __init__(self, settings: Cluster) -> None:
        self._settings = settings
        self._prefix = settings.prefix
        self._client: Any = None
        self._clustered = False

    def key(self, *words: str) -> str:
        """Return the name of a key with the network's prefix.

        Every command uses one key, so keys may be on any node of a Redis Cluster.
        """
        return ":".join((self._prefix, *words))

    async def open(self) -> None:
        """Connect, and detect whether the server is a Redis Cluster."""
        if self._settings.address.master:
            self._client = self._make_master()
            await _guard(self._client.ping())
            return
        probe = self._make(redis.Redis)
        try:
            information = await _guard(probe.info("cluster"))
            self._clustered = bool(information.get("cluster_enabled"))
        finally:
            await probe.aclose()
        kind = RedisCluster if self._clustered else redis.Redis
        self._client = self._make(kind)
        if self._clustered:
            await _guard(self._client.initialize())

    def _make(self, kind: Any) -> Any:
        # A cluster that moves hash slots redirects the command, which needs a second attempt.
        options = self._client_options(tries=1 if kind is RedisCluster else 0)
        return kind.from_url(self._settings.address.plain, **options)

    def _make_master(self) -> redis.Redis:
        return redis_master.make_client(
            self._settings.address, self._client_options(), sentinel_password=self._settings.sentinel_password
        )

    def _client_options(self, tries: int = 0) -> dict[str, Any]:
        options: dict[str, Any] = {
            "socket_timeout": TIMEOUT,
            "socket_connect_timeout": TIMEOUT,
            # The caller decides whether to try again.
            "retry": Retry(NoBackoff(), tries),
        }
        if self._settings.password:
            options["password"] = self._settings.password
        if self._settings.address.is_secure:
            options |= {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
            if self._settings.authorities:
                options["ssl_ca_certs"] = self._settings.authorities
        return options

    @property
    def primaries(self) -> frozenset[str]:
        """Return the servers with hash slots of a Redis Cluster, as known to this client; empty without a cluster."""
        if not self._clustered:
            return frozenset()
        return frozenset(node.name for node in self._client.get_primaries())

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()

    async def run(self, script: Script, key: str, *arguments: str | bytes | int) -> Any:
        """Run a script on one key."""
        (result,) = await self.run_all(script, [(key, arguments)])
        return result

    async def run_all(self, script: Script, steps: Sequence[tuple[str, Sequence[str | bytes | int]]]) -> list[Any]:
        """Run a script on many keys; return the results in order."""
        if self._clustered or len(steps) == 1:
            return await self._gather([functools.partial(self._run_one, script, *step) for step in steps])
        try:
            return await self._pipeline("EVALSHA", script.sha, steps)
        except _UnknownScript:
            # All of them failed, so this is the script's first use on this server.
            return await self._pipeline("EVAL", script.text, steps)

    async def read_claims(self, keys: Sequence[str]) -> list[Mapping[bytes, bytes]]:
        """Return the fields of many hashes; none for a key that is not a hash."""
        if self._clustered:
            return await self._gather([functools.partial(self._claims_of, key) for key in keys])
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(key)
        found: list[Mapping[bytes, bytes] | Exception] = await _guard(pipeline.execute(raise_on_error=False))
        return [_read_hash(fields) for fields in found]

    async def _claims_of(self, key: str) -> Mapping[bytes, bytes]:
        try:
            found: Mapping[bytes, bytes] = await _guard(self._client.hgetall(key), ResponseError)
        except ResponseError as error:
            return _read_hash(error)
        return found

    async def read_fields(self, key: str) -> Mapping[bytes, bytes]:
        """Return the fields of one hash."""
        found: Mapping[bytes, bytes] = await _guard(self._client.hgetall(key))
        return found

    async def set_field(self, key: str, field: str, value: bytes) -> None:
        """Set a field of one hash."""
        await _guard(self._client.hset(key, field, value))

    async def delete_fields(self, key: str, fields: Sequence[str | bytes]) -> None:
        """Delete fields of one hash."""
        await _guard(self._client.hdel(key, *fields))

    async def set_if_absent(self, key: str, value: str, seconds: int) -> bool:
        """Set a key for `seconds` unless it exists; return whether it was set."""
        return bool(await _guard(self._client.set(key, value, nx=True, ex=seconds)))

    async def set_for(self, key: str, value: str | bytes, seconds: int) -> None:
        """Set a key for `seconds`."""
        await _guard(self._client.set(key, value, ex=seconds))

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key, `None` when it does not exist."""
        found: bytes | None = await _guard(self._client.get(key))
        return found

    async def remove(self, key: str) -> None:
        """Delete a key."""
        await _guard(self._client.delete(key))

    async def remove_member(self, key: str, member: str) -> None:
        """Remove a member from a sorted set."""
        await _guard(self._client.zrem(key, member))

    async def _run_one(self, script: Script, key: str, arguments: Sequence[str | bytes | int]) -> Any:
        try:
            return await _guard(self._client.execute_command("EVALSHA", script.sha, 1, key, *arguments))
        except _UnknownScript:
            return await _guard(self._client.execute_command("EVAL", script.text, 1, key, *arguments))

    async def _pipeline(
        self, command: str, script: str, steps: Sequence[tuple[str, Sequence[str | bytes | int]]]
    ) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for key, arguments in steps:
            pipeline.execute_command(command, script, 1, key, *arguments)
        done: list[Any] = await _guard(pipeline.execute())
        return done

    async def _gather(self, calls: Sequence[Callable[[], Awaitable[Value]]]) -> list[Value]:
        found: list[Value] = []
        for start in range(0, len(calls), PARALLEL):
            found += await asyncio.gather(*[call() for call in calls[start : start + PARALLEL]])
        return found


class _UnknownScript(Exception):
    """Redis does not know this script, because it has restarted since."""


def _read_hash(found: Mapping[bytes, bytes] | Exception) -> Mapping[bytes, bytes]:
    """Return the fields that HGETALL returned. Raises `RedisUnavailable` for any error other than a key that is not a
    hash.
    """
    if not isinstance(found, Exception):
        return found
    if isinstance(found, ResponseError) and str(found).startswith("WRONGTYPE"):
        return {}
    raise RedisUnavailable(type(found).__name__ + ": " + str(found)[:200]) from found


async def _guard(call: Awaitable[Value], *passed: type[Exception]) -> Value:
    """Run a command, and raise its errors as `RedisUnavailable`.

    passed: errors that the caller handles.
    """
    try:
        return await call
    except NoScriptError as error:
        raise _UnknownScript from error
    except passed:
        raise
    # The error of a Redis Cluster that cannot be reached, or lacks a hash slot, is not a `RedisError`.
    except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
        raise RedisUnavailable(type(error).__name__ + ": " + str(error)[:200]) from error
