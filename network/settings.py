"""Settings of the network process, from the environment."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import pydantic

from tidings.config import env
from tidings.http import listener_settings
from tidings.installation import settings
from tidings.installation.settings import DatabaseSettings
from tidings.net import exposure, redis_url
from tidings.net.tls import TlsFiles
from tidings.objects.s3_settings import BlobBucket
from tidings.secrets import process_secrets, secret_sources
from tidings.secrets.api_key import API_KEY, OptionalKey, OptionalOperatorKey
from tidings.secrets.process_secrets import NetworkSecrets
from tidings.wire import addresses

DAY = 86400


class Limits(env.Variables):
    """Bounds on what the process holds in memory, and on time."""

    # Bytes queued for one reader; beyond it the reader is disconnected.
    write_buffer: Annotated[int, env.integer(4, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_WRITE_BUFFER_MB", "16")
    # Deliveries to one device that it has not acknowledged; further envelopes wait.
    window: Annotated[int, env.integer(1, 100_000)] = env.variable("TIDINGS_NETWORK_WINDOW", 1000)
    # The same in bytes; the last delivery may exceed it.
    window_bytes: Annotated[int, env.computed(lambda data: data["write_buffer"] // 4)] = env.COMPUTED
    # The same in bytes for all devices of one connection. Envelopes in flight must fit into `write_buffer`, or a device
    # with a full mailbox would be disconnected at every login. An envelope takes up to 1.7 times its size as JSON, so
    # this is half of `write_buffer`.
    session_bytes: Annotated[int, env.computed(lambda data: data["write_buffer"] // 2)] = env.COMPUTED
    # Envelopes for one device that wait in memory behind its window or its backlog; one more, and all of them are
    # stored.
    held: Annotated[int, env.integer(1, 100_000)] = env.variable("TIDINGS_NETWORK_HELD", 1000)
    # Envelopes that are neither stored nor acknowledged; one more is refused as `overloaded`.
    undecided: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_UNDECIDED", 200_000)
    # The same in bytes; one sender may use an eighth of it.
    undecided_bytes: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_UNDECIDED_MB", "256")
    # Decided envelopes whose ids are kept to recognise duplicates.
    remembered: int = 100_000
    # Seconds that an envelope may stay undecided in memory before it is stored.
    store_after: Annotated[float, env.number(high=60_000, unit=0.001)] = env.variable(
        "TIDINGS_NETWORK_STORE_AFTER_MS", 0.5
    )
    # Seconds without a frame after which a connection is closed.
    idle: Annotated[float, env.number(1)] = env.variable("TIDINGS_NETWORK_IDLE_S", 60.0)
    # Connections open at the same time; one more is closed as `overloaded`.
    connections: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_CONNECTIONS", 10_000)
    # Unauthenticated connections among them. One more evicts the oldest without a login in progress, which is closed as
    # `overloaded`; if all of these are younger than a second, the new one is closed instead.
    unauthenticated: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_STRANGERS", 500)
    # The same for one address (of IPv6, one /64); one more is closed as `overloaded`.
    unauthenticated_each: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_STRANGERS_EACH", 100)
    # Seconds from connecting to a login; then the connection is closed as `no_login`.
    login: float = 10.0
    # HTTP connections open at the same time, without WebSockets. One more evicts the oldest unauthenticated one; when
    # there is none, it waits up to 10 s.
    http: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_HTTP_CONNECTIONS", 10_000)
    # Logins, checks and fetches of one connection in flight; one more fails as `overloaded`.
    requests: int = 5000
    # Sends of one connection without a response. At this number reading stops until half of them have a response.
    sends: int = 10_000
    # Uploads and downloads of blobs at the same time; one more is refused with 503.
    transfers: Annotated[int, env.integer(1, 10_000)] = env.variable("TIDINGS_NETWORK_TRANSFERS", 100)


def _numbers(value: str) -> frozenset[str]:
    found = [entry.strip() for entry in value.split(",") if entry.strip()]
    if not all(map(addresses.is_number, found)):
        raise env.wrong("is not a comma-separated list of numbers like 15550000000")
    return frozenset(found)


class Quotas(env.Variables):
    """Quotas of mailboxes, and rate limits between one sender and one recipient; beyond them sends are refused."""

    # Envelopes in one mailbox.
    mailbox: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_MAILBOX_ENVELOPES", 1_000_000)
    # The same in bytes.
    mailbox_bytes: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_MAILBOX_MB", "1024")
    # Envelopes of one sender in one mailbox; also at most as many as the mailbox still has room for.
    share: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_MAILBOX_SHARE_ENVELOPES", 10_000)
    # The same in bytes.
    share_bytes: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_MAILBOX_SHARE_MB", "16")
    # Bytes of one sender in all mailboxes; beyond it only `stored_rate` is admitted. Fetched envelopes no longer count.
    stored_bytes: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_STORED_MB", "1024")
    # Bytes per second of one sender beyond `stored_bytes`; 0 is unlimited.
    stored_rate: Annotated[int, env.integer(0, unit=1024)] = env.variable("TIDINGS_NETWORK_STORED_KB_PER_S", "256")
    # Envelopes per second from one sender to one recipient or one group; 0 is unlimited.
    pair_rate: Annotated[float, env.number()] = env.variable("TIDINGS_NETWORK_PAIR_RATE", 500.0)
    # Envelopes of that pair that may come at once.
    pair_burst: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_PAIR_BURST", 1000)


class DeviceRateLimits(env.Variables):
    """Rate limits of one device's calls to the directory, groups and blobs.

    Each is a token bucket: `…_burst` items at once, then `…_rate` items per second.
    """

    # Numbers that register with the registration key only. Their limits are ten times as high, files included. Where
    # there are such numbers, only they may have their messages traced.
    businesses: Annotated[frozenset[str], env.text(_numbers)] = env.variable(
        "TIDINGS_NETWORK_BUSINESS_NUMBERS", frozenset()
    )
    # Key bundles.
    fetch_rate: Annotated[float, env.number()] = env.variable("TIDINGS_NETWORK_FETCH_RATE", 200.0)
    fetch_burst: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_FETCH_BURST", 20_000)
    # One-time pre-keys of one number for one device, at once and per day; beyond it bundles come without one.
    one_time: Annotated[int, env.integer(1, 500)] = env.variable("TIDINGS_NETWORK_ONE_TIME_KEYS", 5)
    # Numbers in checks.
    check_rate: Annotated[float, env.number()] = env.variable("TIDINGS_NETWORK_CHECK_RATE", 100.0)
    check_burst: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_CHECK_BURST", 1_000_000)
    # Changes of groups, and new groups.
    group_rate: Annotated[float, env.number()] = env.variable("TIDINGS_NETWORK_GROUP_RATE", 5.0)
    # Uploaded files.
    blob_rate: Annotated[float, env.number()] = env.variable("TIDINGS_NETWORK_BLOB_RATE", 2.0)
    blob_burst: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_BLOB_BURST", 5000)
    group_burst: Annotated[int, env.integer(1)] = env.variable("TIDINGS_NETWORK_GROUP_BURST", 500)


class BlobSettings(env.Variables):
    """Encrypted files that devices leave for each other."""

    # Directory for blobs alone; created when it does not exist.
    directory: Annotated[Path, env.text(env.parse_path)] = env.variable("TIDINGS_NETWORK_BLOB_DIR")
    # Bucket for blobs alone, instead of the directory.
    bucket: BlobBucket = env.COMPUTED
    # Bytes of all blobs together; beyond it uploads are refused with 507.
    quota: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable("TIDINGS_NETWORK_BLOB_QUOTA_MB", str(10 * 1024))
    # Bytes of one device; also at most as much as is still free. Beyond it uploads are refused with 507.
    device_quota: Annotated[int, env.integer(1, unit=env.MIB)] = env.variable(
        "TIDINGS_NETWORK_BLOB_DEVICE_QUOTA_MB", "2048"
    )
    # Seconds that each blob is kept.
    ttl: Annotated[int, env.integer(1, 365 * DAY)] = env.variable("TIDINGS_NETWORK_BLOB_TTL_S", 14 * DAY)


def read_blobs(data: Mapping[str, Any]) -> BlobSettings:
    default = {"TIDINGS_NETWORK_BLOB_DIR": str(data["data_dir"] / "blobs")}
    return BlobSettings.part({**default, **{name: value for name, value in data["variables"].items() if value}})


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
        raise env.wrong(
            "is the address at which other nodes connect to this one: give an address of this machine, or :port"
        )
    return host, port


def _password(variable: str) -> Any:
    return env.computed(lambda data: secret_sources.given(data["variables"], variable))


def _drain(data: Mapping[str, Any]) -> float:
    """Return the default of `drain`: only with other nodes need devices not all reconnect at once."""
    return 5.0 if data["cluster"].url else 0.0


def _read_seconds(value: str) -> float:
    try:
        seconds = float(env.digits(value))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 600:
        raise env.wrong("is not a number of seconds from 0 to 600")
    return seconds


class Cluster(env.Variables):
    """Redis, through which several nodes form one network, and the identity of this node."""

    # Address of a server, of any node of a Redis Cluster, or of the Sentinels of a master (`redis_url.parse`); empty
    # when this is the only node.
    url: Annotated[str, env.text(_redis_url)] = env.variable("TIDINGS_REDIS_URL", shown=False)
    # Used when the address has no password.
    password: Annotated[str, _password("TIDINGS_REDIS_PASSWORD")] = env.HIDDEN
    # Password of the Sentinels; empty for none.
    sentinel_password: Annotated[str, _password("TIDINGS_REDIS_SENTINEL_PASSWORD")] = env.HIDDEN
    # Authorities of Redis's certificate, with `rediss://`; empty for the system's.
    authorities: str = env.variable("TIDINGS_REDIS_SSL_CA")
    # Prefix of all keys, so that two networks can share one Redis.
    prefix: Annotated[str, env.text(_node_name)] = env.variable("TIDINGS_REDIS_PREFIX", "tidings")
    # Name of this node, for operators.
    node: Annotated[str, env.text(_node_name)] = env.variable("TIDINGS_NETWORK_NODE", socket.gethostname())
    # Address where other nodes reach this one. Without a host it is this machine's address on the route to Redis; port
    # 0 is any free one. Workers use this port and the following ones.
    node_address: Annotated[tuple[str, int], env.text(_node_address)] = env.variable("TIDINGS_NETWORK_NODE_ADDRESS", "")
    # Seconds without a heartbeat after which a node counts as dead.
    heartbeat_timeout: Annotated[float, env.number(2, 600)] = env.variable("TIDINGS_NETWORK_NODE_SILENCE_S", 5.0)

    @property
    def address(self) -> redis_url.RedisUrl:
        """Return the parsed address. Call it only when `url` is not empty."""
        return redis_url.parse(self.url)


def _certificate(listener: str) -> Any:
    def make(data: Mapping[str, Any]) -> TlsFiles:
        """Return the listener's own certificate, else the installation's, with the installation's authorities for
        clients.
        """
        names = [f"TIDINGS_NETWORK_{listener}_{what}" for what in ("CERTIFICATE", "KEY")]
        chain, key = (data["variables"].get(name, "") for name in names)
        if bool(chain) != bool(key):
            raise env.mistake(f"{names[0]} and {names[1]} must be set together")
        own: TlsFiles = data["tls_files"]
        return TlsFiles(chain, key, own.authorities) if chain else own

    return env.computed(make)


def _delay(value: str) -> tuple[float, float]:
    least, most = env.parse_milliseconds(value)
    if most > 60:
        raise env.mistake("TIDINGS_NETWORK_DELAY_MS is not a range of at most 60000 milliseconds like 80..150")
    return least, most


class Settings(settings.ProcessSettings):
    """Settings of the network process."""

    database: Annotated[DatabaseSettings, settings.database("network")] = env.COMPUTED
    secrets: Annotated[NetworkSecrets, process_secrets.secrets_of(NetworkSecrets)] = env.COMPUTED
    blobs: Annotated[BlobSettings, env.computed(read_blobs)] = env.COMPUTED
    http_address: env.Address = env.variable("TIDINGS_NETWORK_HTTP_ADDRESS", "127.0.0.1:9095")
    tcp_address: env.Address = env.variable("TIDINGS_NETWORK_TCP_ADDRESS", "127.0.0.1:9096")
    # Certificates of the listeners; a listener without one does not use TLS.
    http_certificate: Annotated[TlsFiles, _certificate("HTTP")] = env.COMPUTED
    tcp_certificate: Annotated[TlsFiles, _certificate("TCP")] = env.COMPUTED
    # Seconds, (least, most), added to each call to simulate a distant network.
    delay: Annotated[tuple[float, float], env.text(_delay)] = env.variable("TIDINGS_NETWORK_DELAY_MS", (0.0, 0.0))
    # Seconds that an envelope waits for its recipient at most.
    message_ttl: Annotated[int, env.integer(1, 365 * DAY)] = env.variable("TIDINGS_NETWORK_MESSAGE_TTL_S", 30 * DAY)
    # Seconds between two searches for expired envelopes.
    expiry_interval: Annotated[float, env.number(0.05, 3600)] = env.variable("TIDINGS_NETWORK_EXPIRY_INTERVAL_S", 5.0)
    # Key for the metrics where other machines can reach them; empty for none.
    api_key: OptionalKey = API_KEY
    # Key for announcements; empty for none.
    operator_key: OptionalOperatorKey = API_KEY
    # Separate listener for metrics; `None` to serve them next to the other HTTP endpoints.
    metrics_address: Annotated[tuple[str, int] | None, env.text(env.parse_address)] = env.variable(
        "TIDINGS_NETWORK_METRICS_ADDRESS", None
    )
    unauthenticated: listener_settings.UnauthenticatedLimits = env.COMPUTED
    trusted_proxies: listener_settings.TrustedProxies = listener_settings.TRUSTED_PROXIES
    # Names allowed in `Host` and in a WebSocket's `Origin`; empty for any.
    http_hosts: listener_settings.HttpHosts = listener_settings.HTTP_HOSTS
    limits: Annotated[Limits, env.computed(lambda data: Limits.part(data["variables"]))] = env.COMPUTED
    cluster: Annotated[Cluster, env.computed(lambda data: Cluster.part(data["variables"]))] = env.COMPUTED
    # Processes that share both addresses, each a node.
    workers: Annotated[int, env.integer(1, 64)] = env.variable("TIDINGS_NETWORK_WORKERS", 1)
    # HTTP port of the first worker alone; the other workers use the following ones. 0 for none.
    worker_port: Annotated[int, env.integer(0, 65_535)] = env.variable("TIDINGS_NETWORK_WORKER_PORT", 0)
    # Let other processes listen on both addresses too; the system spreads connections over all of them.
    reuse_port: env.Flag = env.variable("TIDINGS_NETWORK_REUSE_PORT", False)
    # Seconds over which devices are disconnected when the process stops.
    drain: Annotated[float, env.computed(_drain, _read_seconds)] = env.variable("TIDINGS_NETWORK_DRAIN_S", None)
    quotas: Annotated[Quotas, env.computed(lambda data: Quotas.part(data["variables"]))] = env.COMPUTED
    rate_limits: Annotated[DeviceRateLimits, env.computed(lambda data: DeviceRateLimits.part(data["variables"]))] = (
        env.COMPUTED
    )

    def endpoints(self) -> Sequence[exposure.Endpoint]:
        """Return the network paths that need encryption or exposure checks: the listeners, the metrics and Redis."""
        listeners = (
            ("HTTP", self.http_address, self.http_certificate),
            ("TCP", self.tcp_address, self.tcp_certificate),
        )
        endpoints = [
            exposure.Endpoint(
                exposure.NETWORK, f"TIDINGS_NETWORK_{name}_ADDRESS", address[0], bool(files.chain), exposure.OWN
            )
            for name, address, files in listeners
        ]
        if self.metrics_address is not None:
            variable = "TIDINGS_NETWORK_METRICS_ADDRESS"
            endpoints.append(exposure.metrics_endpoint(variable, self.metrics_address[0], self.plaintext))
        if self.cluster.url:
            address = self.cluster.address
            endpoints += [
                exposure.Endpoint(exposure.REDIS, "TIDINGS_REDIS_URL", host, address.is_secure, "rediss://")
                for host, _ in address.hosts
            ]
            # With a Redis on this machine, all nodes are processes of this machine.
            apart = next((host for host, _ in address.hosts if not env.is_loopback(host)), address.hosts[0][0])
            host, name = self.cluster.node_address[0] or apart, "TIDINGS_NETWORK_NODE_ADDRESS"
            endpoints.append(exposure.Endpoint(exposure.NETWORK, name, host, bool(self.tls_files.chain), exposure.OWN))
        return endpoints

    @pydantic.model_validator(mode="after")
    def _monitoring_is_no_operator(self) -> Self:
        if self.operator_key and self.operator_key == self.api_key:
            raise env.mistake("TIDINGS_OPERATOR_KEY equals WA_API_KEY, which only reads: choose another key")
        return self

    @pydantic.model_validator(mode="after")
    def _workers_have_redis(self) -> Self:
        if self.workers > 1 and 0 in (self.http_address[1], self.tcp_address[1]):
            raise env.mistake("TIDINGS_NETWORK_WORKERS over 1 requires addresses with ports, which all workers share")
        if self.workers > 1 and not self.cluster.url:
            raise env.mistake(
                "TIDINGS_NETWORK_WORKERS over 1 requires TIDINGS_REDIS_URL, by which the workers find each other"
            )
        return self
