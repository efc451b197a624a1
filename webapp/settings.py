"""The settings of a Webapp, from the environment."""

from __future__ import annotations

import dataclasses
import ipaddress
import socket
from pathlib import Path

from tidings.egress import settings as outgoing
from tidings.egress.settings import OutgoingSettings
from tidings.runtime.settings import (
    DatabaseSettings,
    Environment,
    Secrets,
    business_number,
    data_dir,
    read_database,
    read_secrets,
)
from webapp import pem

COREAPP_PORT = 6252


class ApiKey(str):
    """`WA_API_KEY`; never shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ApiKey(…)" if self else "ApiKey()"


NO_KEY = ApiKey()


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Everything a Webapp is told at start.

    host, port:       where the API listens; port 0 takes a free one.
    account:          the business number that this installation sends from.
    embedded:         bring the tables up to date at start instead of refusing.
    api_key:          opens health and metrics besides a token; empty is none.
    messages_rate, contacts_rate: requests a second, 0 is unlimited; the bursts are how many may come at once.
    coreapp:          a fixed address of the one Coreapp; without it the addresses come from the database.
    coreapp_patience: seconds that a request waits for a Coreapp that is away.
    coreapp_timeout:  seconds that a question may take.
    max_body:         bytes of a JSON body.
    max_requests:     requests in progress at the same time.
    tls:              speak HTTPS; tls_names: host names and addresses for a certificate that is made here.
    data_dir:         whose free space `/v1/support` tells.
    outgoing:         where webhooks and media links may lead.
    media_dir:        of files, the same for every Webapp and Coreapp; media_reserve: bytes that stay free there.
    max_uploads:      uploads of files in progress at the same time.
    """

    host: str
    port: int
    account: str
    database: DatabaseSettings
    secrets: Secrets
    media_dir: Path
    embedded: bool = False
    api_key: ApiKey = NO_KEY
    messages_rate: float = 80.0
    messages_burst: float = 80.0
    contacts_rate: float = 40.0
    contacts_burst: float = 40.0
    coreapp: tuple[str, int] | None = None
    coreapp_patience: float = 5.0
    coreapp_timeout: float = 30.0
    max_body: int = 1024 * 1024
    max_requests: int = 10_000
    tls: bool = False
    tls_names: tuple[str, ...] = ("localhost", "127.0.0.1")
    data_dir: Path = Path()
    outgoing: OutgoingSettings = outgoing.ONLY_PUBLIC
    media_reserve: int = 0
    max_uploads: int = 16


def read(env: Environment) -> Settings:
    """Raises `SettingsError` with every mistake at once."""
    directory = data_dir(env)
    env.check()
    host, port = env.address("TIDINGS_API_ADDRESS", "127.0.0.1:9090")
    messages_rate = env.number("TIDINGS_MESSAGES_RATE", 80.0)
    contacts_rate = env.number("TIDINGS_CONTACTS_RATE", 40.0)
    settings = Settings(
        host=host,
        port=port,
        account=business_number(env),
        database=read_database(env, directory, "business"),
        secrets=read_secrets(env, directory),
        embedded=env.flag("TIDINGS_EMBEDDED"),
        api_key=_api_key(env),
        messages_rate=messages_rate,
        messages_burst=env.number("TIDINGS_MESSAGES_BURST", max(messages_rate, 1.0), low=1.0),
        contacts_rate=contacts_rate,
        contacts_burst=env.number("TIDINGS_CONTACTS_BURST", max(contacts_rate, 1.0), low=1.0),
        coreapp=_coreapp(env),
        coreapp_patience=env.number("TIDINGS_COREAPP_PATIENCE_S", 5.0, high=3600),
        coreapp_timeout=env.number("TIDINGS_COREAPP_TIMEOUT_S", 30.0, low=0.1, high=3600),
        max_body=env.integer("TIDINGS_MAX_BODY_BYTES", 1024 * 1024, low=1024, high=3 * 1024 * 1024),
        max_requests=env.integer("TIDINGS_MAX_REQUESTS", 10_000, low=1),
        tls=env.flag("TIDINGS_API_TLS", default=not (env.flag("TIDINGS_EMBEDDED") or _is_loopback(host))),
        tls_names=_tls_names(env, host),
        data_dir=directory,
        outgoing=outgoing.read(env, loopback=env.flag("TIDINGS_EMBEDDED")),
        media_dir=Path(env.text("TIDINGS_MEDIA_DIR", str(directory / "media"))).expanduser().absolute(),
        media_reserve=env.integer("TIDINGS_MEDIA_RESERVE_MB", 100, low=0) * 1024 * 1024,
        max_uploads=env.integer("TIDINGS_MAX_UPLOADS", 16, low=1, high=1000),
    )
    if len(settings.secrets.jwt_key) < 16:
        env.problem("WA_WEB_JWT_CRYPTO_KEY is shorter than 16 characters")
    env.check()
    return settings


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tls_names(env: Environment, host: str) -> tuple[str, ...]:
    """What clients may call the API: the names that are set, this machine's, the address it listens on."""
    given = f"{env.text('WA_WEB_SERVERNAME')},{env.text('TIDINGS_API_TLS_NAMES')}".split(",")
    names = [name.strip().strip("[]") for name in given if name.strip()]
    for name in names:
        if not pem.is_name(name):
            env.problem(f"{name!r} in WA_WEB_SERVERNAME or TIDINGS_API_TLS_NAMES is no host name or address")
    own = socket.gethostname()
    here = [own] if pem.is_name(own) else []
    bound = [] if host in ("0.0.0.0", "::", "") else [host]  # noqa: S104
    return tuple(dict.fromkeys((*names, *here, "localhost", "127.0.0.1", "::1", *bound)))


def _api_key(env: Environment) -> ApiKey:
    key = env.text("WA_API_KEY")
    if key and not 12 <= len(key) <= 128:
        env.problem("WA_API_KEY does not have 12 to 128 characters")
    return ApiKey(key)


def _coreapp(env: Environment) -> tuple[str, int] | None:
    raw = env.text("WACORE_HOSTNAME")
    if not raw:
        return None
    # More than one colon and no bracket is an IPv6 address without a port.
    with_port = raw if raw.rpartition(":")[2].isdigit() and (raw.count(":") == 1 or "]:" in raw) else None
    return env.address("WACORE_HOSTNAME", raw) if with_port else (raw.strip("[]"), COREAPP_PORT)
