"""One whole installation on this machine: its tables, then network, coreapp, webapp and robots as children."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cli import child_environment, guard, tables, unread_variables
from cli.child_process import STOP_SECONDS
from cli.settings import UpSettings
from cli.supervisor import Child, Supervisor
from tidings.runtime import env, first_password
from tidings.runtime.settings import DatabaseSettings
from tidings.storage.business import accounts, users
from tidings.storage.database import Database

# What the README's commands need, on loopback alone: `tidings listen` on this machine, and texts to robots that never
# wrote before. Not set where these variables, or those behind them, are.
ON_LOOPBACK = {
    "TIDINGS_OUTGOING_ALLOW_WEBHOOKS": ("127.0.0.0/8,::1", "TIDINGS_OUTGOING_ALLOW"),
    "TIDINGS_REENGAGEMENT_WINDOW": ("0", ""),
}
BUSINESSES = "TIDINGS_NETWORK_BUSINESS_NUMBERS"


@dataclasses.dataclass(frozen=True, slots=True)
class Where:
    """Where each part serves.

    robots_log: empty while the robots do not run. first_password: of the administrator, to be changed at the first
    login; empty when it was, or is the environment's.
    """

    api_url: str
    network_url: str
    network_tcp: str
    coreapp_link: str
    coreapp_metrics: str
    robots_log: str
    robots_per_kind: int
    robots_prefixes: Sequence[str]
    first_password: str


class Installation:
    """Everything that belongs to one data directory. variables: its environment.

    Raises `SettingsError` for what is wrong in the environment, or when the directory cannot be used.
    """

    def __init__(self, variables: Mapping[str, str], say: Callable[[str], None]) -> None:
        # Reported once, by `tidings up`, and not by each child again.
        unread = {variable.name for variable in unread_variables.find(variables)}
        variables = {name: value for name, value in variables.items() if name not in unread}
        # The name of the node stays the same from start to start, so that the next Coreapp need not wait for the
        # lease of one that was killed.
        self._variables = {
            **variables,
            "TIDINGS_EMBEDDED": "1",
            "COREAPP_HOSTNAME": variables.get("COREAPP_HOSTNAME") or f"{socket.gethostname()}:up",
        }
        # The secrets are made here, before several children could each want to.
        self._settings = UpSettings.read(self._variables)
        self.opened = opened(variables, self._settings.api_address[0])
        self._variables |= self.opened
        self.data_dir = self._settings.data_dir
        self._say = say
        self._lock = -1
        self.supervisor = Supervisor(self.data_dir / "logs", say)

    def read(self) -> None:
        """Raises `Failure` when the directory is in use."""
        self._lock = self._open_lock()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise guard.Failure(f"Tidings is running already on {self.data_dir}") from None

    def _open_lock(self) -> int:
        path = self.data_dir / "up.lock"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            # A full or read-only disk: what is there serves as well.
            return os.open(path if path.exists() else self.data_dir, os.O_RDONLY | os.O_CLOEXEC)

    async def start(self) -> Where:
        """Bring the tables up to date, then start each process when those it needs are ready.

        Raises `SettingsError` for a database of another number, and `Failure`.
        """
        self._say("bringing the tables up to date ...")
        await tables.upgrade(self._settings.families, say=_silent)
        database = Database(self._settings.business, "business")
        try:
            await accounts.require_number(database, self._settings.account)
        finally:
            await database.close()
        # No code registers the number of this installation.
        businesses = self._variables.get(BUSINESSES) or self._settings.account
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
        webapp = await self._start("webapp", first)
        robots = await self._start_robots(dial)
        return Where(
            api_url=f"{webapp['url'].partition(':')[0]}://{_dialled((webapp['host'], webapp['port']))}",
            network_url=network_url,
            network_tcp=tcp,
            coreapp_link=_dialled(coreapp["link"]),
            coreapp_metrics=f"http://{_dialled(coreapp['metrics'])}/metrics",
            robots_log=robots["log"] if robots else "",
            robots_per_kind=robots["per_kind"] if robots else 0,
            robots_prefixes=robots["prefixes"] if robots else (),
            first_password=await self._shown(first),
        )

    async def _first_password(self) -> Mapping[str, str]:
        """A variable for the Webapp, whose output is a log: where others reach the API, it is given its first password,
        another one at each start until it is changed."""
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
        """Stop every process, in the reverse order; kill those that have not ended after so many seconds."""
        await self.supervisor.close(within)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    async def _start(self, command: str, variables: Mapping[str, str]) -> Mapping[str, Any]:
        self._say(f"starting {command} ...")
        return await self.supervisor.start(self._child(command, variables))

    async def _start_robots(self, variables: Mapping[str, str]) -> Mapping[str, Any] | None:
        self._say("starting robots ...")
        return await self.supervisor.start_or_keep_trying(self._child("robots", variables))

    def _child(self, command: str, variables: Mapping[str, str]) -> Child:
        own = child_environment.of(command, self._variables, self._settings.secrets)
        return Child(command, {**own, **variables})


def opened(variables: Mapping[str, str], host: str) -> dict[str, str]:
    """Variables that `tidings up` sets because the API listens on loopback only."""
    if not env.is_loopback(host):
        return {}
    return {
        name: value
        for name, (value, general) in ON_LOOPBACK.items()
        if not (variables.get(name) or variables.get(general))
    }


async def password_changed(where: DatabaseSettings) -> bool:
    """Has the administrator replaced the first password?"""
    database = Database(where, "business")
    try:
        async with database.reading() as connection:
            administrator = await users.find_user(connection, first_password.ADMINISTRATOR)
    finally:
        await database.close()
    return administrator is not None and not administrator.must_change_password


def _dialled(address: Any) -> str:
    """`host:port` for one who calls from this machine."""
    host, port = address
    if host in ("0.0.0.0", "::"):  # noqa: S104
        host = "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _silent(line: str) -> None:
    pass
