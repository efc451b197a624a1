"""Numbers of the installation as this Webapp knows them: state of each, and the host names that stand for one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from prometheus_client import Gauge
from starlette.types import Scope

from tidings.config.env import SettingsError
from tidings.storage.business import numbers, users
from tidings.storage.business.numbers import ACTIVE, PAUSED, BusinessNumber
from tidings.storage.database import Database
from webapp.http import headers
from webapp.http.errors import NumberPaused, Unauthenticated

log = logging.getLogger(__name__)

NUMBERS = Gauge("tidings_webapp_numbers", "Numbers of the installation that this Webapp serves, by state", ["state"])


class Numbers:
    """Cached numbers. Changes by other processes are effective within a second."""

    def __init__(self, database: Database, first: str, hosts: Mapping[str, str]) -> None:
        """Create the cache, which knows the first number only until `poll` was called.

        hosts: number by host name; empty for none
        """
        self._database = database
        self._hosts = hosts
        # Before the first start of the installation its number has no row.
        self._first = BusinessNumber(first, 0, ACTIVE, 0)
        self._by_number: Mapping[str, BusinessNumber] = {first: self._first}
        self._listeners: list[Callable[[Collection[str]], None]] = []

    async def start(self, *, retry_seconds: float) -> None:
        """Add the first number if the database has none, and read the numbers. Raises `SettingsError` for a host name
        of an unknown number.

        retry_seconds: time for which an unreachable database is waited for
        """
        first = self._first.number
        await self._database.persist(
            lambda connection: numbers.add_first(connection, first), retry_seconds=retry_seconds
        )
        await self.poll()
        self.require_hosts()

    async def poll(self) -> None:
        """Read the numbers."""
        async with self._database.reading() as connection:
            found = numbers.by_number(await numbers.list_served(connection))
        self._by_number = {self._first.number: self._first, **found}
        self._notify()
        for state in (ACTIVE, PAUSED):
            NUMBERS.labels(state).set(sum(each.state == state for each in self._by_number.values()))

    def watch(self, listener: Callable[[Collection[str]], None]) -> None:
        """Call a function with all numbers now and whenever they are read again."""
        self._listeners.append(listener)
        listener(self._by_number.keys())

    def _notify(self) -> None:
        for listener in self._listeners:
            listener(self._by_number.keys())

    def require_hosts(self) -> None:
        """Raise `SettingsError` if a host name stands for a number that the installation does not have."""
        missing = [f"{host}={number}" for host, number in self._hosts.items() if number not in self._by_number]
        if missing:
            raise SettingsError(
                f"TIDINGS_NUMBER_HOSTS: {', '.join(missing)}: no such number in this installation; add it with "
                "`tidings number add`, or remove the host"
            )

    def block_of(self, account: str) -> int:
        """Return the shard block of a number; that of the first number for an unknown one."""
        found = self._by_number.get(account)
        return found.shard_block if found is not None else 0

    def known_block_of(self, account: str) -> int | None:
        """Return the shard block of a number; `None` for an unknown one."""
        found = self._by_number.get(account)
        return found.shard_block if found is not None else None

    def waba_owner(self, account: str) -> str:
        """Return the number whose WABA a number belongs to: itself by default."""
        found = self._by_number.get(account)
        return (found.waba_of if found is not None else "") or account

    def of_waba(self, account: str) -> Sequence[str]:
        """Return the numbers that share the WABA of a number, which is one of them, in their order."""
        owner = self.waba_owner(account)
        return sorted({account, *(number for number in self._by_number if self.waba_owner(number) == owner)})

    async def admit(self, account: str, scope: Scope) -> None:
        """Check that the number of an authenticated request is served, at this host.

        Raises `Unauthenticated`, and `NumberPaused` for a paused number.
        """
        found = self._by_number.get(account)
        if self._hosts:
            self._require_at_host(account, scope)
        if found is None or found.state != ACTIVE:
            await self._require_active(account)

    async def admit_monitor(self, account: str, scope: Scope) -> None:
        """Check as `admit` does, but accept a paused number."""
        try:
            await self.admit(account, scope)
        except NumberPaused:
            return

    def login_of(self, name: str, scope: Scope) -> tuple[str, str]:
        """Return the login name for a name given at a host, and the only number that it may belong to there.

        The number is empty where the host stands for none.
        """
        account = self.at_host(scope)
        number = self._by_number.get(account) if account else None
        if number is None:
            return name, account
        if not number.is_first and name.endswith(f"@{account}"):
            return name, account
        return users.login_name(number, name), account

    def login_name(self, account: str, name: str) -> str:
        """Return the login name of a user of a number."""
        found = self._by_number.get(account)
        return users.login_name(found, name) if found is not None else f"{name}@{account}"

    def is_qualified(self, name: str) -> bool:
        """Return whether a user name ends with `@` and a further number, so that it is a login name there."""
        _, at, account = name.rpartition("@")
        found = self._by_number.get(account) if at else None
        return found is not None and not found.is_first

    async def _require_active(self, account: str) -> None:
        found = self._by_number.get(account)
        if found is None:
            # It may have been added since the last poll.
            await self.poll()
            found = self._by_number.get(account)
        if found is None:
            raise Unauthenticated("the token's number is not served by this installation")
        if found.state != ACTIVE:
            raise NumberPaused(account)

    def _require_at_host(self, account: str, scope: Scope) -> None:
        here = self.at_host(scope)
        if here and here != account:
            raise Unauthenticated("the token belongs to a user of another number than that of this host")

    def at_host(self, scope: Scope) -> str:
        """Return the number that the host of a request stands for; empty for none."""
        if not self._hosts:
            return ""
        given = (headers.find(scope, b"host") or b"").decode("latin-1").lower()
        return self._hosts.get(_without_port(given), "")


def _without_port(host: str) -> str:
    return host.partition(":")[0].rstrip(".")
