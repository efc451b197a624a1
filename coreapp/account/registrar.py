"""Registration of the business's own number: keys go to our disk, then to the network, then into force."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Sequence

import msgspec

from coreapp.account.key_backup import Keys
from coreapp.account.own_device import OwnDevice
from tidings import e2ee
from tidings.aio import crashpoints
from tidings.client import keys
from tidings.client.errors import NetworkRefusal, NetworkUnreached, StaleEpoch, Unauthorized
from tidings.client.http import NetworkApi
from tidings.client.keys import KeySet
from tidings.e2ee.master_keys import MasterKeys
from tidings.keys import wrapping
from tidings.storage.business import accounts, key_checks, registrations, sender_keys, sessions, shards, upstreams
from tidings.storage.business.base_keys import BASE_KEYS
from tidings.storage.business.registrations import PendingRegistration
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Connection, Database
from tidings.wire.registration import DeviceRegistration

log = logging.getLogger(__name__)

ONE_TIME_PREKEYS = 100  # one-time pre-keys per registration


class _Registration(msgspec.Struct):
    """Sealed data of a pending registration. We choose the token, so that the network recognizes a repetition."""

    keys: Keys
    one_time: list[int]  # ids of the one-time pre-keys
    token: str


@dataclasses.dataclass(frozen=True, slots=True)
class Registrar:
    """Registers the business's number with the installation's registration key, or by a code.

    A pending registration stays in its row until its outcome is known: the network confirmed or refused it. The next
    owner of the shard repeats the request, which the network recognizes as a repetition.
    """

    database: Database
    number: str
    network: NetworkApi
    registration_key: str = dataclasses.field(repr=False)
    masters: MasterKeys = dataclasses.field(repr=False)

    async def load(self) -> OwnDevice | None:
        """Return the number's device; None if it is not registered."""
        async with self.database.reading() as connection:
            found = await accounts.find_account(connection, self.number)
            kept = await accounts.list_prekeys(connection, self.number)
        return await self._load(found, kept) if found is not None else None

    async def request_code(self) -> None:
        """Request a registration code for the number from the network. Raises `NetworkUnavailable` and
        `NetworkRefusal`.

        Sends the registration key, which a number of the business needs; tries without it if the network rejects the
        key.
        """
        try:
            await self.network.request_code(self.number, registration_key=self.registration_key)
        except Unauthorized:
            await self.network.request_code(self.number)

    async def register(self, lease: Lease, *, code: str = "", pin: str = "") -> None:
        """Generate the number's keys and register it.

        Raises `LeaseLost`. After `NetworkUnreached` and `NetworkRefusal` nothing has changed. After
        `NetworkUnavailable` the outcome is unknown, and `finish` must determine it.

        code: registration code; empty to register by the registration key alone
        pin: opens and sets the number's registration lock
        """
        sealer, wrapped = await self._new_sealer()
        identity = e2ee.IdentityKeyPair.generate()
        device = OwnDevice(self.number, "", keys.generate_registration_id(), identity=identity, sealer=sealer)
        device.add_keys(device.make_keys(lasting=True))
        await self._begin(lease, device, wrapped, code=code, pin=pin)

    async def uses_network(self) -> bool:
        """Return whether the number sends through the network, and not through the Cloud API."""
        async with self.database.reading() as connection:
            return not await upstreams.exists(connection, self.number)

    async def keep_unregistered(self, lease: Lease) -> None:
        """Generate the number's keys and store them without registering them at the network: they only seal.

        If the number uses the network later, these keys are registered. Raises `LeaseLost`.
        """
        sealer, wrapped = await self._new_sealer()
        identity = e2ee.IdentityKeyPair.generate()
        device = OwnDevice(self.number, "", keys.generate_registration_id(), identity=identity, sealer=sealer)
        device.add_keys(device.make_keys(lasting=True))

        async def keep(connection: Connection) -> None:
            if not await accounts.is_registered(connection, self.number):
                await self._keep(connection, device, wrapped, [])

        await self.database.persist(shards.fenced(lease, keep), about="keys")
        log.info("account.kept_unregistered", extra={"number": self.number})

    async def restore(self, lease: Lease, keys: Keys) -> None:
        """Replace the present keys by backed-up ones, register with them, and delete every session and sender key.

        Sealed data stays readable, because the data key stays. Raises the same errors as `register`.
        """
        async with self.database.reading() as connection:
            present = await accounts.find_account(connection, keys.number)
        if present is not None:
            wrapped = present.data_key
            sealer = await self._sealer(wrapped)
        else:
            sealer, wrapped = await self._new_sealer()
        await self._begin(lease, keys.device(sealer), wrapped)

    async def finish(self, lease: Lease) -> bool:
        """Finish a pending registration. Returns false if there was none.

        Raises `LeaseLost`; `NetworkUnavailable` if it must be tried again; `NetworkRefusal` if it was refused and is
        dropped.
        """
        async with self.database.reading() as connection:
            begun = await registrations.find_pending(connection, self.number)
        if begun is None:
            return False
        sealer = await self._sealer(begun.data_key)
        registration = msgspec.json.decode(sealer.open(begun.sealed, _context(self.number)), type=_Registration)
        log.info("account.finishing", extra={"number": self.number})
        # A code is not stored: only the token can prove that the registration succeeded.
        bearer = "" if begun.by_code else self.registration_key
        await self._announce(lease, registration, sealer, begun, bearers=[bearer])
        return True

    async def _begin(self, lease: Lease, device: OwnDevice, wrapped: bytes, *, code: str = "", pin: str = "") -> None:
        made = device.make_keys(one_time=ONE_TIME_PREKEYS)
        device.add_keys(made)
        one_time = [key.key_id for key in made.one_time]
        registration = _Registration(Keys.of(device), one_time, keys.generate_token())
        sealed = device.sealer.seal(msgspec.json.encode(registration), context=_context(device.number))
        begun = PendingRegistration(device.number, bool(code), wrapped, sealed)

        async def keep(connection: Connection) -> None:
            kept = dataclasses.replace(begun, data_key=await self._current(connection, begun.data_key))
            await registrations.begin(connection, kept)

        await self.database.persist(shards.fenced(lease, keep), about="keys")
        # The key is tried first even with a code: a number of the business needs both.
        bearers = [self.registration_key, ""] if code else [self.registration_key]
        try:
            await self._announce(lease, registration, device.sealer, begun, bearers=bearers, code=code, pin=pin)
        except NetworkUnreached:
            await self._give_up(lease, begun)
            raise

    async def _announce(
        self,
        lease: Lease,
        registration: _Registration,
        sealer: e2ee.Sealer,
        begun: PendingRegistration,
        *,
        bearers: Sequence[str],
        code: str = "",
        pin: str = "",
    ) -> None:
        """Register at the network and put the registration in force here.

        bearers: registration keys, tried in order until the network accepts one
        """
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
            token = await self._request_token(body, bearers)
        except StaleEpoch as error:
            raise LeaseLost("another process is logged in to the network under a higher epoch") from error
        except NetworkRefusal:
            await self._give_up(lease, begun)
            raise
        crashpoints.reach(crashpoints.AFTER_REGISTRATION_BEFORE_COMMIT)
        device.token = token

        async def work(connection: Connection) -> None:
            if await accounts.is_registered(connection, device.number):
                # The other owners have the keys of the replaced device in memory.
                await shards.expel_others(connection, lease)
            await self._keep(connection, device, begun.data_key, registration.one_time)
            await sessions.clear(connection, device.number)
            await sender_keys.clear(connection, device.number)
            await registrations.end_pending(connection, device.number)

        await self.database.persist(shards.fenced(lease, work), about="keys")
        log.info("account.registered", extra={"number": device.number})

    async def _request_token(self, body: DeviceRegistration, bearers: Sequence[str]) -> str:
        for bearer in bearers[:-1]:
            with contextlib.suppress(Unauthorized):
                return await self.network.register(body, registration_key=bearer)
        return await self.network.register(body, registration_key=bearers[-1])

    async def _give_up(self, lease: Lease, begun: PendingRegistration) -> None:
        end = functools.partial(registrations.end_pending, account=begun.account)
        await self.database.persist(shards.fenced(lease, end), about="keys")

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
                # Peers that use it get the same reply as for a used key: a request to start a new session.
                log.exception("prekey.corrupt", extra={"number": number, "kind": key.kind, "key_id": key.key_id})
        if not device.signed_prekeys or not device.kyber_prekeys:
            raise e2ee.CorruptState(f"no last-resort pre-key of {number} can be read")
        device.next_key_id = found.next_key_id
        if not device.next_key_id:
            device.find_next_key_id()
        return device

    async def _sealer(self, wrapped: bytes) -> e2ee.Sealer:
        """Return the sealer of a wrapped data key. Raises `UnknownMasterKey` and `CorruptState`."""
        try:
            data_key = self.masters.unwrap(wrapping.DATA_KEY_ID, wrapped)
        except e2ee.UnknownMasterKey:
            # The master key was rotated since this process started.
            await asyncio.to_thread(self.masters.reload)
            data_key = self.masters.unwrap(wrapping.DATA_KEY_ID, wrapped)
        return e2ee.Sealer(e2ee.Keyring({wrapping.DATA_KEY_ID: data_key}))

    async def _new_sealer(self) -> tuple[e2ee.Sealer, bytes]:
        await asyncio.to_thread(self.masters.reload)
        data_key = e2ee.generate_data_key()
        sealer = e2ee.Sealer(e2ee.Keyring({wrapping.DATA_KEY_ID: data_key}))
        return sealer, self.masters.wrap(wrapping.DATA_KEY_ID, data_key)

    async def _current(self, connection: Connection, wrapped: bytes) -> bytes:
        """Return the data key wrapped under the current master key. The current master key cannot change until the
        commit, so the data key never depends on one that is dropped later.
        """
        check = await key_checks.find(connection, key_checks.MASTER, lock=True)
        if check is None or self.masters.is_under(wrapped, check.key_id):
            return wrapped
        data_key = self.masters.unwrap(wrapping.DATA_KEY_ID, wrapped)
        return self.masters.wrap(wrapping.DATA_KEY_ID, data_key, under=check.key_id)

    async def _keep(self, connection: Connection, device: OwnDevice, wrapped: bytes, one_time: Sequence[int]) -> None:
        """Store the device with its pre-keys.

        wrapped: wrapped data key
        one_time: ids of the one-time keys that the network has; the others belong to an earlier registration
        """
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
        # The base keys of signed pre-keys that were restored from a backup stay: their first messages could be
        # replayed.
        await BASE_KEYS.delete_others(connection, number, accounts.signed_ids(number))
        await registrations.note_registered(connection, number, now)


def _context(number: str) -> tuple[str, str, str, str]:
    return (number, "", "account", "registration")
