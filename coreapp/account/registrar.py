"""Registers the business's own number with the network: keys on our own disk first, then there, then in force here."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Sequence

import msgspec

from coreapp.account.key_backup import Keys
from coreapp.account.own_device import OwnDevice
from tidings import e2ee
from tidings.client import keys
from tidings.client.errors import NetworkRefusal, NetworkUnreached, StaleEpoch, Unauthorized
from tidings.client.http import NetworkApi
from tidings.client.keys import KeySet
from tidings.e2ee.master_keys import MasterKeys
from tidings.keys import wrapping
from tidings.runtime import crashpoints
from tidings.storage.business import accounts, key_checks, registrations, sender_keys, sessions, shards
from tidings.storage.business.registrations import Pending
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Connection, Database
from tidings.wire.registration import DeviceRegistration

log = logging.getLogger(__name__)

ONE_TIME_PREKEYS = 100


class _Registration(msgspec.Struct):
    """What is sealed of one that was begun. The token is ours, so that the network knows it when it comes again."""

    keys: Keys
    one_time: list[int]
    token: str


@dataclasses.dataclass(frozen=True, slots=True)
class Registrar:
    """Registers numbers with the installation's registration key, or by a code.

    A registration that was begun is in its row until its outcome is known: the network answered that it is made, or
    that it will not be. Whoever opens the shard next asks again, which the network takes for what it is, a repetition.
    """

    network: NetworkApi
    registration_key: str = dataclasses.field(repr=False)
    masters: MasterKeys = dataclasses.field(repr=False)

    async def load(self, database: Database, number: str) -> OwnDevice | None:
        """The number's device, once it is registered."""
        async with database.reading() as connection:
            found = await accounts.find_account(connection, number)
            kept = await accounts.list_prekeys(connection, number)
        return await self._load(found, kept) if found is not None else None

    async def request_code(self, number: str) -> None:
        """Have the network send a code to the number. Raises `NetworkAway` and `NetworkRefusal`.

        With the registration key, which a number of the business needs, unless it is not the network's.
        """
        try:
            await self.network.request_code(number, registration_key=self.registration_key)
        except Unauthorized:
            await self.network.request_code(number)

    async def register(self, database: Database, lease: Lease, number: str, *, code: str = "", pin: str = "") -> None:
        """Make the number's keys and register it: by the code, or without one by the registration key.

        pin: opens and sets the number's registration lock.

        Raises `LeaseLost`; `NetworkUnreached` and `NetworkRefusal`, and nothing has changed; `NetworkAway`, and
        `finish` has to find out.
        """
        sealer, wrapped = await self._new_sealer()
        device = OwnDevice(
            number, "", keys.generate_registration_id(), identity=e2ee.IdentityKeyPair.generate(), sealer=sealer
        )
        device.add_keys(device.make_keys(lasting=True))
        await self._begin(database, lease, device, wrapped, code=code, pin=pin)

    async def restore(self, database: Database, lease: Lease, keys: Keys) -> None:
        """Put backed-up keys in the place of the present ones, register with them, and forget every session
        and sender key.

        What is sealed already opens still: the data key stays. Raises as `register` does.
        """
        async with database.reading() as connection:
            present = await accounts.find_account(connection, keys.number)
        if present is not None:
            wrapped = present.data_key
            sealer = await self._sealer(wrapped)
        else:
            sealer, wrapped = await self._new_sealer()
        await self._begin(database, lease, keys.device(sealer), wrapped)

    async def finish(self, database: Database, lease: Lease, number: str) -> bool:
        """Find out what became of a registration that was begun, and finish it; false when there was none.

        Raises `LeaseLost`; `NetworkAway`, and it has to be tried again; `NetworkRefusal`: it was not made, and is
        given up.
        """
        async with database.reading() as connection:
            begun = await registrations.find_pending(connection, number)
        if begun is None:
            return False
        sealer = await self._sealer(begun.data_key)
        registration = msgspec.json.decode(sealer.open(begun.sealed, _context(number)), type=_Registration)
        log.info("account.finishing", extra={"number": number})
        # A code is not kept: only the token can show that it was taken.
        bearer = "" if begun.by_code else self.registration_key
        await self._announce(database, lease, registration, sealer, begun, bearers=[bearer])
        return True

    async def _begin(
        self, database: Database, lease: Lease, device: OwnDevice, wrapped: bytes, *, code: str = "", pin: str = ""
    ) -> None:
        made = device.make_keys(one_time=ONE_TIME_PREKEYS)
        device.add_keys(made)
        one_time = [key.key_id for key in made.one_time]
        registration = _Registration(Keys.of(device), one_time, keys.generate_token())
        sealed = device.sealer.seal(msgspec.json.encode(registration), context=_context(device.number))
        begun = Pending(device.number, bool(code), wrapped, sealed)

        async def keep(connection: Connection) -> None:
            kept = dataclasses.replace(begun, data_key=await self._current(connection, begun.data_key))
            await registrations.begin(connection, kept)

        await database.persist(shards.fenced(lease, keep), about="keys")
        # By code, too, the key goes first: a number of the business needs both.
        bearers = [self.registration_key, ""] if code else [self.registration_key]
        try:
            await self._announce(
                database, lease, registration, device.sealer, begun, bearers=bearers, code=code, pin=pin
            )
        except NetworkUnreached:
            await self._give_up(database, lease, begun)
            raise

    async def _announce(
        self,
        database: Database,
        lease: Lease,
        registration: _Registration,
        sealer: e2ee.Sealer,
        begun: Pending,
        *,
        bearers: Sequence[str],
        code: str = "",
        pin: str = "",
    ) -> None:
        """Register, and put it in force here. bearers: the next one is used when the network does not take one."""
        device = registration.keys.device(sealer)
        one_time = [device.prekeys[key_id] for key_id in registration.one_time]
        body = KeySet(device.signed_prekey, device.kyber_prekey, one_time).registration(
            device.number,
            device.registration_id,
            device.identity.public,
            code=code,
            token=registration.token,
            epoch=lease.epoch,
            pin=pin,
        )
        try:
            token = await self._ask(body, bearers)
        except StaleEpoch as error:
            raise LeaseLost("another is logged in at the network under a higher epoch") from error
        except NetworkRefusal:
            await self._give_up(database, lease, begun)
            raise
        crashpoints.reach(crashpoints.AFTER_REGISTRATION_BEFORE_COMMIT)
        device.token = token

        async def work(connection: Connection) -> None:
            if await accounts.is_registered(connection, device.number):
                # What they have in memory is of the device that this one replaces.
                await shards.expel_others(connection, lease)
            await self._keep(connection, device, begun.data_key, registration.one_time)
            await sessions.clear(connection, device.number)
            await sender_keys.clear(connection, device.number)
            await registrations.end_pending(connection, device.number)

        await database.persist(shards.fenced(lease, work), about="keys")
        log.info("account.registered", extra={"number": device.number})

    async def _ask(self, body: DeviceRegistration, bearers: Sequence[str]) -> str:
        for bearer in bearers[:-1]:
            with contextlib.suppress(Unauthorized):
                return await self.network.register(body, registration_key=bearer)
        return await self.network.register(body, registration_key=bearers[-1])

    async def _give_up(self, database: Database, lease: Lease, begun: Pending) -> None:
        await database.persist(
            shards.fenced(lease, lambda connection: registrations.end_pending(connection, begun.account)),
            about="keys",
        )

    async def _load(self, found: accounts.Account, kept: Sequence[accounts.OwnPreKey]) -> OwnDevice:
        sealer = await self._sealer(found.data_key)
        number = found.number
        identity = e2ee.IdentityKeyPair.from_private(
            sealer.open(found.identity_key, (number, "", "account", "identity_key"))
        )
        token = sealer.open(found.device_token, (number, "", "account", "device_token")).decode()
        device = OwnDevice(number, token, found.registration_id, identity=identity, sealer=sealer)
        for key in kept:
            try:
                device.add_prekey(key.kind, key.key_id, sealer.open(key.sealed, (number, "", key.kind, key.key_id)))
            except e2ee.UnknownSealingKey:
                raise
            except e2ee.CorruptState:
                # Whoever uses it finds it gone, as one that was used up, and is asked to begin again.
                log.exception("prekey.corrupt", extra={"number": number, "kind": key.kind, "key_id": key.key_id})
        if not device.signed_prekeys or not device.kyber_prekeys:
            raise e2ee.CorruptState(f"no lasting pre-key of {number} can be read")
        device.next_key_id = found.next_key_id
        if not device.next_key_id:
            device.find_next_key_id()
        return device

    async def _sealer(self, wrapped: bytes) -> e2ee.Sealer:
        """Raises `UnknownMasterKey` and `CorruptState`."""
        try:
            data_key = self.masters.unwrap(wrapping.DATA_KEY_ID, wrapped)
        except e2ee.UnknownMasterKey:
            # It was rotated since this process started.
            await asyncio.to_thread(self.masters.reload)
            data_key = self.masters.unwrap(wrapping.DATA_KEY_ID, wrapped)
        return e2ee.Sealer(e2ee.Keyring({wrapping.DATA_KEY_ID: data_key}))

    async def _new_sealer(self) -> tuple[e2ee.Sealer, bytes]:
        await asyncio.to_thread(self.masters.reload)
        data_key = e2ee.generate_data_key()
        sealer = e2ee.Sealer(e2ee.Keyring({wrapping.DATA_KEY_ID: data_key}))
        return sealer, self.masters.wrap(wrapping.DATA_KEY_ID, data_key)

    async def _current(self, connection: Connection, wrapped: bytes) -> bytes:
        """A data key as it is to be stored now. Until the commit no other master key becomes the current one, so none
        that is dropped later can be needed for it."""
        check = await key_checks.find(connection, key_checks.MASTER, lock=True)
        if check is None or self.masters.is_under(wrapped, check.key_id):
            return wrapped
        data_key = self.masters.unwrap(wrapping.DATA_KEY_ID, wrapped)
        return self.masters.wrap(wrapping.DATA_KEY_ID, data_key, under=check.key_id)

    async def _keep(self, connection: Connection, device: OwnDevice, wrapped: bytes, one_time: Sequence[int]) -> None:
        """one_time: the ids that the network has; the other one-time keys are of an earlier registration."""
        seal, number, now = device.sealer.seal, device.number, int(time.time() * 1000)
        await accounts.add_account(
            connection,
            accounts.Account(
                number,
                device.registration_id,
                seal(device.identity.private, context=(number, "", "account", "identity_key")),
                seal(device.token.encode(), context=(number, "", "account", "device_token")),
                await self._current(connection, wrapped),
                device.next_key_id,
            ),
        )
        in_use = {
            (accounts.SIGNED, device.signed_prekey.key_id),
            (accounts.KYBER, device.kyber_prekey.key_id),
            *((accounts.ONE_TIME, key_id) for key_id in one_time),
        }
        rows = []
        for entry in device.private_prekeys():
            made = now if entry[:2] in in_use else now - 1
            retired = 0 if entry[:2] in in_use else now
            rows.append(dataclasses.replace(device.sealed(*entry), created_at=made, retired_at=retired))
        await accounts.add_prekeys(connection, rows)
        await registrations.note_registered(connection, number, now)


def _context(number: str) -> tuple[str, str, str, str]:
    return (number, "", "account", "registration")
