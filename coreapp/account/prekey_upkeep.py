"""Maintenance of the number's own pre-keys: adds one-time keys, rotates lasting keys and deletes retired ones.

X3DH section 3.2 (PQXDH's is the same): "Bob will also upload a new signed prekey and prekey signature at some interval
(e.g. once a week, or once a month). […] After uploading a new signed prekey, Bob may keep the private key corresponding
to the previous signed prekey around for some period of time, to handle messages using it that have been delayed in
transit. Eventually, Bob should delete this private key for forward secrecy".
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence

from coreapp.account import prekey_pool
from coreapp.account.own_device import OwnDevice
from tidings import e2ee
from tidings.client import keys
from tidings.client.errors import ClientError, StaleEpoch
from tidings.client.http import NetworkApi
from tidings.client.keys import KeySet
from tidings.runtime import crashpoints
from tidings.runtime.clock import Clock
from tidings.runtime.service import Wakeup
from tidings.storage.business import accounts, shards
from tidings.storage.business.accounts import OwnPreKey
from tidings.storage.business.base_keys import BASE_KEYS
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Connection, Database
from tidings.wire.registration import KeysLeft

log = logging.getLogger(__name__)

ONE_TIME_PREKEYS = 100  # one-time pre-keys per upload
ROTATION_MS = 7 * 24 * 3600 * 1000  # age at which lasting keys are rotated, milliseconds
KEPT_MS = 30 * 24 * 3600 * 1000  # milliseconds that retired keys are kept: as long as the network keeps an envelope
INTERVAL = 3600.0  # seconds between two passes
RETRY = 60.0  # seconds to the next pass after a failure


def is_due(lasting: Sequence[OwnPreKey], now: int) -> bool:
    """Return whether new signed and Kyber pre-keys are due. Never while the newest ones are not uploaded."""
    signed = [key for key in lasting if key.kind == accounts.SIGNED]
    return all(key.uploaded for key in lasting) and now - signed[-1].created_at >= ROTATION_MS


class PreKeyUpkeep:
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
        self._low = False
        self._look = Wakeup()
        self._one_pass = asyncio.Lock()

    def low(self) -> None:
        """Request an upload of one-time pre-keys, because the network has few left."""
        self._low = True
        self._look.kick()

    async def run(self, stop: asyncio.Event) -> None:
        """Run passes until `stop` is set. Raises `LeaseLost`."""
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: self._look.kick())
        try:
            while not stop.is_set():
                seconds = INTERVAL
                try:
                    await self.run_once()
                except ClientError as error:
                    log.warning("prekeys.upload_failed", extra={"error": repr(error)})
                    seconds = RETRY
                except LeaseLost:
                    raise
                except Exception:
                    # Messages continue with the existing keys.
                    log.exception("prekeys.failed")
                    seconds = RETRY
                await self._look.wait(seconds)
        finally:
            stopping.cancel()

    async def run_once(self) -> None:
        """Upload one-time keys if requested, drop used ones from memory, then rotate the lasting keys if due. Raises
        `LeaseLost` and `ClientError`.
        """
        async with self._one_pass:
            if self._low:
                # If the upload fails, the network reports again that the keys are low.
                self._low = False
                await self._refill()
            await prekey_pool.forget_used(self._database, self._device)
            account_ = self._device.number
            lasting = await self._database.query(lambda connection: accounts.list_lasting(connection, account_))
            if is_due(lasting, self._now()):
                await self._make_lasting()
            elif all(key.uploaded for key in lasting):
                return
            await self._upload_lasting()

    async def _refill(self) -> None:
        device = self._device
        fresh = device.make_keys(one_time=ONE_TIME_PREKEYS)
        await self._add([self._row(accounts.ONE_TIME, key) for key in fresh.one_time])
        device.add_keys(fresh)
        await self._upload(fresh)
        log.info("account.prekeys_uploaded", extra={"number": device.number, "count": len(fresh.one_time)})

    async def _make_lasting(self) -> None:
        device = self._device
        fresh = device.make_keys(lasting=True)
        assert fresh.signed is not None
        assert fresh.kyber_last is not None
        rows = [self._row(accounts.SIGNED, fresh.signed), self._row(accounts.KYBER, fresh.kyber_last)]
        await self._add([dataclasses.replace(row, uploaded=False) for row in rows])
        device.add_keys(fresh)
        crashpoints.reach(crashpoints.AFTER_KEYS_BEFORE_UPLOAD)

    async def _upload_lasting(self) -> None:
        """Upload the newest lasting keys, and delete keys that have been retired for long enough.

        The response names the one-time keys that the network still has. Any other was handed out, and its receiver may
        use it for the lifetime of an envelope.
        """
        device = self._device
        signed, kyber = device.signed_prekey, device.kyber_prekey
        left = await self._upload(KeySet(signed, kyber))
        now = self._now()

        async def work(connection: Connection) -> Sequence[tuple[str, int]]:
            await accounts.replace_lasting(connection, device.number, accounts.SIGNED, signed.key_id, now)
            await accounts.replace_lasting(connection, device.number, accounts.KYBER, kyber.key_id, now)
            if left.prekey_ids is not None:
                await accounts.retire_one_time(connection, device.number, left.prekey_ids, now)
            deleted = await accounts.delete_retired(connection, device.number, now - KEPT_MS)
            # First messages that used them can open no session any more.
            await BASE_KEYS.delete_others(connection, device.number, accounts.signed_ids(device.number))
            return deleted

        deleted = await self._database.persist(shards.fenced(self._lease, work), about="keys")
        for kind, key_id in deleted:
            kept: dict[int, object] = {
                accounts.SIGNED: device.signed_prekeys,
                accounts.KYBER: device.kyber_prekeys,
                accounts.ONE_TIME: device.prekeys,
            }[kind]  # type: ignore[assignment]
            kept.pop(key_id, None)
        log.info(
            "account.prekeys_rotated", extra={"number": device.number, "key": signed.key_id, "deleted": len(deleted)}
        )

    async def _add(self, rows: Sequence[OwnPreKey]) -> None:
        now, device = self._now(), self._device
        made = [dataclasses.replace(row, created_at=now) for row in rows]

        async def work(connection: Connection) -> None:
            await accounts.add_prekeys(connection, made)
            await accounts.set_next_key_id(connection, device.number, device.next_key_id)

        await self._database.persist(shards.fenced(self._lease, work), about="keys")

    def _row(self, kind: str, key: e2ee.PreKey | e2ee.SignedPreKey | e2ee.KyberPreKey) -> OwnPreKey:
        return self._device.sealed(kind, key.key_id, keys.pack(key, uploadable=True))

    async def _upload(self, made: KeySet) -> KeysLeft:
        try:
            return await self._network.upload_keys(self._device, made.upload(epoch=self._lease.epoch))
        except StaleEpoch as error:
            raise LeaseLost("another is logged in at the network under a higher epoch") from error

    def _now(self) -> int:
        return int(self._clock.now() * 1000)
