"""Requests about the business's number itself: registration, backup of its keys and restoration."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math

from coreapp.account import key_backup, prekey_pool
from coreapp.account.key_backup import Keys, WrongBackup
from coreapp.account.own_device import OwnDevice
from coreapp.account.registrar import Registrar
from coreapp.errors import RequestRefused
from tidings.aio import service
from tidings.aio.service import Wakeup
from tidings.client.errors import (
    ClientError,
    LockedNumber,
    NetworkRefusal,
    NetworkUnavailable,
    NetworkUnreached,
    TooSoon,
    Unauthorized,
    WrongCode,
    WrongPin,
)
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.wire import codes

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.5  # seconds between attempts to register while the network is unreachable
RESTORE_SECONDS = 25.0  # timeout of a restoration in seconds; a Webapp waits 30 s
POLL_SECONDS = 2.0  # seconds between polls of whether another process has registered the number
AGAIN_SECONDS = 24 * 3600.0  # seconds between registrations of a number that was registered elsewhere
SENT_JUST_NOW_SECONDS = 30  # seconds that the network requires between two codes


@dataclasses.dataclass(frozen=True, slots=True)
class _Restoration:
    keys: Keys
    done: asyncio.Future[None]


class AccountRequests:
    """Handles requests for one process while it owns the first shard.

    Changes take effect when that shard is reopened, which `reopen` requests. Owners of other shards must then claim
    them again.
    """

    def __init__(self, registrar: Registrar, *, auto_register: bool) -> None:
        self._registrar = registrar
        self._number = registrar.number
        # Whether to register with the registration key at the first start, instead of waiting for a code.
        self._auto_register = auto_register
        self._changed = Wakeup()
        self._device: OwnDevice | None = None
        self._restoration: _Restoration | None = None
        # Lease of the current term; None between terms.
        self._lease: Lease | None = None
        # One registration at a time: a pending one must not be finished by a concurrent task.
        self._registering = asyncio.Lock()
        # Restoration that was sent to the network without a response; None if there is none.
        self._unconfirmed: _Restoration | None = None
        # Restoration that is done except for the reopening of the shard; None if there is none.
        self._restored: _Restoration | None = None
        # Given with the request for a code, and never stored on disk.
        self._pin = ""
        # Whether the network rejects our token, so that the number must be registered again, and the earliest loop time
        # for it.
        self._is_refused = False
        self._not_again_before = -math.inf
        self.reopen = asyncio.Event()
        # Set while the number waits for a code, so that nothing else can be done.
        self.unregistered = asyncio.Event()

    @property
    def waits_for_code(self) -> bool:
        return self.unregistered.is_set()

    async def device(self, lease: Lease, ended: asyncio.Event) -> OwnDevice | None:
        """Return the number's device for a new term, registered if necessary; None if the term ended first.

        A requested restoration is done first, as is a pending registration. Raises `LeaseLost` and `NetworkRefusal`.
        """
        self._lease = lease
        await self._restore(lease)
        try:
            while not ended.is_set():
                try:
                    async with self._registering:
                        self._device = await self._register(lease)
                    if self._device is not None:
                        return self._device
                except NetworkUnavailable as error:
                    log.warning("account.waiting_for_network", extra={"error": str(error)})
                    await service.wait_for(ended, RETRY_SECONDS)
                    continue
                if not self.waits_for_code:
                    self.unregistered.set()
                    log.warning("account.unregistered", extra={"number": self._number})
                await self._changed.wait(POLL_SECONDS)
        finally:
            self.unregistered.clear()
        return None

    async def registered_device(self, ended: asyncio.Event) -> OwnDevice | None:
        """Return the number's device for a term of a shard other than the first; None if the term ended first. The
        owner of the first shard registers it.
        """
        while not ended.is_set():
            device = await self._registrar.load()
            if device is not None:
                return device
            await service.wait_for(ended, RETRY_SECONDS)
        return None

    def term_opened(self) -> None:
        """Complete a restoration, because the shard is open."""
        restored, self._restored = self._restored, None
        if restored is not None and not restored.done.done():
            restored.done.set_result(None)

    def term_ended(self, lease: Lease) -> None:
        """Clean up after a term whose shard was lost or is to be reopened. Does nothing once a later term has
        started.
        """
        if self._lease not in (None, lease):
            return
        self.term_opened()
        unconfirmed, self._unconfirmed = self._unconfirmed, None
        if unconfirmed is not None:
            _fail(unconfirmed, _not_confirmed())
        self._device = None
        self._lease = None
        self._changed.wake()

    def login_refused(self) -> None:
        """Register the number again because the network rejects its token, at most once a day.

        Otherwise two programs with the same key and number would take the number from each other forever. A second loss
        within the day is final: health, metrics and messages report that the number is registered elsewhere.
        """
        now = asyncio.get_running_loop().time()
        if self._device is None or self._is_refused or now < self._not_again_before:
            return
        log.error("account.registered_elsewhere", extra={"number": self._number})
        self._not_again_before = now + AGAIN_SECONDS
        self._is_refused = True
        self.reopen.set()

    def abandon(self) -> None:
        """Refuse a requested restoration, because the shard went to another process."""
        if self._restoration is not None:
            _fail(
                self._restoration, RequestRefused(codes.NOT_PRIMARY_COREAPP, "this Coreapp has just lost its shard", 1)
            )
        self._restoration = None
        self.reopen.clear()

    async def request_code(self, account: str, pin: str = "") -> None:
        """Request a registration code. Raises `RequestRefused`.

        pin: PIN of the registration lock, for the registration with this code
        """
        self._check(account)
        self._pin = pin
        try:
            await self._registrar.request_code()
        except ClientError as error:
            raise _refusal(error) from error

    async def verify(self, account: str, code: str) -> None:
        """Register with a code. Raises `RequestRefused`."""
        lease = self._check(account)
        if not self.waits_for_code:
            if self._device is None:
                raise RequestRefused(codes.NOT_READY, "the Coreapp is starting", 1)
            return
        try:
            async with self._registering:
                if self.waits_for_code:
                    await self._registrar.register(lease, code=code, pin=self._pin)
                    self._pin = ""
        except ClientError as error:
            raise _refusal(error) from error
        except LeaseLost as lost:
            raise RequestRefused(codes.NOT_PRIMARY_COREAPP, "this Coreapp has just lost its shard", 1) from lost
        finally:
            self._changed.wake()

    async def export_keys(self, account: str, password: str) -> str:
        """Return the keys sealed under a password. Raises `RequestRefused` while the number is not registered and in
        use here.
        """
        self._check(account)
        if self._device is None:
            raise RequestRefused(codes.NOT_READY, "the number is not registered, or not active", 1)
        device = self._device
        await prekey_pool.delete_used(self._registrar.database, device)
        keys = Keys.of(device)
        return await asyncio.to_thread(key_backup.seal, keys, password)

    async def restore_keys(self, account: str, password: str, data: str) -> None:
        """Put the keys of a backup in force. After `RequestRefused` nothing is changed, except if the network did not
        respond: then the restoration finishes when it does.
        """
        self._check(account)
        try:
            keys = await asyncio.to_thread(key_backup.open_keys, data, password)
        except WrongBackup as error:
            raise RequestRefused(codes.PARAMETER_INVALID, f"data: {error}") from error
        if keys.number != account:
            raise RequestRefused(codes.PARAMETER_INVALID, f"data: holds the keys of {keys.number}, not of {account}")
        self._check(account)
        if self._restoration is not None:
            raise RequestRefused(codes.OVERLOADED, "a backup is being restored", 5)
        self._restoration = _Restoration(keys, asyncio.get_running_loop().create_future())
        done = self._restoration.done
        self.reopen.set()
        self._changed.wake()
        try:
            async with asyncio.timeout(RESTORE_SECONDS):
                await asyncio.shield(done)
        except TimeoutError:
            if self._restoration is None:
                # The restoration has started.
                raise _not_confirmed() from None
            self.abandon()
            raise RequestRefused(codes.INTERNAL_ERROR, "the backup was not restored in time") from None

    def _check(self, account: str) -> Lease:
        if account != self._number:
            raise RequestRefused(codes.ACCESS_DENIED, f"this Coreapp serves {self._number}, not {account}")
        if self._lease is None:
            raise RequestRefused(codes.NOT_PRIMARY_COREAPP, "this Coreapp does not own the shard", 1)
        return self._lease

    async def _register(self, lease: Lease) -> OwnDevice | None:
        """Return the number's device, registered if this process is responsible for it; None while it is not
        registered.
        """
        if not await self._registrar.uses_network():
            return await self._registrar.load() or await self._keep_unregistered(lease)
        try:
            if await self._registrar.finish(lease):
                self._restored, self._unconfirmed = self._unconfirmed, None
                self._is_refused = False
        except NetworkRefusal as error:
            log.warning("account.not_registered", extra={"number": self._number, "reason": f"HTTP {error.status}"})
            unconfirmed, self._unconfirmed = self._unconfirmed, None
            if unconfirmed is not None:
                _fail(unconfirmed, _refusal(error))
        device = await self._registrar.load()
        if device is None and self._auto_register:
            await self._registrar.register(lease)
            device = await self._registrar.load()
        # A number that sent through the Cloud API so far has keys and no token.
        if device is not None and (self._is_refused or not device.token):
            device = await self._register_again(lease, device)
        return device

    async def _keep_unregistered(self, lease: Lease) -> OwnDevice | None:
        await self._registrar.keep_unregistered(lease)
        return await self._registrar.load()

    async def _register_again(self, lease: Lease, device: OwnDevice) -> OwnDevice | None:
        """Register the number again under its present keys. Raises `NetworkUnavailable` if it must be tried again."""
        try:
            await self._registrar.restore(lease, Keys.of(device))
        except NetworkRefusal as error:
            log.error("account.not_registered_again", extra={"number": self._number, "reason": str(error)})
        else:
            log.warning("account.registered_again", extra={"number": self._number})
        self._is_refused = False
        return await self._registrar.load()

    async def _restore(self, lease: Lease) -> None:
        self.reopen.clear()
        restoration, self._restoration = self._restoration, None
        if restoration is None or restoration.done.done():
            return
        try:
            async with self._registering:
                await self._registrar.restore(lease, restoration.keys)
        except (NetworkUnreached, NetworkRefusal) as error:
            _fail(restoration, _refusal(error))
        except NetworkUnavailable as error:
            log.warning("account.waiting_for_network", extra={"error": str(error)})
            self._unconfirmed = restoration
        except BaseException as error:
            _fail(restoration, RequestRefused(codes.INTERNAL_ERROR, f"the backup was not restored: {error!r}"[:200]))
            raise
        else:
            self._restored = restoration


def _fail(restoration: _Restoration, refused: RequestRefused) -> None:
    if not restoration.done.done():
        restoration.done.set_exception(refused)
        # Mark the exception as retrieved: the caller may have timed out.
        restoration.done.exception()


def _not_confirmed() -> RequestRefused:
    return RequestRefused(codes.INTERNAL_ERROR, "the network has not responded; the backup takes effect when it does")


def _refusal(error: ClientError) -> RequestRefused:
    if isinstance(error, TooSoon):
        return RequestRefused(
            codes.TOO_MANY_REQUESTS, "a code was sent a moment ago, or too many were sent today", SENT_JUST_NOW_SECONDS
        )
    if isinstance(error, LockedNumber):
        details = "pin: the number has a registration lock; POST /v1/account with its PIN sends another code"
        return RequestRefused(codes.PARAMETER_MISSING, details)
    if isinstance(error, WrongPin):
        details = "pin: is not that of the number's registration lock; POST /v1/account with it sends another code"
        return RequestRefused(codes.PARAMETER_INVALID, details)
    if isinstance(error, WrongCode | Unauthorized):
        return RequestRefused(codes.PARAMETER_INVALID, "code: is wrong, used, expired, or was tried too often")
    if isinstance(error, NetworkRefusal):
        return RequestRefused(codes.ACCESS_DENIED, f"the network refused: HTTP {error.status}")
    return RequestRefused(codes.INTERNAL_ERROR, "the network cannot be reached")
