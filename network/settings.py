"""The settings of the network process, from the environment."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tidings.runtime import settings as common
from tidings.runtime.settings import DatabaseSettings, Environment, Secrets

MIB = 1024 * 1024
DAY = 86400


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How much is held in memory, and for how long.

    window:          deliveries to one device that it has not acknowledged; the rest waits.
    window_bytes:    the same, by their size; the last one may go beyond it.
    session_bytes:   the same for all devices of one connection. What is in flight must fit into `write_buffer`, or a
                     device with much in its mailbox is disconnected at every login; so at most half of it, because an
                     envelope takes up to 1.7 times its size as JSON.
    held:            envelopes for one device that wait in memory behind its window or its backlog; one more, and all of
                     them are stored.
    undecided:       envelopes that are neither stored nor acknowledged; one more is refused as `overloaded`.
    undecided_bytes: the same, by the size of their bodies.
    remembered:      decided envelopes by which a repeated one is recognised.
    store_after:     seconds that an envelope may stay undecided in memory before it is stored.
    idle:            seconds without a frame after which a connection is closed.
    write_buffer:    bytes waiting for one reader; more, and it is disconnected.
    connections:     open at the same time; one more is closed as `overloaded`.
    http:            connections over HTTP, open at the same time, that are no WebSockets; one more is closed at once.
    requests:        logins, checks and fetches of one connection in flight; one more fails as `overloaded`.
    transfers:       blobs that come or go at the same time; one more is answered by 503.
    """

    window: int = 1000
    window_bytes: int = 4 * MIB
    session_bytes: int = 8 * MIB
    held: int = 1000
    undecided: int = 200_000
    undecided_bytes: int = 256 * MIB
    remembered: int = 100_000
    store_after: float = 0.5
    idle: float = 60.0
    write_buffer: int = 16 * MIB
    connections: int = 10_000
    http: int = 10_000
    requests: int = 5000
    transfers: int = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Blobs:
    """Encrypted files that devices leave for each other.

    directory: theirs alone; made when it is not there.
    quota:     bytes of all together; one more is answered by 507.
    ttl:       seconds that each is kept.
    """

    directory: Path
    quota: int = 10 * 1024 * MIB
    ttl: int = 14 * DAY


@dataclasses.dataclass(frozen=True, slots=True)
class Certificate:
    """Paths of a PEM certificate chain and its key; both empty for a listener without TLS."""

    chain: str = ""
    key: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Everything the process is told.

    delay:           seconds, (least, most), added to each call to play a distant network.
    message_ttl:     seconds that an envelope waits for its recipient at most.
    expiry_interval: seconds between two looks for expired envelopes.
    embedded:        bring the tables up to date at start instead of refusing to start.
    """

    database: DatabaseSettings
    secrets: Secrets
    blobs: Blobs
    http_address: tuple[str, int] = ("127.0.0.1", 9095)
    tcp_address: tuple[str, int] = ("127.0.0.1", 9096)
    http_certificate: Certificate = Certificate()
    tcp_certificate: Certificate = Certificate()
    delay: tuple[float, float] = (0.0, 0.0)
    message_ttl: int = 30 * 86400
    expiry_interval: float = 5.0
    embedded: bool = False
    limits: Limits = Limits()


def read(env: Environment) -> Settings:
    """Read all settings; the caller ends with `env.check()`, which raises for what could not be used."""
    data_dir = common.data_dir(env)
    defaults = Limits()
    write_buffer = env.integer("TIDINGS_NETWORK_WRITE_BUFFER_MB", defaults.write_buffer // MIB, low=4) * MIB
    return Settings(
        database=common.read_database(env, data_dir, "network"),
        secrets=common.read_secrets(env, data_dir),
        blobs=Blobs(
            directory=Path(env.text("TIDINGS_NETWORK_BLOB_DIR", str(data_dir / "blobs"))).expanduser().absolute(),
            quota=env.integer("TIDINGS_NETWORK_BLOB_QUOTA_MB", 10 * 1024, low=1) * MIB,
            ttl=env.integer("TIDINGS_NETWORK_BLOB_TTL_S", 14 * DAY, low=1, high=365 * DAY),
        ),
        http_address=env.address("TIDINGS_NETWORK_HTTP_ADDRESS", "127.0.0.1:9095"),
        tcp_address=env.address("TIDINGS_NETWORK_TCP_ADDRESS", "127.0.0.1:9096"),
        http_certificate=_certificate(env, "HTTP"),
        tcp_certificate=_certificate(env, "TCP"),
        delay=_delay(env),
        message_ttl=env.integer("TIDINGS_NETWORK_MESSAGE_TTL_S", 30 * 86400, low=1, high=365 * 86400),
        expiry_interval=env.number("TIDINGS_NETWORK_EXPIRY_INTERVAL_S", 5.0, low=0.05, high=3600),
        embedded=env.flag("TIDINGS_EMBEDDED"),
        limits=Limits(
            window=env.integer("TIDINGS_NETWORK_WINDOW", defaults.window, low=1, high=100_000),
            window_bytes=write_buffer // 4,
            session_bytes=write_buffer // 2,
            held=env.integer("TIDINGS_NETWORK_HELD", defaults.held, low=1, high=100_000),
            undecided=env.integer("TIDINGS_NETWORK_UNDECIDED", defaults.undecided, low=1),
            undecided_bytes=env.integer("TIDINGS_NETWORK_UNDECIDED_MB", defaults.undecided_bytes // MIB, low=1) * MIB,
            store_after=env.number("TIDINGS_NETWORK_STORE_AFTER_MS", defaults.store_after * 1000, high=60_000) / 1000,
            idle=env.number("TIDINGS_NETWORK_IDLE_S", defaults.idle, low=1),
            write_buffer=write_buffer,
            connections=env.integer("TIDINGS_NETWORK_CONNECTIONS", defaults.connections, low=1),
            http=env.integer("TIDINGS_NETWORK_HTTP_CONNECTIONS", defaults.http, low=1),
            transfers=env.integer("TIDINGS_NETWORK_TRANSFERS", defaults.transfers, low=1, high=10_000),
        ),
    )


def _certificate(env: Environment, listener: str) -> Certificate:
    chain = env.text(f"TIDINGS_NETWORK_{listener}_CERTIFICATE")
    key = env.text(f"TIDINGS_NETWORK_{listener}_KEY")
    if bool(chain) != bool(key):
        env.problem(f"TIDINGS_NETWORK_{listener}_CERTIFICATE and TIDINGS_NETWORK_{listener}_KEY go together")
    return Certificate(chain, key)


def _delay(env: Environment) -> tuple[float, float]:
    low, high = env.milliseconds_range("TIDINGS_NETWORK_DELAY_MS")
    if not 0 <= low <= high <= 60:
        env.problem("TIDINGS_NETWORK_DELAY_MS is not a range of at most 60000 milliseconds like 80..150")
        return 0.0, 0.0
    return low, high
