"""Settings that several processes of an installation share: directory, number, database and secrets."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import parse_qsl, quote, urlencode

import pydantic
from pydantic import PlainValidator

from tidings.config import env
from tidings.net import exposure
from tidings.net.tls import TlsFiles
from tidings.observability import tracing
from tidings.secrets import private_files, secret_sources

DEFAULT_NUMBER = "15550000000"


def _data_dir(value: str) -> Path:
    path = env.parse_path(value)
    try:
        private_files.make_directory(path)
    except OSError as error:
        raise env.mistake(f"data directory {path}: {error.strerror}") from None
    if not os.access(path, os.X_OK):
        raise env.mistake(f"data directory {path}: not accessible")
    return path


def _business_number(value: str) -> str:
    digits = value.lstrip("+")
    if not (digits.isascii() and digits.isdigit() and 7 <= len(digits) <= 15):
        raise env.mistake(f"TIDINGS_BUSINESS_NUMBER={digits!r} is not a number of 7 to 15 digits")
    return digits


def _certificate_name(value: str) -> str:
    # Names in certificates have no final dot.
    return env.parse_host(value).removesuffix(".") if value else ""


def below_data_dir(name: str) -> PlainValidator:
    """Return the validator of a path that a variable sets; by default `name` in the data directory."""
    return env.computed(lambda data: data["data_dir"] / name, env.parse_path)


# Made when it does not exist. Processes that write to it check whether they can.
DataDir = Annotated[Path, env.text(_data_dir)]
BusinessNumber = Annotated[str, env.text(_business_number)]
LogLevel = Annotated[str, env.choice("debug", "info", "warning", "error")]
BUSINESS_NUMBER: Any = env.variable("TIDINGS_BUSINESS_NUMBER", DEFAULT_NUMBER)
StatusesPerPost = Annotated[int, env.integer(1, 100)]
STATUSES_PER_POST: Any = env.variable("TIDINGS_WEBHOOK_STATUSES_PER_POST", 1)


@dataclasses.dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """Location of the database of one family of tables."""

    url: str
    # Connections.
    pool_size: int = 10
    # Seconds added to each commit, to simulate a slow or replicated disk in measurements.
    commit_delay: float = 0.0
    # TLS of the connections to a server; `None` for plaintext.
    tls: TlsFiles | None = None

    @property
    def engine(self) -> str:
        """Either `sqlite` or `mysql`."""
        return self.url.partition("+")[0]

    def __repr__(self) -> str:
        return f"DatabaseSettings({describe_url(self.url)})"


def describe_url(url: str) -> str:
    """Return the URL without user and password."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]


class _PoolVariables(env.Variables):
    """Variables that the databases of all families share."""

    pool_size: Annotated[int, env.integer(1, 1000)] = env.variable("TIDINGS_DB_POOL_SIZE", 10)
    commit_delay: Annotated[float, env.number(unit=0.001)] = env.variable("TIDINGS_DB_COMMIT_DELAY_MS", 0.0)


class _OriginalVariables(_PoolVariables):
    """Database variables of the On-Premises API, which are ignored when one of our own names the database."""

    engine: Annotated[str, env.choice("SQLITE", "MYSQL")] = env.variable("WA_DB_ENGINE", "SQLITE")
    username: str = env.variable("WA_DB_USERNAME", "root")
    password: Annotated[str, env.computed(lambda data: secret_sources.given(data["variables"], "WA_DB_PASSWORD"))] = (
        env.HIDDEN
    )
    hostname: env.Host = env.variable("WA_DB_HOSTNAME", "127.0.0.1")
    port: Annotated[int, env.integer(1, 65535)] = env.variable("WA_DB_PORT", 3306)
    prefix: str = env.variable("WA_DB_NAME_PREFIX", "tidings_")

    def mysql_url(self, family: str) -> str:
        user, password = quote(self.username, safe=""), quote(self.password, safe="")
        host = f"[{self.hostname}]" if ":" in self.hostname else self.hostname
        return f"mysql+aiomysql://{user}:{password}@{host}:{self.port}/{self.prefix}{family}"


def database_at(
    url: str, variables: Mapping[str, str], name: str, *, pool_size: int = 10, commit_delay: float = 0.0
) -> DatabaseSettings:
    """Return the database at a URL, whose query may name TLS files: `ssl_ca`, `ssl_cert` and `ssl_key`.

    A URL without them uses `WA_DB_SSL_CA`, `_CERT` and `_KEY`. Raises `env.mistake`, also for plaintext to a server on
    another machine that the settings do not allow.

    name: variable that holds the host, for errors.
    """
    if not url.startswith(("sqlite+aiosqlite://", "mysql+aiomysql://")):
        raise env.mistake(f"{name}={describe_url(url)!r} is neither sqlite+aiosqlite:// nor mysql+aiomysql://")
    address, tls = url, None
    if url.startswith("mysql"):
        address, _, query = url.partition("?")
        asked = parse_qsl(query)
        given = {key: value for key, value in asked if key in _SSL}
        files = [given.get(key, "") if given else variables.get(f"WA_DB_{key.upper()}", "") for key in _SSL]
        authorities, chain, key = files
        if bool(chain) != bool(key) or (chain and not authorities):
            raise env.mistake("WA_DB_SSL_CERT and WA_DB_SSL_KEY must be set together, with WA_DB_SSL_CA")
        tls = TlsFiles(chain, key, authorities) if authorities else None
        host = describe_url(address).partition("://")[2].partition("/")[0]
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        # Without a host it is a socket in the file system.
        endpoint = exposure.Endpoint(exposure.DATABASE, name, host or "localhost", tls is not None, "WA_DB_SSL_CA")
        exposure.require([endpoint], exposure.read_allowed(variables))
        rest = [(key, value) for key, value in asked if key not in _SSL]
        address += f"?{urlencode(rest)}" if rest else ""
    return DatabaseSettings(url=address, pool_size=pool_size, commit_delay=commit_delay, tls=tls)


_SSL = ("ssl_ca", "ssl_cert", "ssl_key")


def read_database(variables: Mapping[str, str], data_dir: Path, family: str) -> DatabaseSettings:
    """Return the database of one family of tables, `business` or `network`.

    `TIDINGS_<FAMILY>_DB_URL` takes precedence, then the On-Premises API's `WA_DB_*`; otherwise it is SQLite in the data
    directory. The MySQL schema is `WA_DB_NAME_PREFIX` (default `tidings_`) + family.
    """
    pool: _PoolVariables
    name = f"TIDINGS_{family.upper()}_DB_URL"
    if url := variables.get(name):
        pool = _PoolVariables(variables=variables)
    else:
        name = "WA_DB_HOSTNAME"
        pool = original = _OriginalVariables(variables=variables)
        of_sqlite = f"sqlite+aiosqlite:///{data_dir / f'{family}.db'}"
        url = original.mysql_url(family) if original.engine == "MYSQL" else of_sqlite
    return database_at(url, variables, name, pool_size=pool.pool_size, commit_delay=pool.commit_delay)


def database(family: str) -> PlainValidator:
    """Return the validator of a field with the database of a process that has a data directory."""
    return env.computed(lambda data: read_database(data["variables"], data["data_dir"], family))


class LogSettings(env.Variables):
    """Level and style of a process's log."""

    log_level: LogLevel = env.variable("TIDINGS_LOG_LEVEL", "info", shown=False)
    log_style: Annotated[str, env.choice("text", "json")] = env.variable("TIDINGS_LOG_STYLE", "text", shown=False)


class InstallationSettings(LogSettings):
    """Settings of everything that works in the data directory of an installation."""

    data_dir: DataDir = env.variable("TIDINGS_DATA_DIR", "data")
    # Certificate of this process for internal connections, and the authorities that verify the others'.
    tls_files: exposure.InstallationFiles = env.COMPUTED
    # Parts (`exposure.PARTS`) that may use plaintext over a network.
    plaintext: exposure.Allowed = exposure.ALLOWED
    # Name in the certificates of all Coreapps; empty if each certificate names its own host.
    coreapp_tls_name: Annotated[str, env.text(_certificate_name)] = env.variable("TIDINGS_COREAPP_TLS_NAME")

    def endpoints(self) -> Sequence[exposure.Endpoint]:
        """Return the internal addresses of the installation that this process listens on and calls."""
        return ()

    @pydantic.model_validator(mode="after")
    def _plaintext_is_asked_for(self) -> Self:
        exposure.require(self.endpoints(), self.plaintext)
        return self


class ProcessSettings(InstallationSettings):
    """Settings that all processes have."""

    # Migrate the tables at start instead of refusing to start.
    embedded: env.Flag = env.variable("TIDINGS_EMBEDDED", False)
    # Path to which a profile of the process is written; empty for none.
    profile: str = env.variable("TIDINGS_PROFILE", shown=False)
    # Export traces, as OpenTelemetry's own variables configure it.
    traces: tracing.Wanted = env.COMPUTED
