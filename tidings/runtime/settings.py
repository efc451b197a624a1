"""Reading a process's settings from the environment: every mistake is collected, then reported together."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MIN_PYTHON = (3, 11)


class SettingsError(Exception):
    """The environment holds values that cannot be used; `str()` names each of them in one line."""


class Environment:
    """Typed access to variables. A bad value is remembered and its default returned; `check()` raises for all of them.

    An empty value counts as unset.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._problems: list[str] = []

    def text(self, name: str, default: str = "") -> str:
        return self._variables.get(name) or default

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        value = self.text(name, default)
        for choice in choices:
            if value.lower() == choice.lower():
                return choice
        self._problems.append(f"{name}={value!r} is not one of {', '.join(choices)}")
        return default

    def integer(self, name: str, default: int, *, low: int = 0, high: int = 2**31 - 1) -> int:
        raw = self.text(name)
        if not raw:
            return default
        try:
            value = int(raw)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            self._problems.append(f"{name}={raw!r} is not a whole number from {low} to {high}")
            return default
        return value

    def number(self, name: str, default: float, *, low: float = 0.0, high: float = 1e9) -> float:
        raw = self.text(name)
        if not raw:
            return default
        try:
            value = float(raw)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            self._problems.append(f"{name}={raw!r} is not a number from {low} to {high}")
            return default
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        raw = self.text(name).lower()
        if not raw:
            return default
        if raw in ("1", "true", "yes", "on"):
            return True
        if raw not in ("0", "false", "no", "off"):
            self._problems.append(f"{name}={raw!r} is not a yes or no (use 1 or 0)")
            return default
        return False

    def address(self, name: str, default: str) -> tuple[str, int]:
        """`host:port`."""
        raw = self.text(name, default)
        host, _, port = raw.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            self._problems.append(f"{name}={raw!r} is not host:port")
            return "127.0.0.1", 0
        return host.strip("[]"), int(port)

    def milliseconds_range(self, name: str) -> tuple[float, float]:
        """`80..150` or `100`, in milliseconds; returned in seconds. Unset is no delay at all."""
        raw = self.text(name)
        if not raw:
            return 0.0, 0.0
        low, _, high = raw.partition("..")
        try:
            least, most = float(low) / 1000, float(high or low) / 1000
        except ValueError:
            least = most = -1.0
        if not 0.0 <= least <= most < float("inf"):
            self._problems.append(f"{name}={raw!r} is not milliseconds like 100 or 80..150")
            return 0.0, 0.0
        return least, most

    def problem(self, text: str) -> None:
        """Report a mistake that only the caller can see."""
        self._problems.append(text)

    def check(self) -> None:
        """Raises `SettingsError` when any value read so far could not be used."""
        if self._problems:
            raise SettingsError("; ".join(self._problems))


@dataclasses.dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """Where one family of tables lives.

    commit_delay: seconds added to each commit, to play a slow or replicated disk in measurements.
    """

    url: str
    pool_size: int = 10
    commit_delay: float = 0.0

    @property
    def engine(self) -> str:
        """`sqlite` or `mysql`."""
        return self.url.partition("+")[0]

    def __repr__(self) -> str:
        return f"DatabaseSettings({describe_url(self.url)})"


def describe_url(url: str) -> str:
    """The address without user and password."""
    scheme, separator, rest = url.partition("://")
    return scheme + separator + rest.rpartition("@")[2]


def read_database(env: Environment, data_dir: Path, family: str) -> DatabaseSettings:
    """The database of one family of tables, `business` or `network`.

    `TIDINGS_<FAMILY>_DB_URL` wins; then the original's `WA_DB_*`; with neither, SQLite in the data directory.
    The MySQL schema is `WA_DB_NAME_PREFIX` (default `tidings_`) + family.
    """
    pool_size = env.integer("TIDINGS_DB_POOL_SIZE", 10, low=1, high=1000)
    delay = env.number("TIDINGS_DB_COMMIT_DELAY_MS", 0.0) / 1000
    url = env.text(f"TIDINGS_{family.upper()}_DB_URL")
    if not url and env.choice("WA_DB_ENGINE", "SQLITE", ("SQLITE", "MYSQL")) == "MYSQL":
        quote = _quote
        user, password = quote(env.text("WA_DB_USERNAME", "root")), quote(env.text("WA_DB_PASSWORD"))
        host, port = env.text("WA_DB_HOSTNAME", "127.0.0.1"), env.integer("WA_DB_PORT", 3306, low=1, high=65535)
        name = env.text("WA_DB_NAME_PREFIX", "tidings_") + family
        for variable in ("WA_DB_SSL_CA", "WA_DB_SSL_CERT", "WA_DB_SSL_KEY"):
            if env.text(variable):
                # Whoever sets it must not believe that the connection is encrypted.
                env.problem(f"{variable} is not supported: connections to the database are not encrypted")
        url = f"mysql+aiomysql://{user}:{password}@{host}:{port}/{name}"
    if not url:
        url = f"sqlite+aiosqlite:///{data_dir / f'{family}.db'}"
    if not url.startswith(("sqlite+aiosqlite://", "mysql+aiomysql://")):
        env.problem(f"database address {describe_url(url)!r} is neither sqlite+aiosqlite:// nor mysql+aiomysql://")
    return DatabaseSettings(url=url, pool_size=pool_size, commit_delay=delay)


def business_number(env: Environment) -> str:
    """The number that the business sends from, `TIDINGS_BUSINESS_NUMBER`, as digits."""
    number = env.text("TIDINGS_BUSINESS_NUMBER", "15550000000").lstrip("+")
    if not (number.isascii() and number.isdigit() and 7 <= len(number) <= 15):
        env.problem(f"TIDINGS_BUSINESS_NUMBER={number!r} is not a number of 7 to 15 digits")
    return number


def _quote(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.~" else "".join(f"%{b:02X}" for b in c.encode()) for c in text)


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class Secrets:
    """What one installation keeps to itself; each from the environment, or made once and kept in the data directory.

    jwt_key:          signs the tokens of the v1 API (`WA_WEB_JWT_CRYPTO_KEY`).
    link_key:         Webapp and Coreapp prove it to each other (`TIDINGS_LINK_KEY`).
    registration_key: lets fleets and Coreapps register numbers without a code (`TIDINGS_REGISTRATION_KEY`).
    master_key:       32 bytes that wrap the keys of sealed sessions (`TIDINGS_MASTER_KEY`, 64 hex digits).
    webhook_secret:   signs callbacks; `whsec_` and base64 (`TIDINGS_WEBHOOK_SECRET`).
    """

    jwt_key: str
    link_key: str
    registration_key: str
    master_key: bytes
    webhook_secret: str

    def __repr__(self) -> str:
        return "Secrets(…)"


_SECRETS = {
    "jwt_key": "WA_WEB_JWT_CRYPTO_KEY",
    "link_key": "TIDINGS_LINK_KEY",
    "registration_key": "TIDINGS_REGISTRATION_KEY",
    "master_key": "TIDINGS_MASTER_KEY",
    "webhook_secret": "TIDINGS_WEBHOOK_SECRET",
}


def read_secrets(env: Environment, data_dir: Path) -> Secrets:
    """All secrets. Those that the environment leaves out come from `secrets.json` in the data directory (mode
    0600), which is made at the first start."""
    values = {field: env.text(variable) for field, variable in _SECRETS.items()}
    missing = [field for field, value in values.items() if not value]
    if missing:
        path = data_dir / "secrets.json"
        try:
            kept = _load_or_make_secrets(path)
        except (OSError, ValueError) as error:
            env.problem(f"{path}: {getattr(error, 'strerror', None) or 'not a file of secrets'}")
            kept = {}
        for field in missing:
            values[field] = str(kept.get(field, ""))
            if kept and not values[field]:
                env.problem(f"{path}: has no {field}; add it there or set {_SECRETS[field]}")
    try:
        master_key = bytes.fromhex(values["master_key"])
    except ValueError:
        master_key = b""
    if len(master_key) != 32 and values["master_key"]:
        env.problem("TIDINGS_MASTER_KEY is not 64 hexadecimal digits")
    return Secrets(
        values["jwt_key"], values["link_key"], values["registration_key"], master_key, values["webhook_secret"]
    )


def _load_or_make_secrets(path: Path) -> dict[str, str]:
    # Read before writing: what is there serves on a full or read-only disk, too.
    if path.exists():
        found: dict[str, str] = json.loads(path.read_text())
        return found
    fresh = {field: secrets.token_hex(32) for field in _SECRETS}
    fresh["webhook_secret"] = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".secrets-{os.getpid()}")
    try:
        # A link: when several processes start at once, one makes the file and the others read it.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(fresh, file, indent=1)
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink(missing_ok=True)
    kept: dict[str, str] = json.loads(path.read_text())
    return kept


def data_dir(env: Environment) -> Path:
    """`TIDINGS_DATA_DIR`, by default `data` below the working directory; made when it is not there.

    Reports a problem when it cannot be made or looked into. Whether it can be written is for those to say who write.
    """
    path = Path(env.text("TIDINGS_DATA_DIR", "data")).expanduser().absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        env.problem(f"data directory {path}: {error.strerror}")
        return path
    if not os.access(path, os.X_OK):
        env.problem(f"data directory {path}: not accessible")
    return path


def printable(settings: Any) -> dict[str, str]:
    """The fields of a settings object for the log at start, without those that are not for its repr; secrets show as
    `Secrets(…)`."""
    return {field.name: repr(getattr(settings, field.name)) for field in dataclasses.fields(settings) if field.repr}
