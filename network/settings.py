"""The settings of the network process, from the environment."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic

from tidings.objects.s3_settings import BlobBucket
from tidings.runtime import env, exposure, process_secrets, redis_url, secret_sources, settings
from tidings.runtime.api_key import API_KEY, OptionalKey, OptionalOperatorKey
from tidings.runtime.process_secrets import NetworkSecrets
from tidings.runtime.settings import DatabaseSettings
from tidings.runtime.tls import TlsFiles
from tidings.wire import addresses

DAY = 86400


class Limits(env.Variables):
    """How much is held in memory, and for how long.

    window:          deliveries to one device that it has not acknowledged; the rest waits.
    window_bytes:    the same, by their size; the last one may go beyond it.
    session_bytes:   the same for all devices of one connection. What is in flight must fit into `write_buffer`, or a
                     device with much in its mailbox is disconnected at every login; so at most half of it, because an
                     envelope takes up to 1.7 times its size as JSON.
    held:            envelopes for one device that wait in memory behind its window or its backlog; one more, and all of
                     them are stored.
    undecided:       envelopes that are neither stored nor acknowledged; one more is refused as `overloaded`.
    undecided_bytes: the same, by their size; of one sender an eighth of it.
    remembered:      decided envelopes by which a repeated one is recognised.
    store_after:     seconds that an envelope may stay undecided in memory before it is stored.
    idle:            seconds without a frame after which a connection is closed.
    write_buffer:    bytes waiting for one reader; more, and it is disconnected.
    connections:     open at the same time; one more is closed as `overloaded`.
    strangers:       of them those on which nobody is logged in; for one more, the oldest is closed as `overloaded`, or
                     it is when that is younger than a second.
    strangers_each:  the same of one address (of IPv6, one /64); one more is closed as `overloaded`.
    login:           seconds from connecting to a login; then the connection is closed as `no_login`.
    http:            connections over HTTP, open at the same time, that are no WebSockets; one more is closed at once.
    requests:        logins, checks and fetches of one connection in flight; one more fails as `overloaded`.
    sends:           of one connection that are not answered; then nothing is read from it until half of them are.
    transfers:       blobs that come or go at the same time; one more is answered by 503.
    """

    write_buffer: Annotated[int, env.integer(4, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_WRITE_BUFFER_MB", "16")
    window: Annotated[int, env.integer(1, 100_000)] = env.variable("TIDINGS_NETWORK_WINDOW", 1000)
    window_bytes: Annotated[int, env.made(lambda data: data["write_buffer"] // 4)] = env.MADE
    session_bytes: Annotated[int, env.made(lambda data: data["write_buffer"] // 2)] = env.MADE
    held: Annotated[int, env.integer(1, 100_000)] = env.variable("TIDINGS_NETWORK_HELD", 1000)
    undecided: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_UNDECIDED", 200_000)
    undecided_bytes: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_UNDECIDED_MB", "256")
    remembered: int = 100_000
    store_after: Annotated[float, env.number(high=60_000, unit=0.001)] = env.variable(
        "TIDINGS_NETWORK_STORE_AFTER_MS", 0.5
    )
    idle: Annotated[float, env.number(1)] = env.variable("TIDINGS_NETWORK_IDLE_S", 60.0)
    connections: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_CONNECTIONS", 10_000)
    strangers: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_STRANGERS", 500)
    strangers_each: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_STRANGERS_EACH", 100)
    login: float = 10.0
    http: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_HTTP_CONNECTIONS", 10_000)
    requests: int = 5000
    sends: int = 10_000
    transfers: Annotated[int, env.integer(1, 10_000)] = env.variable("TIDINGS_NETWORK_TRANSFERS", 100)


def _numbers(value: str) -> frozenset[str]:
    found = [entry.strip() for entry in value.split(",") if entry.strip()]
    if not all(map(addresses.is_number, found)):
        raise env.wrong("is not numbers like 15550000000, with commas between them")
    return frozenset(found)


class Quotas(env.Variables):
    """What may wait in one mailbox, and how fast one device may send to one recipient; beyond it sends are refused.

    mailbox:       envelopes in one mailbox.
    mailbox_bytes: the same, by their size.
    share:         envelopes of one sender in one mailbox; it is also at most as much as is still free.
    share_bytes:   the same, by their size.
    stored_bytes:  of one sender in all mailboxes, then no faster than …
    stored_rate:   … so many bytes a second; 0 is unlimited. What is fetched counts no more.
    pair_rate:     envelopes a second from one sender to one recipient, or one group; 0 is unlimited.
    pair_burst:    those that may come at once.
    """

    mailbox: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_MAILBOX_ENVELOPES", 1_000_000)
    mailbox_bytes: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_MAILBOX_MB", "1024")
    share: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_MAILBOX_SHARE_ENVELOPES", 10_000)
    share_bytes: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_MAILBOX_SHARE_MB", "16")
    stored_bytes: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_STORED_MB", "1024")
    stored_rate: Annotated[int, env.integer(0, unit=1024)] = env.variable("TIDINGS_NETWORK_STORED_KB_PER_S", "256")
    pair_rate: Annotated[float, env.number()] = env.variable("TIDINGS_NETWORK_PAIR_RATE", 500.0)
    pair_burst: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_PAIR_BURST", 1000)


class Allowances(env.Variables):
    """What one device may ask of the directory and of groups, as token buckets: a burst, and then so many a second.

    businesses:   numbers that are registered with the registration key only, and that may have ten times as much, files
                  included; where there are some, traces are theirs.
    fetch_rate:   bundles.
    one_time:     one-time pre-keys of one number for one device at once, and in a day; then its bundles have none.
    check_rate:   numbers in checks.
    group_rate:   changes of groups, and groups made.
    blob_rate:    files that are left.
    """

    businesses: Annotated[frozenset[str], env.text(_numbers)] = env.variable(
        "TIDINGS_NETWORK_BUSINESS_NUMBERS", frozenset()
    )
    fetch_rate: Annotated[float, env.number()] = env.variable("TIDINGS_NETWORK_FETCH_RATE", 200.0)
    fetch_burst: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_FETCH_BURST", 20_000)
    one_time: Annotated[int, env.integer(1, 500)] = env.variable("TIDINGS_NETWORK_ONE_TIME_KEYS", 5)
    check_rate: Annotated[float, env.number()] = env.variable("TIDINGS_NETWORK_CHECK_RATE", 100.0)
    check_burst: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_CHECK_BURST", 1_000_000)
    group_rate: Annotated[float, env.number()] = env.variable("TIDINGS_NETWORK_GROUP_RATE", 5.0)
    blob_rate: Annotated[float, env.number()] = env.variable("TIDINGS_NETWORK_BLOB_RATE", 2.0)
    blob_burst: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_BLOB_BURST", 5000)
    group_burst: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_GROUP_BURST", 500)


class Blobs(env.Variables):
    """Encrypted files that devices leave for each other.

    directory:    theirs alone; made when it is not there.
    bucket:       theirs alone, instead of the directory.
    quota:        bytes of all together; one more is answered by 507.
    device_quota: bytes of one device; it is also at most as much as is still free. One more is answered by 507.
    ttl:          seconds that each is kept.
    """

    directory: Annotated[Path, env.text(env.parse_path)] = env.variable("TIDINGS_NETWORK_BLOB_DIR")
    bucket: BlobBucket = env.MADE
    quota: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_BLOB_QUOTA_MB", str(10 * 1024))
    device_quota: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable(
        "TIDINGS_NETWORK_BLOB_DEVICE_QUOTA_MB", "2048"
    )
    ttl: Annotated[int, env.integer(1, 365 * DAY)] = env.variable("TIDINGS_NETWORK_BLOB_TTL_S", 14 * DAY)


def read_blobs(data: Mapping[str, Any]) -> Blobs:
    default = {"TIDINGS_NETWORK_BLOB_DIR": str(data["data_dir"] / "blobs")}
    return Blobs.part({**default, **{name: value for name, value in data["variables"].items() if value}})


def _node_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", value):
        raise env.wrong("is not 1 to 64 letters, digits, dots, hyphens and underscores")
    return value


def _redis_url(value: str) -> str:
    try:
        if value:
            redis_url.parse(value)
    except redis_url.UnusableRedisUrl as error:
        raise env.mistake(f"TIDINGS_REDIS_URL {error}") from None
    return value


def _node_address(value: str) -> tuple[str, int]:
    if re.fullmatch(r":[0-9]+", value) or not value:
        _, port = env.parse_address("any" + (value or ":0"))
        return "", port
    host, port = env.parse_address(value)
    if host in ("0.0.0.0", "::"):  # noqa: S104
        raise env.wrong("is where the other nodes call this one: name an address of this machine, or :port")
    return host, port


def _password(variable: str) -> Any:
    def read(data: Mapping[str, Any]) -> str:
        found = secret_sources.find(data["variables"], variable)
        try:
            return found.read() if found is not None else ""
        except secret_sources.SecretUnavailable as error:
            raise env.mistake(str(error)) from None

    return env.made(read)


def _drain(data: Mapping[str, Any]) -> float:
    """Where there are other nodes devices need not all come back at once."""
    return 5.0 if data["cluster"].url else 0.0


def _read_seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 600:
        raise env.wrong("is not a number of seconds from 0 to 600")
    return seconds


class Cluster(env.Variables):
    """The Redis by which several nodes are one network, and this node among them.

    url:         of a server, of any node of a Redis Cluster, or of the Sentinels of a master (`redis_url.parse`); empty
                 when this is the only node.
    password:    where the address has none.
    sentinel_password: of the Sentinels; empty for none.
    authorities: that vouch for its certificate, with `rediss://`; without them the system's.
    prefix:      of its keys, so that two networks can share it.
    node:        the name of this node, for people.
    node_address: where the other nodes call this one. Without a host that is this machine's address on the way to
                 Redis; port 0 is any that is free. Workers have this port and those after it.
    silence:     seconds without a heartbeat after which a node is taken to be dead.
    """

    url: Annotated[str, env.text(_redis_url)] = env.variable("TIDINGS_REDIS_URL", shown=False)
    password: Annotated[str, _password("TIDINGS_REDIS_PASSWORD")] = env.HIDDEN
    sentinel_password: Annotated[str, _password("TIDINGS_REDIS_SENTINEL_PASSWORD")] = env.HIDDEN
    authorities: str = env.variable("TIDINGS_REDIS_SSL_CA")
    prefix: Annotated[str, env.text(_node_name)] = env.variable("TIDINGS_REDIS_PREFIX", "tidings")
    node: Annotated[str, env.text(_node_name)] = env.variable("TIDINGS_NETWORK_NODE", socket.gethostname())
    node_address: Annotated[tuple[str, int], env.text(_node_address)] = env.variable("TIDINGS_NETWORK_NODE_ADDRESS", "")
    silence: Annotated[float, env.number(2, 600)] = env.variable("TIDINGS_NETWORK_NODE_SILENCE_S", 5.0)

    @property
    def address(self) -> redis_url.RedisUrl:
        """The address, read. Only when there is one."""
        return redis_url.parse(self.url)


def _certificate(listener: str) -> Any:
    def make(data: Mapping[str, Any]) -> TlsFiles:
        """The listener's own, else the installation's. Clients that have a certificate have one of its authorities."""
        names = [f"TIDINGS_NETWORK_{listener}_{what}" for what in ("CERTIFICATE", "KEY")]
        chain, key = (data["variables"].get(name, "") for name in names)
        if bool(chain) != bool(key):
            raise env.mistake(f"{names[0]} and {names[1]} go together")
        own: TlsFiles = data["tls_files"]
        return TlsFiles(chain, key, own.authorities) if chain else own

    return env.made(make)


def _delay(value: str) -> tuple[float, float]:
    least, most = env.parse_milliseconds(value)
    if most > 60:
        raise env.mistake("TIDINGS_NETWORK_DELAY_MS is not a range of at most 60000 milliseconds like 80..150")
    return least, most


class Settings(settings.ProcessSettings):
    """Everything that the process is given at start.

    http_certificate, tcp_certificate: of the listeners, without TLS where they name none.
    delay:           seconds, (least, most), added to each call to play a distant network.
    message_ttl:     seconds that an envelope waits for its recipient at most.
    expiry_interval: seconds between two looks for expired envelopes.
    api_key:         opens the metrics where others reach them; empty is none.
    operator_key:    opens announcements; empty is none.
    metrics_address: where metrics are, on a listener of their own; `None` for beside the HTTP endpoints.
    workers:         processes that share both addresses, each a node of its own.
    worker_port:     over HTTP, of the first worker alone, and those after it of the others; 0 for none.
    reuse_port:      others may listen on both addresses too, and the system spreads connections over all of them.
    drain:           seconds over which devices are asked to leave when the process is stopped.
    """

    database: Annotated[DatabaseSettings, settings.database("network")] = env.MADE
    secrets: Annotated[NetworkSecrets, process_secrets.secrets_of(NetworkSecrets)] = env.MADE
    blobs: Annotated[Blobs, env.made(read_blobs)] = env.MADE
    http_address: env.Address = env.variable("TIDINGS_NETWORK_HTTP_ADDRESS", "127.0.0.1:9095")
    tcp_address: env.Address = env.variable("TIDINGS_NETWORK_TCP_ADDRESS", "127.0.0.1:9096")
    http_certificate: Annotated[TlsFiles, _certificate("HTTP")] = env.MADE
    tcp_certificate: Annotated[TlsFiles, _certificate("TCP")] = env.MADE
    delay: Annotated[tuple[float, float], env.text(_delay)] = env.variable("TIDINGS_NETWORK_DELAY_MS", (0.0, 0.0))
    message_ttl: Annotated[int, env.integer(1, 365 * DAY)] = env.variable("TIDINGS_NETWORK_MESSAGE_TTL_S", 30 * DAY)
    expiry_interval: Annotated[float, env.number(0.05, 3600)] = env.variable("TIDINGS_NETWORK_EXPIRY_INTERVAL_S", 5.0)
    api_key: OptionalKey = API_KEY
    operator_key: OptionalOperatorKey = API_KEY
    metrics_address: Annotated[tuple[str, int] | None, env.text(env.parse_address)] = env.variable(
        "TIDINGS_NETWORK_METRICS_ADDRESS", None
    )
    strangers: settings.Strangers = env.MADE
    trusted_proxies: settings.TrustedProxies = settings.TRUSTED_PROXIES
    limits: Annotated[Limits, env.made(lambda data: Limits.part(data["variables"]))] = env.MADE
    cluster: Annotated[Cluster, env.made(lambda data: Cluster.part(data["variables"]))] = env.MADE
    workers: Annotated[int, env.integer(1, 64)] = env.variable("TIDINGS_NETWORK_WORKERS", 1)
    worker_port: Annotated[int, env.integer(0, 65_535)] = env.variable("TIDINGS_NETWORK_WORKER_PORT", 0)
    reuse_port: env.Flag = env.variable("TIDINGS_NETWORK_REUSE_PORT", False)
    drain: Annotated[float, env.made(_drain, _read_seconds)] = env.variable("TIDINGS_NETWORK_DRAIN_S", None)
    quotas: Annotated[Quotas, env.made(lambda data: Quotas.part(data["variables"]))] = env.MADE
    allowances: Annotated[Allowances, env.made(lambda data: Allowances.part(data["variables"]))] = env.MADE

    def ways(self) -> Sequence[exposure.Way]:
        """The listeners, the metrics, and Redis."""
        listeners = (
            ("HTTP", self.http_address, self.http_certificate),
            ("TCP", self.tcp_address, self.tcp_certificate),
        )
        ways = [
            exposure.Way(
                exposure.NETWORK, f"TIDINGS_NETWORK_{name}_ADDRESS", address[0], bool(files.chain), exposure.OWN
            )
            for name, address, files in listeners
        ]
        if self.metrics_address is not None:
            variable = "TIDINGS_NETWORK_METRICS_ADDRESS"
            ways.append(exposure.metrics_way(variable, self.metrics_address[0], self.plaintext))
        if self.cluster.url:
            address = self.cluster.address
            ways += [
                exposure.Way(exposure.REDIS, "TIDINGS_REDIS_URL", host, address.is_secure, "rediss://")
                for host, _ in address.hosts
            ]
            # Next to a Redis of this machine only processes of this machine.
            apart = next((host for host, _ in address.hosts if not env.is_loopback(host)), address.hosts[0][0])
            host, name = self.cluster.node_address[0] or apart, "TIDINGS_NETWORK_NODE_ADDRESS"
            ways.append(exposure.Way(exposure.NETWORK, name, host, bool(self.tls_files.chain), exposure.OWN))
        return ways

    @pydantic.model_validator(mode="after")
    def _monitoring_is_no_operator(self) -> Self:
        if self.operator_key and self.operator_key == self.api_key:
            raise env.mistake("TIDINGS_OPERATOR_KEY is WA_API_KEY, which only reads: choose another key")
        return self

    @pydantic.model_validator(mode="after")
    def _workers_have_redis(self) -> Self:
        if self.workers > 1 and 0 in (self.http_address[1], self.tcp_address[1]):
            raise env.mistake("TIDINGS_NETWORK_WORKERS over 1 needs addresses with ports, which all workers share")
        if self.workers > 1 and not self.cluster.url:
            raise env.mistake(
                "TIDINGS_NETWORK_WORKERS over 1 needs TIDINGS_REDIS_URL: the workers find each other there"
            )
        return self
