"""Registering the business's number, and what its registration is bound to."""

from __future__ import annotations

import dataclasses
import logging

from tidings.storage.business import accounts, registrations, shards
from tidings.storage.database import Database
from tidings.wire import core
from tidings.wire.codes import ACCESS_DENIED, PARAMETER_INVALID, PARAMETER_MISSING
from webapp.account import certificate
from webapp.account.schemas import CodeRequest, ShardsChange
from webapp.coreapps import PrimaryCoreapp
from webapp.errors import InvalidRequest
from webapp.tokens import Caller
from webapp.users.passwords import Hasher

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Requested:
    """The display name of the number, and whether there was nothing to do because it is registered."""

    display_name: str
    registered: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Shards:
    """set: by the business; active: what the Coreapps share among them."""

    set: int
    active: int


class Registration:
    """The registration of the caller's account."""

    def __init__(self, database: Database, coreapps: PrimaryCoreapp, hasher: Hasher) -> None:
        self._database = database
        self._coreapps = coreapps
        self._hasher = hasher

    async def request_code(self, caller: Caller, request: CodeRequest) -> Requested:
        """Have a code sent, unless the number is registered already.

        Raises `InvalidRequest`, and what the Coreapp link raises.
        """
        _check_number(caller, request.cc, request.phone_number)
        name = certificate.display_name(request.cert) or caller.account
        if await self._is_registered(caller):
            return Requested(name, registered=True)
        await self._check_pin(caller, request.pin)
        await self._coreapps.ask_first(lambda n: core.RequestCode(n=n, account=caller.account), core.Done)
        log.info("account.code_requested", extra={"username": caller.username, "method": request.method})
        return Requested(name, registered=False)

    async def verify(self, caller: Caller, code: str) -> None:
        """Register with a code; nothing to do when the number is registered. Raises what the Coreapp link raises."""
        if await self._is_registered(caller):
            return
        await self._coreapps.ask_first(lambda n: core.VerifyCode(n=n, account=caller.account, code=code), core.Done)
        log.info("account.verified", extra={"username": caller.username})

    async def shards(self, caller: Caller) -> Shards:
        async with self._database.reading() as connection:
            kept = await registrations.find_registration(connection, caller.account)
            active = len(await shards.list_owners(connection))
        return Shards(kept.shards, max(active, 1))

    async def set_shards(self, caller: Caller, change: ShardsChange) -> Shards:
        """Keep the number of shards. Raises `InvalidRequest`."""
        _check_number(caller, change.cc, change.phone_number)
        await self._check_pin(caller, change.pin)
        await self._database.persist(
            lambda connection: registrations.set_shards(connection, caller.account, change.shards), patience=5.0
        )
        log.info("account.shards_set", extra={"username": caller.username, "shards": change.shards})
        return await self.shards(caller)

    async def set_pin(self, caller: Caller, pin: str) -> None:
        """Later registrations need this PIN."""
        await self._keep_pin(caller, await self._hasher.hash(pin))

    async def remove_pin(self, caller: Caller) -> None:
        """Later registrations need no PIN."""
        await self._keep_pin(caller, "")

    async def _keep_pin(self, caller: Caller, pin_hash: str) -> None:
        await self._database.persist(
            lambda connection: registrations.set_pin_hash(connection, caller.account, pin_hash), patience=5.0
        )
        log.info("account.two_step", extra={"username": caller.username, "enabled": bool(pin_hash)})

    async def _check_pin(self, caller: Caller, pin: str | None) -> None:
        async with self._database.reading() as connection:
            kept = await registrations.find_registration(connection, caller.account)
        if not kept.pin_hash:
            return
        if pin is None:
            raise InvalidRequest.because(PARAMETER_MISSING, "pin: is missing, two-step verification is on")
        if not await self._hasher.verify(kept.pin_hash, pin):
            raise InvalidRequest.because(PARAMETER_INVALID, "pin: is wrong")

    async def _is_registered(self, caller: Caller) -> bool:
        async with self._database.reading() as connection:
            return await accounts.is_registered(connection, caller.account)


def _check_number(caller: Caller, cc: str, phone_number: str) -> None:
    # Some programs put the whole number into `phone_number`, too.
    given = phone_number if phone_number == caller.account and phone_number.startswith(cc) else cc + phone_number
    if given != caller.account:
        raise InvalidRequest.because(
            ACCESS_DENIED,
            f"phone_number: this installation sends from {caller.account}; another number is set by "
            "TIDINGS_BUSINESS_NUMBER, before its first start",
        )
