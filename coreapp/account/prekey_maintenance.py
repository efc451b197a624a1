"""Maintenance of the number's own pre-keys: adds one-time keys, rotates lasting keys and deletes retired ones.

X3DH section 3.2 (PQXDH's is the same): "Bob will also upload a new signed prekey and prekey signature at some interval
(e.g. once a week, or once a month). […] After uploading a new signed prekey, Bob may keep the private key corresponding
to the previous signed prekey around for some period of time, to handle messages using it that have been delayed in
transit. Eventually, Bob should delete this private key for forward secrecy".
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Sequence

from coreapp.account import prekey_pool
from coreapp.account.own_device import OwnDevice
from tidings import e2ee
from tidings.aio import crashpoints, service
from tidings.aio.clock import Clock
from tidings.aio.service import Wakeup
from tidings.client import keys
from tidings.client.errors import ClientError, StaleEpoch
from tidings.client.http import NetworkApi
from tidings.client.keys import KeySet
from tidings.storage.business import accounts, shards
from tidings.storage.business.accounts import OwnPreKey
from tidings.storage.business.base_keys import BASE_KEYS
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Connection, Database
from tidings.wire.registration import KeysLeft

log = logging.getLogger(__name__)

ONE_TIME_PREKEYS = 100  # one-time pre-keys of each kind per upload: the maximum for Kyber pre-keys
# One-time pre-keys of a kind at the network from which no more are made. The network stores 500 of a kind.
REFILL_BELOW = 50
KYBER_BATCH = 10  # Kyber pre-keys that are made at a time, in a thread
ROTATION_MS = 7 * 24 * 3600 * 1000  # age of lasting pre-keys at which they are replaced
KEPT_MS = 30 * 24 * 3600 * 1000  # retention of keys out of use, as long as the network keeps an envelope
INTERVAL = 3600.0  # seconds between two passes
RETRY = 60.0  # seconds after a pass that failed


def is_due(lasting: Sequence[OwnPreKey], now: int) -> bool:
    """Return whether new signed and Kyber pre-keys are due. Never while the newest ones are not uploaded."""
    signed = [key for key in lasting if key.kind == accounts.SIGNED]
    return all(key.uploaded for key in lasting) and now - signed[-1].created_at >= ROTATION_MS


class PreKeyMaintenance:
    """Service that maintains pre-keys. Keys are committed before they are uploaded, and uploaded until the network
    confirms it.
    """

    name = "prekeys"

    def __init__(
        self, database: Database, lease: Lease, device: OwnDevice, *, network: NetworkApi, clock: Clock
    ) -> None:
        self._database = database
        self._lease = lease
        self._device = device
        self._network = network
        self._clock = clock
        # Numbers of one-time pre-keys and of one-time Kyber pre-keys that the network had left; `None` for enough.
        self._left: tuple[int, int] | None = None
        # One-time pre-keys that are on disk and whose upload the network has not confirmed.
        self._unconfirmed = KeySet()
        self._wakeup = Wakeup()
        self._one_pass = asyncio.Lock()

    def low(self, left: int, kyber_left: int) -> None:
        """Record that the network has few one-time pre-keys of one kind left, and wake the service.

        left: number of one-time pre-keys
        kyber_left: number of one-time Kyber pre-keys
        """
        self._left = (left, kyber_left)
        self._wakeup.wake()

    async def run(self, stop: asyncio.Event) -> None:
        """Run passes until `stop` is set. Raises `LeaseLost`."""
        await service.repeat(stop, self._wakeup, self._pass, failed=_failed)

    async def _pass(self) -> float:
        await self.run_once()
        return INTERVAL

    async def run_once(self) -> None:
        """Upload one-time keys if requested, drop used ones from memory, then rotate the lasting keys if due. Raises
        `LeaseLost` and `ClientError`.
        """
        async with self._one_pass:
            left, self._left = self._left, None
            if left is None and not await self._has_kyber():
                # The network does not notify a number that never had a one-time Kyber pre-key. Those of a process that
                # ended before their upload are replaced: the stored form lacks the public halves.
                left = (REFILL_BELOW, 0)
            if left is not None:
                try:
                    await self._refill(*left)
                except ClientError:
                    # Unless the network has notified again, the next pass repeats it.
                    self._left = self._left or left
                    raise
            await prekey_pool.delete_used(self._database, self._device)
            account_ = self._device.number
            lasting = await self._database.query(lambda connection: accounts.list_lasting(connection, account_))
            self._evict_lasting(lasting)
            if is_due(lasting, self._clock.now_ms()):
                await self._make_lasting()
            elif all(key.uploaded for key in lasting):
                return
            await self._upload_lasting()

    async def _has_kyber(self) -> bool:
        """Return whether the network has confirmed one-time Kyber pre-keys of the number and may have one left."""
        account, kind = self._device.number, accounts.KYBER_ONE_TIME
        query = functools.partial(accounts.list_one_time_ids, account=account, kind=kind, at_network=True)
        return bool(await self._database.query(query))

    async def _refill(self, left: int, kyber_left: int) -> None:
        """Upload one-time pre-keys of each kind of which the network has few.

        Those of a failed upload are uploaded again instead of new ones. If only its response was lost, the network adds
        none again that it has handed out meanwhile.
        """
        device, unconfirmed = self._device, self._unconfirmed
        one_time = [key for key in unconfirmed.one_time if key.key_id in device.prekeys]
        kyber = [key for key in unconfirmed.kyber_one_time if key.key_id in device.kyber_one_time]
        fresh = KeySet(
            one_time=device.make_keys(
                one_time=ONE_TIME_PREKEYS if left < REFILL_BELOW and not one_time else 0
            ).one_time,
            kyber_one_time=await self._make_kyber() if kyber_left < REFILL_BELOW and not kyber else [],
        )
        await self._store_one_time(fresh)
        self._unconfirmed = made = KeySet(
            one_time=[*one_time, *fresh.one_time], kyber_one_time=[*kyber, *fresh.kyber_one_time]
        )
        if not made.one_time and not made.kyber_one_time:
            return
        await self._upload(made)
        await self._confirm([key.key_id for key in made.kyber_one_time])
        self._unconfirmed = KeySet()
        fields = {"number": device.number, "count": len(made.one_time), "kyber": len(made.kyber_one_time)}
        log.info("account.prekeys_uploaded", extra=fields)

    async def _store_one_time(self, fresh: KeySet) -> None:
        rows = [self._row(accounts.ONE_TIME, key) for key in fresh.one_time]
        unconfirmed = (self._row(accounts.KYBER_ONE_TIME, key, uploadable=False) for key in fresh.kyber_one_time)
        rows += [dataclasses.replace(row, uploaded=False) for row in unconfirmed]
        if rows:
            await self._add(rows)
            self._device.add_keys(fresh)

    async def _confirm(self, key_ids: Sequence[int]) -> None:
        """Record that the network has these one-time Kyber pre-keys. After a crash before this, others are uploaded."""
        if not key_ids:
            return
        number = self._device.number

        async def work(connection: Connection) -> None:
            await accounts.confirm_one_time(connection, number, accounts.KYBER_ONE_TIME, key_ids)

        await self._database.persist(shards.fenced(self._lease, work), about="keys")

    async def _make_kyber(self) -> list[e2ee.KyberPreKey]:
        """Make one-time Kyber pre-keys in a thread, `KYBER_BATCH` at a time."""
        made: list[e2ee.KyberPreKey] = []
        for _ in range(ONE_TIME_PREKEYS // KYBER_BATCH):
            fresh = await asyncio.to_thread(self._device.make_keys, kyber_one_time=KYBER_BATCH)
            made += fresh.kyber_one_time
        return made

    async def _make_lasting(self) -> None:
        device = self._device
        fresh = device.make_keys(lasting=True)
        assert fresh.signed is not None
        assert fresh.kyber_last is not None
        rows = [self._row(accounts.SIGNED, fresh.signed), self._row(accounts.KYBER, fresh.kyber_last)]
        await self._add([dataclasses.replace(row, uploaded=False) for row in rows])
        device.add_keys(fresh)
        crashpoints.reach(crashpoints.AFTER_KEYS_BEFORE_UPLOAD)

    def _evict_lasting(self, stored: Sequence[OwnPreKey]) -> None:
        """Drop lasting keys from memory that are no longer stored: the outcome of their deletion may have been
        unknown.
        """
        left = {(key.kind, key.key_id) for key in stored}
        for kind, kept in (accounts.SIGNED, self._device.signed_prekeys), (accounts.KYBER, self._device.kyber_prekeys):
            for key_id in [key_id for key_id in kept if (kind, key_id) not in left]:
                del kept[key_id]

    async def _upload_lasting(self) -> None:
        """Upload the newest lasting keys, and delete keys that have been retired for long enough.

        The response names the one-time keys that the network still has. Any other was handed out, and its receiver may
        use it for the lifetime of an envelope.
        """
        device = self._device
        signed, kyber = device.signed_prekey, device.kyber_prekey
        left = await self._upload(KeySet(signed, kyber))
        now = self._clock.now_ms()

        async def work(connection: Connection) -> Sequence[tuple[str, int]]:
            await accounts.replace_lasting(connection, device.number, accounts.SIGNED, signed.key_id, now)
            await accounts.replace_lasting(connection, device.number, accounts.KYBER, kyber.key_id, now)
            if left.prekey_ids is not None:
                await accounts.retire_one_time(connection, device.number, left.prekey_ids, now)
            if left.kyber_prekey_ids is not None:
                ids, kind = left.kyber_prekey_ids, accounts.KYBER_ONE_TIME
                await accounts.retire_one_time(connection, device.number, ids, now, kind=kind)
            return await accounts.delete_retired(connection, device.number, now - KEPT_MS)

        deleted = await self._database.persist(shards.fenced(self._lease, work), about="keys")
        await self._delete_base_keys()
        for kind, key_id in deleted:
            kept: dict[int, object] = {
                accounts.SIGNED: device.signed_prekeys,
                accounts.KYBER: device.kyber_prekeys,
                accounts.ONE_TIME: device.prekeys,
                accounts.KYBER_ONE_TIME: device.kyber_one_time,
            }[kind]  # type: ignore[assignment]
            kept.pop(key_id, None)
        log.info(
            "account.prekeys_rotated", extra={"number": device.number, "key": signed.key_id, "deleted": len(deleted)}
        )

    async def _delete_base_keys(self) -> None:
        """Delete the base keys of signed pre-keys that are gone, whose first messages can open no session any longer.

        In pages, apart from the shard's transactions: up to 1,000,000 rows would delay these for seconds.
        """
        number = self._device.number

        async def work(connection: Connection) -> bool:
            return await BASE_KEYS.delete_others(connection, number, accounts.signed_ids(number))

        while await self._database.persist(work, about="keys"):
            pass

    async def _add(self, rows: Sequence[OwnPreKey]) -> None:
        now, device = self._clock.now_ms(), self._device
        made = [dataclasses.replace(row, created_at=now) for row in rows]

        async def work(connection: Connection) -> None:
            await accounts.add_prekeys(connection, made)
            await accounts.set_next_key_id(connection, device.number, device.next_key_id)

        await self._database.persist(shards.fenced(self._lease, work), about="keys")

    def _row(
        self, kind: str, key: e2ee.PreKey | e2ee.SignedPreKey | e2ee.KyberPreKey, *, uploadable: bool = True
    ) -> OwnPreKey:
        return self._device.sealed(kind, key.key_id, keys.pack(key, uploadable=uploadable))

    async def _upload(self, made: KeySet) -> KeysLeft:
        try:
            return await self._network.upload_keys(self._device, made.upload(epoch=self._lease.epoch))
        except StaleEpoch as error:
            raise LeaseLost("another process is logged in to the network under a higher epoch") from error


def _failed(error: Exception) -> float:
    """Return the seconds until the next pass. Raises `LeaseLost`."""
    if isinstance(error, LeaseLost):
        raise error
    if isinstance(error, ClientError):
        log.warning("prekeys.upload_failed", extra={"error": repr(error)})
    else:
        # Messages continue with the existing keys.
        log.error("prekeys.failed", exc_info=error)
    return RETRY
