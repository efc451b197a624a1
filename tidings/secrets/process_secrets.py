"""Secrets of one process: given by the operator, or generated once and kept in its file in the data directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import PlainValidator

from tidings.config import env
from tidings.secrets import secret_sources
from tidings.secrets.secret_files import OWNERS, SecretFiles, UnusableFile, derive
from tidings.secrets.secret_sources import SecretUnavailable

VARIABLES = {
    "jwt_key": "WA_WEB_JWT_CRYPTO_KEY",
    "link_key": "TIDINGS_LINK_KEY",
    "registration_key": "TIDINGS_REGISTRATION_KEY",
    "master_key": "TIDINGS_MASTER_KEY",
    "settings_key": "TIDINGS_SETTINGS_KEY",
    "handset_key": "TIDINGS_HANDSET_KEY",
    "webhook_secret": "TIDINGS_WEBHOOK_SECRET",
}
# Secrets that may come from a command, such as a key service's client.
_BY_COMMAND = ("master_key",)
# Secrets that earlier releases derived from the master key.
_ONCE_DERIVED = ("settings_key", "handset_key")
KEY_LENGTH = 32
MAX_KEYS = 8


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class SecretKeys:
    """Keys of one kind: the first encrypts, all decrypt."""

    keys: tuple[bytes, ...]
    # Reads the current keys, as one may have been added or removed; raises `SecretUnavailable`.
    read: Callable[[], tuple[bytes, ...]] = dataclasses.field(compare=False)
    # Where the keys are read from, for errors.
    source: str = dataclasses.field(compare=False)

    @classmethod
    def of(cls, *keys: bytes) -> SecretKeys:
        """Return keys that never change."""
        return cls(keys, lambda: keys, "memory")

    def __repr__(self) -> str:
        return "SecretKeys(…)"


class _Hidden:
    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"


@dataclasses.dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class WebappSecrets(_Hidden):
    """Secrets of a Webapp."""

    # Signs the tokens of the v1 API.
    jwt_key: str
    # Mutual authentication of Webapp and Coreapp.
    link_key: str
    # Encrypts the business's settings and the secrets among them.
    settings_key: SecretKeys


@dataclasses.dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class CoreappSecrets(_Hidden):
    """Secrets of a Coreapp."""

    # Mutual authentication of Webapp and Coreapp.
    link_key: str
    # Registers numbers without a code.
    registration_key: str
    # Wraps the keys of sessions, messages and callbacks.
    master_key: SecretKeys
    # Encrypts the business's settings and the secrets among them.
    settings_key: SecretKeys
    # Signs callbacks; `whsec_` and base64.
    webhook_secret: str


@dataclasses.dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class NetworkSecrets(_Hidden):
    """Secrets of a network node."""

    # Clients that have it register numbers without a code.
    registration_key: str


@dataclasses.dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class HandsetSecrets(_Hidden):
    """Secrets of handsets."""

    # Registers numbers without a code.
    registration_key: str
    # Encrypts the store of recipients.
    handset_key: SecretKeys


OfProcess = TypeVar("OfProcess", bound=_Hidden)
_PROCESSES: Mapping[type, str] = {
    WebappSecrets: "webapp",
    CoreappSecrets: "coreapp",
    NetworkSecrets: "network",
    HandsetSecrets: "handset",
}


def read(kind: type[OfProcess], variables: Mapping[str, str], data_dir: Path) -> OfProcess:
    """Return the secrets of a process. Reads, or makes, its file only when some of them are not given."""
    reader = _Reader(_PROCESSES[kind], variables, data_dir)
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    try:
        return kind(**reader.all(names))
    except SecretUnavailable as error:
        raise env.mistake(str(error)) from None


def secrets_of(kind: type[_Hidden]) -> PlainValidator:
    """Return the validator of a settings field with the secrets of a process that has a data directory."""
    return env.computed(lambda data: read(kind, data["variables"], data["data_dir"]))


class _Reader:
    def __init__(self, process: str, variables: Mapping[str, str], data_dir: Path) -> None:
        own = tuple(VARIABLES[field] for field in (*OWNERS[process], *_BY_COMMAND))
        # Kept to read keys again: without the secrets of other processes.
        self._variables = {
            name: value
            for name, value in variables.items()
            if name.startswith(own) or not name.startswith(secret_sources.OURS)
        }
        self._process = process
        self._files = SecretFiles(data_dir)

    def all(self, names: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in names:
            if name.endswith(("master_key", "settings_key", "handset_key")):
                value, source = self._text(name)
                found[name] = SecretKeys(parse_keys(value, source), self._rereader(name), source)
            else:
                found[name] = self._text(name)[0]
        return found

    def _rereader(self, name: str) -> Callable[[], tuple[bytes, ...]]:
        return lambda: parse_keys(*self._text(name))

    def _text(self, name: str) -> tuple[str, str]:
        """Return a secret and its source. Raises `SecretUnavailable`."""
        variable = VARIABLES[name]
        given = secret_sources.find(self._variables, variable, command=name in _BY_COMMAND)
        if given is not None:
            return given.read(), given.name
        master = self._variables.get(VARIABLES["master_key"], "")
        if name in _ONCE_DERIVED and master and not self._files.exist(self._process):
            keys = parse_keys(master, VARIABLES["master_key"])
            return " ".join(key.hex() for key in derived(name, keys)), VARIABLES["master_key"]
        path = self._files.path(self._process)
        try:
            kept = self._files.load(self._process, master)
        except UnusableFile as error:
            raise SecretUnavailable(str(error)) from None
        except OSError as error:
            raise SecretUnavailable(f"{path}: {error.strerror}") from None
        if not kept.get(name):
            raise SecretUnavailable(f"{path}: has no {name}; add it there or set {variable}")
        return kept[name], str(path)


def derived(name: str, master_keys: Sequence[bytes]) -> Sequence[bytes]:
    """Return the settings or handset keys of earlier releases with these master keys, whose first is the newest.

    The handset key is not rotated: the oldest comes first.
    """
    keys = [derive(key) for key in master_keys]
    return keys[::-1] if name == "handset_key" else keys


def parse_keys(value: str, source: str) -> tuple[bytes, ...]:
    """Parse keys in hexadecimal digits, separated by white space. Raises `SecretUnavailable`."""
    try:
        keys = tuple(bytes.fromhex(word) for word in value.split())
    except ValueError:
        keys = ()
    if not 1 <= len(keys) <= MAX_KEYS or any(len(key) != KEY_LENGTH for key in keys) or len(set(keys)) != len(keys):
        raise SecretUnavailable(f"{source} is not 64 hexadecimal digits, or up to {MAX_KEYS} different keys of those")
    return keys
