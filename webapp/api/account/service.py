"""Registration of the business's number, its number of shards and its two-step PIN."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import Protocol

from tidings.storage import outages
from tidings.storage.business import accounts, layouts, registrations, upstreams
from tidings.storage.business.layouts import Layout
from tidings.storage.database import Connection, Database
from tidings.wire import core
from tidings.wire.codes import ACCESS_DENIED, PARAMETER_INVALID, PARAMETER_MISSING
from webapp.api.account import certificate
from webapp.api.account.schemas import CodeRequest, ShardsChange
from webapp.auth.tokens import Caller
from webapp.coreapps.interfaces import PrimaryCoreapps
from webapp.http.errors import InvalidRequest

log = logging.getLogger(__name__)

# Seconds for which a response waits for the Coreapps to change the number of shards, and seconds between two polls.
CHANGE_SECONDS = 4.0
POLL_SECONDS = 0.1
NO_REMOVAL = "the Cloud API cannot remove a two-step PIN: set another one, or turn it off in the vendor's console"


@dataclasses.dataclass(frozen=True, slots=True)
class CodeRequestResult:
    """Result of a code request."""

    display_name: str  # display name of the number
    registered: bool  # whether no code was sent because the number is registered already


@dataclasses.dataclass(frozen=True, slots=True)
class Shards:
    """Numbers of shards, and the progress of a change."""

    set: int  # number of shards set by the business
    active: int  # number of shards in use by the Coreapps
    moved: int | None = None  # rows moved so far; `None` when no change is in progress


@dataclasses.dataclass(frozen=True, slots=True)
class RegistrationState:
    """Registration of a number."""

    registered: bool
    has_pin: bool  # whether two-step verification is on


class PinHasher(Protocol):
    """Hashes PINs. Raises `Overloaded`."""

    async def hash(self, pin: str, /) -> str: ...

    async def verify(self, pin_hash: str, pin: str, /) -> bool: ...


class RegistrationService:
    """Registration of the caller's account."""

    def __init__(self, database: Database, coreapps: PrimaryCoreapps, hasher: PinHasher) -> None:
        self._database = database
        self._coreapps = coreapps
        self._hasher = hasher

    async def request_code(self, caller: Caller, request: CodeRequest) -> CodeRequestResult:
        """Request a registration code for the number, unless the number is registered already.

        Raises `InvalidRequest`, and the errors of the Coreapp link.
        """
        _check_number(caller, request.cc, request.phone_number)
        name = certificate.display_name(request.cert) or caller.account
        if await self._is_registered(caller):
            return CodeRequestResult(name, registered=True)
        await self._check_pin(caller, request.pin)
        pin = request.pin or ""
        owner = self._coreapps.of(caller.account)
        await owner.call_primary(lambda n: core.RequestCode(n=n, account=caller.account, pin=pin), core.Done)
        log.info("account.code_requested", extra={"username": caller.username, "method": request.method})
        return CodeRequestResult(name, registered=False)

    async def send_code(self, caller: Caller) -> None:
        """Have the network send a code to the caller's number, unless it is registered already.

        Raises the errors of the Coreapp link.
        """
        if await self._is_registered(caller):
            return
        await self._coreapps.of(caller.account).call_primary(
            lambda n: core.RequestCode(n=n, account=caller.account), core.Done
        )
        log.info("account.code_requested", extra={"username": caller.username})

    async def state(self, account: str) -> RegistrationState:
        async with self._database.reading() as connection:
            kept = await registrations.find_registration(connection, account)
            is_registered = await accounts.is_registered(connection, account)
        return RegistrationState(is_registered, bool(kept.pin_hash))

    async def is_pin(self, caller: Caller, pin: str) -> bool:
        """Return whether this is the PIN of the caller's number."""
        async with self._database.reading() as connection:
            kept = await registrations.find_registration(connection, caller.account)
        return bool(kept.pin_hash) and await self._hasher.verify(kept.pin_hash, pin)

    async def verify(self, caller: Caller, code: str) -> None:
        """Register with a code; do nothing when the number is registered already.

        Raises the errors of the Coreapp link.
        """
        if await self._is_registered(caller):
            return
        owner = self._coreapps.of(caller.account)
        await owner.call_primary(lambda n: core.VerifyCode(n=n, account=caller.account, code=code), core.Done)
        log.info("account.verified", extra={"username": caller.username})

    async def shards(self, caller: Caller) -> Shards:
        """Return the current numbers of shards of the caller's number."""
        return _shards(await self._layout(self._coreapps.of(caller.account).block))

    async def set_shards(self, caller: Caller, change: ShardsChange) -> Shards:
        """Set the number of shards, and wait up to `CHANGE_SECONDS` for the change to complete.

        Raises `InvalidRequest`.

        Once the request is committed, the change completes even if processes die.
        """
        _check_number(caller, change.cc, change.phone_number)
        await self._check_pin(caller, change.pin)

        block = self._coreapps.of(caller.account).block

        async def work(connection: Connection) -> Layout:
            await registrations.set_shards(connection, caller.account, change.shards)
            return await layouts.request(connection, change.shards, block)

        layout = await self._database.persist(work, retry_seconds=5.0)
        log.info("account.shards_set", extra={"username": caller.username, "shards": change.shards})
        deadline = asyncio.get_running_loop().time() + CHANGE_SECONDS
        while layout.is_changing and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            try:
                layout = await self._layout(block)
            except Exception as error:
                if outages.is_outage(error):
                    # The change is committed and does not depend on this request.
                    break
                raise
        return _shards(layout)

    async def set_pin(self, caller: Caller, pin: str) -> None:
        """Require this PIN for later registrations. A number that sends through the Cloud API gets it there first; this
        then raises the errors of the Coreapp link.
        """
        pin_hash = await self._hasher.hash(pin)
        if await self._is_upstream(caller):
            owner = self._coreapps.of(caller.account)
            await owner.call_primary(
                lambda n: core.SetPin(n, caller.account, pin), core.Done, version=core.CHANGES_PROFILES
            )
        await self._keep_pin(caller, pin_hash)

    async def remove_pin(self, caller: Caller) -> None:
        """Require no PIN for later registrations. Raises `InvalidRequest` for a number that sends through the Cloud
        API.
        """
        if await self._is_upstream(caller):
            raise InvalidRequest.because(ACCESS_DENIED, NO_REMOVAL)
        await self._keep_pin(caller, "")

    async def _is_upstream(self, caller: Caller) -> bool:
        return await self._database.query(
            lambda connection: upstreams.exists(connection, caller.account), retry_seconds=5.0
        )

    async def _layout(self, block: int) -> Layout:
        return await self._database.query(lambda connection: layouts.find(connection, block), retry_seconds=5.0)

    async def _keep_pin(self, caller: Caller, pin_hash: str) -> None:
        await self._database.persist(
            lambda connection: registrations.set_pin_hash(connection, caller.account, pin_hash), retry_seconds=5.0
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


def _shards(layout: Layout) -> Shards:
    return Shards(layout.wanted or layout.shards, layout.shards, layout.moved if layout.is_changing else None)


def _check_number(caller: Caller, cc: str, phone_number: str) -> None:
    # Some programs put the whole number into `phone_number` as well.
    given = phone_number if phone_number == caller.account and phone_number.startswith(cc) else cc + phone_number
    if given != caller.account:
        raise InvalidRequest.because(
            ACCESS_DENIED,
            f"phone_number: this installation sends from {caller.account}; another number is set by "
            "TIDINGS_BUSINESS_NUMBER, before its first start",
        )
