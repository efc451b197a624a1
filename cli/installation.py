"""Whole installation on one machine: upgrades its tables, then runs network, Coreapp, Webapp and robots as children."""

from __future__ import annotations

import dataclasses
import fcntl
import importlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cli import first_template, guard, tables, unread_variables
from cli.child_process import NOTHING, STOP_SECONDS
from cli.settings import PageSettings, UpSettings
from cli.supervisor import Child, Supervisor
from tidings.config import env
from tidings.config.env import SettingsError
from tidings.installation.settings import DatabaseSettings
from tidings.secrets import api_key, first_password, operator_key, process_secrets, secret_sources
from tidings.secrets.process_secrets import CoreappSecrets
from tidings.secrets.secret_files import OWNERS
from tidings.storage.business import accounts, numbers, templates, users
from tidings.storage.database import Database

# Process whose secrets a command reads, for commands that are not named like their process.
_PROCESSES = {"robots": "handset"}
# Variables with secrets that an installation cannot generate, and the processes that read them.
_OTHERS: Mapping[str, tuple[str, ...]] = {
    "WA_DB_PASSWORD": ("webapp", "coreapp", "network"),
    "WA_DB_PASSWORD" + secret_sources.FILE: ("webapp", "coreapp", "network"),
    "TIDINGS_BUSINESS_DB_URL": ("webapp", "coreapp"),
    "TIDINGS_NETWORK_DB_URL": ("network",),
    "TIDINGS_REDIS_URL": ("network",),
    "TIDINGS_REDIS_PASSWORD": ("network",),
    "TIDINGS_REDIS_SENTINEL_PASSWORD": ("network",),
    "TIDINGS_HANDSET_DB_URL": ("handset",),
    "TIDINGS_OUTGOING_PROXY": ("webapp", "coreapp"),
    api_key.VARIABLE: ("webapp", "coreapp", "network"),
    api_key.VARIABLE + secret_sources.FILE: ("webapp", "coreapp", "network"),
    api_key.OPERATOR_VARIABLE: ("network",),
    api_key.OPERATOR_VARIABLE + secret_sources.FILE: ("network",),
    first_password.VARIABLE: ("webapp",),
    first_password.VARIABLE + secret_sources.FILE: ("webapp",),
    api_key.CONSOLE_VARIABLE: ("webapp",),
    api_key.CONSOLE_VARIABLE + secret_sources.FILE: ("webapp",),
    api_key.LINK_VARIABLE: ("webapp",),
    api_key.LINK_VARIABLE + secret_sources.FILE: ("webapp",),
}


def environment_of(command: str, variables: Mapping[str, str], secrets: CoreappSecrets) -> dict[str, str]:
    """Return the part of `variables` that `tidings <command>` may read.

    A process that needs only a key derived from `TIDINGS_MASTER_KEY` gets the derived key instead of the master key.

    secrets: secrets as the Coreapp reads them in this environment.
    """
    process = _PROCESSES.get(command, command)
    derived: dict[str, Sequence[bytes]] = {}
    if (master := process_secrets.VARIABLES["master_key"]) in variables and secrets.settings_key.source == master:
        derived["settings_key"] = secrets.settings_key.keys
        derived["handset_key"] = process_secrets.derived("handset_key", secrets.master_key.keys)
    foreign = set()
    added = {}
    for field, name in process_secrets.VARIABLES.items():
        names = {name, name + secret_sources.FILE, name + secret_sources.COMMAND}
        if field not in OWNERS[process]:
            foreign |= names
        elif field in derived and not names & variables.keys():
            added[name] = " ".join(key.hex() for key in derived[field])
    foreign |= {name for name, owners in _OTHERS.items() if process not in owners}
    console = {api_key.CONSOLE_VARIABLE, api_key.CONSOLE_VARIABLE + secret_sources.FILE}
    if process == "webapp" and not console & variables.keys() and _has_console(variables):
        # The console replays, purges and shows what the user of this machine may.
        added[api_key.CONSOLE_VARIABLE] = operator_key.derive(secrets.master_key.keys[0])
    return {name: value for name, value in variables.items() if name not in foreign} | added


# Addresses of the network, which the installation gives to the processes that connect to it.
_DIALLED = ("TIDINGS_NETWORK_HTTP_URL", "TIDINGS_NETWORK_TCP_ADDRESS", "TIDINGS_NETWORK_TCP_TLS")


def _mistakes(environments: Mapping[str, Mapping[str, str]]) -> Sequence[str]:
    """Return the error texts of wrong settings of processes.

    environments: variables of each process, by command
    """
    given = {
        command: {name: value for name, value in variables.items() if command == "network" or name not in _DIALLED}
        for command, variables in environments.items()
    }
    # Imported here: of the processes' programs, `tidings up` loads only the settings.
    found: Sequence[str] = importlib.import_module("cli.process_settings").mistakes(given)
    return found


def _has_console(variables: Mapping[str, str]) -> bool:
    """Return whether the Webapp serves the console."""
    return variables.get("TIDINGS_CONSOLE", "").lower() not in ("", "0", "false", "no", "off")


TESTING = "TIDINGS_TESTING"
# Settings for trying Tidings as the README describes, applied only when the API listens on loopback: callbacks to
# `tidings listen` on this machine, texts to robots that have not written before, the console, and `/tidings/` for
# tests. Each variable has its value and the name of a more general variable; it is not set when either is set already.
ON_LOOPBACK = {
    "TIDINGS_OUTGOING_ALLOW_WEBHOOKS": ("127.0.0.0/8,::1", "TIDINGS_OUTGOING_ALLOW"),
    "TIDINGS_REENGAGEMENT_WINDOW": ("0", ""),
    "TIDINGS_CONSOLE": ("1", ""),
    TESTING: ("1", ""),
}
# Commands of the processes that every installation has, in the order of their start.
_COMMANDS = ("network", "coreapp", "webapp", "robots")
# File of a data directory that a running `tidings up` locks, and leaves behind.
_LOCK = "up.lock"
BUSINESSES = "TIDINGS_NETWORK_BUSINESS_NUMBERS"


@dataclasses.dataclass(frozen=True, slots=True)
class InstallationAddresses:
    """Addresses of the parts of a running installation."""

    api_url: str
    network_url: str
    network_tcp: str  # host:port
    coreapp_link: str  # host:port
    coreapp_metrics: str  # URL
    robots_log: str  # path; empty while the robots do not run
    robots_per_kind: int
    robots_prefixes: Sequence[str]
    # The administrator's password until the first login; empty if it was changed or came from the environment.
    first_password: str
    handset_link: str = ""  # opens the page with handsets once; empty while it does not run
    console: str = ""  # URL that opens the console once; empty where it is off


class Installation:
    """All processes of one data directory.

    Raises `SettingsError` when a setting is wrong or the directory cannot be used.

    variables: environment variables of the installation.
    """

    def __init__(self, variables: Mapping[str, str], print_line: Callable[[str], None]) -> None:
        # `tidings up` has reported unread variables once; without them no child reports them again.
        unread = {variable.name for variable in unread_variables.find(variables)}
        variables = {name: value for name, value in variables.items() if name not in unread}
        # The node name stays the same across starts, so that the next Coreapp need not wait for the lease of a killed
        # one to expire.
        self._variables = {
            **variables,
            "TIDINGS_CLOUD_API": variables.get("TIDINGS_CLOUD_API") or "1",
            "TIDINGS_EMBEDDED": "1",
            "COREAPP_HOSTNAME": variables.get("COREAPP_HOSTNAME") or f"{socket.gethostname()}:up",
        }
        # Reading the settings creates missing secrets, before several children could race to create them.
        self._settings = self._read_settings()
        self.loopback_variables = loopback_variables(variables, self._settings.api_address[0])
        self._variables |= self.loopback_variables
        parts = {
            command: environment_of(command, self._variables, self._settings.secrets) for command in self._commands()
        }
        if wrong := _mistakes(parts):
            raise SettingsError("; ".join(wrong))
        self.data_dir = self._settings.data_dir
        self._print_line = print_line
        self._lock = -1
        self.supervisor = Supervisor(self.data_dir / "logs", print_line)

    def _read_settings(self) -> UpSettings:
        """Read the settings of this command. Raises `SettingsError` with these mistakes and those of all processes."""
        try:
            return UpSettings.read(self._variables)
        except SettingsError:
            parts = dict.fromkeys(self._commands(), self._variables)
            wrong = dict.fromkeys((*UpSettings.mistakes(self._variables), *_mistakes(parts)))
            raise SettingsError("; ".join(wrong)) from None

    def _commands(self) -> Sequence[str]:
        """Return the commands of the processes to start, in the order of their start."""
        has_page = not PageSettings.mistakes(self._variables) and PageSettings.read(self._variables).handset_web
        return (*_COMMANDS, "handset") if has_page else _COMMANDS

    def read(self) -> None:
        """Lock the data directory. Raises `CommandFailure` when another installation runs on it."""
        self._lock = self._open_lock()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise guard.CommandFailure(f"Tidings is already running on {self.data_dir}") from None

    def _open_lock(self) -> int:
        path = self.data_dir / _LOCK
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            # On a full or read-only disk, lock an existing file or the directory itself.
            return os.open(path if path.exists() else self.data_dir, os.O_RDONLY | os.O_CLOEXEC)

    async def start(self) -> InstallationAddresses:
        """Load the programs of all processes while the tables are upgraded, then start each process after those that it
        needs are ready.

        Raises `SettingsError` for a database of another business number, and `CommandFailure`.
        """
        for command in _COMMANDS:
            await self.supervisor.prepare(self._child(command))
        if self._settings.handset_web:
            await self.supervisor.prepare(self._child("handset", "--web", entry="link"))
        self._print_line("migrating the tables ...")
        await tables.upgrade(self._settings.families, print_line=_ignore_line)
        database = Database(self._settings.business, "business")
        try:
            await accounts.require_number(database, self._settings.account)
            async with database.reading() as connection:
                is_new = not await accounts.list_numbers(connection)
                present = {self._settings.account, *(each.number for each in await numbers.list_served(connection))}
            if is_new:
                # Only then: it stays deleted if it is deleted later.
                template = first_template.make(self._settings.account, round(time.time() * 1000))
                await database.persist(lambda connection: templates.add_template(connection, template))
        finally:
            await database.close()
        # The installation's numbers can be registered only with the registration key, not with a registration code.
        businesses = self._variables.get(BUSINESSES) or ",".join(sorted(present))
        network = await self._start("network", {BUSINESSES: businesses})
        http, tcp = _dialled(network["http"]), _dialled(network["tcp"])
        network_url = f"{'https' if network['http_tls'] else 'http'}://{http}"
        dial = {
            "TIDINGS_NETWORK_HTTP_URL": network_url,
            "TIDINGS_NETWORK_TCP_ADDRESS": tcp,
            "TIDINGS_NETWORK_TCP_TLS": "1" if network["tcp_tls"] else "0",
        }
        coreapp = await self._start("coreapp", dial)
        first = await self._first_password()
        # A restarted Webapp does not get the link, which may have been used.
        link = secrets.token_urlsafe(18)
        webapp = await self._start("webapp", first, {api_key.LINK_VARIABLE: link})
        # Last, so that the Webapp has connected to the Coreapp when the installation is said to be up.
        robots = await self._start_robots(dial)
        page = await self._start_page(dial)
        api_url = f"{webapp['url'].partition(':')[0]}://{_dialled((webapp['host'], webapp['port']))}"
        return InstallationAddresses(
            api_url=api_url,
            network_url=network_url,
            network_tcp=tcp,
            coreapp_link=_dialled(coreapp["link"]),
            coreapp_metrics=f"http://{_dialled(coreapp['metrics'])}/metrics",
            robots_log=robots["log"] if robots else "",
            robots_per_kind=robots["per_kind"] if robots else 0,
            robots_prefixes=robots["prefixes"] if robots else (),
            first_password=await self._shown(first),
            handset_link=page["link"] if page else "",
            console=f"{api_url}/console/enter?key={link}" if webapp["console"] else "",
        )

    async def _first_password(self) -> Mapping[str, str]:
        """Return a variable with a random first password for the Webapp, or nothing.

        The password is set only when the API is reachable from other machines, and differs at each start until it is
        changed. This process passes and prints it because the Webapp's output goes to a log file.
        """
        if env.is_loopback(self._settings.api_address[0]) or first_password.read(self._variables):
            return {}
        if await password_changed(self._settings.business):
            return {}
        return {first_password.VARIABLE: first_password.make()}

    async def _shown(self, first: Mapping[str, str]) -> str:
        if first_password.read(self._variables) or await password_changed(self._settings.business):
            return ""
        return first.get(first_password.VARIABLE, first_password.DEFAULT)

    async def close(self, within: float = STOP_SECONDS) -> None:
        """Stop the processes in reverse order; kill those that have not ended after `within` seconds."""
        await self.supervisor.close(within)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _start(
        self, command: str, variables: Mapping[str, str], once: Mapping[str, str] = NOTHING
    ) -> Mapping[str, Any]:
        self._print_line(f"starting {command} ...")
        return await self.supervisor.start(command, variables, once)

    async def _start_robots(self, variables: Mapping[str, str]) -> Mapping[str, Any] | None:
        self._print_line("starting robots ...")
        return await self.supervisor.start_or_keep_trying("robots", variables)

    async def _start_page(self, variables: Mapping[str, str]) -> Mapping[str, Any] | None:
        if not self._settings.handset_web:
            return None
        self._print_line("starting the page with handsets ...")
        return await self.supervisor.start_or_keep_trying("handset", variables)

    def _child(self, command: str, *arguments: str, entry: str = "") -> Child:
        return Child(command, environment_of(command, self._variables, self._settings.secrets), arguments, entry)


def loopback_variables(variables: Mapping[str, str], host: str) -> dict[str, str]:
    """Return the variables that `tidings up` sets when the API listens only on loopback.

    A Coreapp refuses the test mode when its link is not on loopback.
    """
    if not env.is_loopback(host):
        return {}
    link = variables.get("TIDINGS_COREAPP_ADDRESS")
    try:
        is_local = not link or env.is_loopback(env.parse_address(link)[0])
    except ValueError:
        # The Coreapp's settings report it.
        is_local = False
    return {
        name: value
        for name, (value, general) in ON_LOOPBACK.items()
        if not (variables.get(name) or variables.get(general)) and (is_local or name != TESTING)
    }


def loopback_variables_in(data_dir: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the next `tidings up` in the directory sets; none if it has never run there."""
    if not (data_dir / _LOCK).exists():
        return {}
    try:
        host, _ = env.parse_address(variables.get("TIDINGS_API_ADDRESS") or "127.0.0.1:9090")
    except ValueError:
        return {}
    return loopback_variables(variables, host)


async def password_changed(where: DatabaseSettings) -> bool:
    """Return whether the administrator has changed the first password."""
    database = Database(where, "business")
    try:
        async with database.reading() as connection:
            administrator = await users.find_user(connection, first_password.ADMINISTRATOR)
    finally:
        await database.close()
    return administrator is not None and not administrator.must_change_password


def _dialled(address: Any) -> str:
    """Return `host:port` for connections from this machine."""
    host, port = address
    if host in ("0.0.0.0", "::"):  # noqa: S104
        host = "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _ignore_line(line: str) -> None:
    pass
