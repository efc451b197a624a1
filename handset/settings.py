"""Settings of robots, of a terminal and of pages, read from the environment."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from handset.robots.behaviours import MAX_PER_KIND, PREFIXES, Behaviour
from tidings.config import env
from tidings.http import listener_settings
from tidings.installation import network_access, settings
from tidings.installation.settings import DatabaseSettings
from tidings.net import exposure
from tidings.secrets import process_secrets
from tidings.secrets.process_secrets import HandsetSecrets
from tidings.secrets.secret_files import SecretFiles
from tidings.testing import switch
from tidings.wire import addresses

FAMILY = "handset"
_PREFIX = re.compile("[1-9][0-9]{0,8}")


def _http_url(value: str) -> str:
    url = value.rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise env.wrong("is not http://… or https://…")
    return url


def _database(data: Mapping[str, Any]) -> DatabaseSettings:
    """Return the handsets' database: by default a separate SQLite file, whatever database the business uses."""
    url = data["variables"].get("TIDINGS_HANDSET_DB_URL") or f"sqlite+aiosqlite:///{data['data_dir'] / f'{FAMILY}.db'}"
    return settings.database_at(url, data["variables"], "TIDINGS_HANDSET_DB_URL", pool_size=3)


HandsetDatabase = Annotated[DatabaseSettings, env.computed(_database)]


class NetworkUrlSettings(env.Variables):
    """URL of the network's HTTP side: by default that of the network on this machine."""

    network_address: env.Address = env.variable("TIDINGS_NETWORK_HTTP_ADDRESS", "127.0.0.1:9095")
    http_url: Annotated[str, env.computed(lambda data: network_access.url_at(data["network_address"]), _http_url)] = (
        env.variable("TIDINGS_NETWORK_HTTP_URL", None)
    )


def _list(check: Callable[[str], Any]) -> Any:
    """Return a parser of comma-separated values without duplicates.

    check: converts one value; raises `ValueError` with an explanation
    """

    def read(value: str) -> tuple[Any, ...]:
        found, wrong = [], []
        for part in value.split(","):
            try:
                found.append(check(part.strip()))
            except ValueError as error:
                wrong.append(str(error))
        if wrong:
            raise env.mistake("; ".join(wrong))
        return tuple(dict.fromkeys(found))

    return env.text(read)


def _kind(word: str) -> Behaviour:
    try:
        return Behaviour(word)
    except ValueError:
        known = ",".join(kind.value for kind in Behaviour)
        raise ValueError(f"TIDINGS_ROBOTS_KINDS: {word!r} is not one of {known}") from None


def _prefix(word: str) -> str:
    prefix = word.removeprefix("+")
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"TIDINGS_ROBOTS_PREFIXES: {prefix!r} is not 1 to 9 digits that begin with a country code")
    return prefix


def _blocked(data: Mapping[str, Any]) -> str:
    variables = data["variables"]
    found = variables.get("TIDINGS_ROBOTS_BLOCK") or variables.get("TIDINGS_BUSINESS_NUMBER") or settings.DEFAULT_NUMBER
    number: str = found.lstrip("+")
    if not (number.isascii() and number.isdigit()):
        raise env.mistake(f"TIDINGS_ROBOTS_BLOCK={number!r} is not a number")
    return number


class RobotsSettings(NetworkUrlSettings, settings.ProcessSettings):
    """Settings of a process with robots."""

    database: HandsetDatabase = env.COMPUTED
    secrets: Annotated[HandsetSecrets, process_secrets.secrets_of(HandsetSecrets)] = env.COMPUTED
    # of the network's TCP side
    tcp_address: env.Address = env.variable("TIDINGS_NETWORK_TCP_ADDRESS", "127.0.0.1:9096")
    tcp_tls: Annotated[bool, network_access.tcp_tls("http_url")] = network_access.TCP_TLS  # use TLS on the TCP side
    # TLS files for the TCP and the HTTP side.
    network_files: network_access.NetworkFiles = env.COMPUTED
    # robots of each kind, with each prefix
    per_kind: Annotated[int, env.integer(1, MAX_PER_KIND)] = env.variable("TIDINGS_ROBOTS_PER_KIND", 100)
    # behaviours to run
    kinds: Annotated[tuple[Behaviour, ...], _list(_kind)] = env.variable("TIDINGS_ROBOTS_KINDS", tuple(Behaviour))
    # file of JSON lines about shown messages
    log_path: Annotated[Path, settings.below_data_dir("robots.jsonl")] = env.variable("TIDINGS_ROBOTS_LOG", None)
    # bytes of one such file; 0 for no limit
    log_limit: Annotated[int, env.integer(unit=env.MIB)] = env.variable("TIDINGS_ROBOTS_LOG_MB", "16")
    block: Annotated[str, env.computed(_blocked)] = env.COMPUTED  # number that robots of the blocking kind block
    # One-time pre-keys that each robot keeps on the network.
    prekeys: Annotated[int, env.integer(0, 100)] = env.variable("TIDINGS_ROBOTS_PREKEYS", 5)
    # connections over which the robots are logged in
    connections: Annotated[int, env.integer(1, 64)] = env.variable("TIDINGS_ROBOTS_CONNECTIONS", 2)
    # milliseconds between two commits under steady load; each shows the messages received since the last
    commit_ms: Annotated[int, env.integer(0, 1000)] = env.variable("TIDINGS_ROBOTS_COMMIT_MS", 50)
    # prefixes of the robots' numbers
    prefixes: Annotated[tuple[str, ...], _list(_prefix)] = env.variable("TIDINGS_ROBOTS_PREFIXES", PREFIXES)

    # let a test act as the recipients, through a socket in the data directory
    testing: env.Flag = switch.TESTING

    def endpoints(self) -> Sequence[exposure.Endpoint]:
        """Return the network's HTTP and TCP side."""
        tcp = network_access.tcp_endpoint(self.tcp_address[0], secured=self.tcp_tls)
        return (network_access.http_endpoint(self.http_url), tcp)


def _terminal_secrets(data: Mapping[str, Any]) -> HandsetSecrets:
    # A directory without secrets belongs to no installation, so its newly generated registration key would be useless.
    variables, kept = data["variables"], SecretFiles(data["data_dir"]).exist("handset")
    found = process_secrets.read(HandsetSecrets, variables, data["data_dir"])
    given = kept or any(name.startswith(process_secrets.VARIABLES["registration_key"]) for name in variables)
    return found if given else dataclasses.replace(found, registration_key="")


class WebSettings(NetworkUrlSettings, settings.ProcessSettings):
    """Settings of a process that serves handsets as pages."""

    database: HandsetDatabase = env.COMPUTED
    # The registration key is empty when this installation has none. A registration code is requested then.
    secrets: Annotated[HandsetSecrets, env.computed(_terminal_secrets)] = env.COMPUTED
    network_files: network_access.NetworkFiles = env.COMPUTED
    # Where the pages are served: over TLS with a self-signed certificate, unless only this machine reaches them.
    address: env.Address = env.variable("TIDINGS_HANDSET_WEB_ADDRESS", "127.0.0.1:9099")
    # Names by which browsers on other machines may address the pages.
    hosts: listener_settings.HttpHosts = listener_settings.HTTP_HOSTS
    log_level: settings.LogLevel = env.variable("TIDINGS_LOG_LEVEL", "warning", shown=False)

    def endpoints(self) -> Sequence[exposure.Endpoint]:
        """Return the network's HTTP side, which includes the WebSocket."""
        return (network_access.http_endpoint(self.http_url),)


def _pin(value: str) -> str:
    if value and not addresses.is_digits(value, 6, 20):
        raise env.wrong("is not 6 to 20 digits")
    return value


class TerminalSettings(NetworkUrlSettings, settings.InstallationSettings):
    """Settings of a handset in a terminal. Its tables are always migrated automatically."""

    database: HandsetDatabase = env.COMPUTED
    # The registration key is empty when this installation has none. A registration code is requested then.
    secrets: Annotated[HandsetSecrets, env.computed(_terminal_secrets)] = env.COMPUTED
    network_files: network_access.NetworkFiles = env.COMPUTED
    # directory in which `/save` stores received files
    files: Annotated[Path, settings.below_data_dir("files")] = env.variable("TIDINGS_HANDSET_FILES", None)
    log_level: settings.LogLevel = env.variable("TIDINGS_LOG_LEVEL", "warning", shown=False)
    # 6 to 20 digits of the registration lock, which a later registration by code needs. Empty for none.
    pin: Annotated[str, env.text(_pin)] = env.variable("TIDINGS_HANDSET_PIN", "", shown=False)
    # Name in the profile, which each message carries. Empty for none.
    name: Annotated[str, env.text(lambda name: name[:128])] = env.variable("TIDINGS_HANDSET_NAME")

    def endpoints(self) -> Sequence[exposure.Endpoint]:
        """Return the network's HTTP side, which includes the WebSocket."""
        return (network_access.http_endpoint(self.http_url),)
