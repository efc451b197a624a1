"""Registration of devices: first the keys are stored, then the device is registered, then the token is stored.

If the process is killed in between, the device is registered again at the next start with the same identity.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

from handset import errors
from handset.devices import keys
from handset.devices.context import FleetContext
from handset.devices.device import Device
from tidings.aio.service import wait_for
from tidings.client.errors import NetworkRefusal, NetworkUnavailable, NetworkUnreached
from tidings.client.http import MAX_BULK, NetworkApi
from tidings.client.keys import KeySet, generate_token
from tidings.storage.handset import devices, prekeys
from tidings.storage.handset.base_keys import BASE_KEYS

log = logging.getLogger(__name__)

RETRY_SECONDS = 0.25
MAX_RETRY_SECONDS = 5.0
UPLOADS_IN_FLIGHT = 8
ROTATED_AT_A_TIME = 50
# Milliseconds: age at which lasting pre-keys are replaced, and retention of keys that are out of use.
ROTATION_MS = 7 * 24 * 3600 * 1000
KEPT_MS = 30 * 24 * 3600 * 1000
DEVICES_PER_ITERATION = 50  # devices whose keys are generated without yielding to the event loop


@dataclasses.dataclass(slots=True)
class UnconfirmedKeys:
    """Stored keys of a device, whose registration with them the network has not confirmed."""

    keys: KeySet
    # Chosen by the device: by it the network recognises a repetition, and adds no one-time key a second time.
    token: str = dataclasses.field(repr=False)
    # Whether the network may have registered the device with them. Until then they can be deleted.
    may_be_registered: bool = False


class DeviceRegistry:
    """Devices of one fleet, in its store and at the network."""

    def __init__(self, context: FleetContext, api: NetworkApi) -> None:
        self._context = context
        self._api = api
        # Keys for the next attempt to register a device, by number.
        self._unconfirmed: dict[str, UnconfirmedKeys] = {}

    async def load(self) -> dict[str, Device]:
        """Return the stored devices by number. Raises `e2ee.CorruptState` when they were sealed under another key."""
        async with self._context.database.reading() as connection:
            rows = await devices.list_devices(connection, self._context.name)
        return {row.number: self._context.sealer.device(row) for row in rows}

    async def require_free(self, numbers: Iterable[str]) -> None:
        """Raise `AlreadyRunning` if another fleet of the store has a device of one of these numbers."""
        async with self._context.database.reading() as connection:
            taken = await devices.list_taken(connection, self._context.name, numbers)
        if taken:
            raise errors.taken(taken[0].number, taken[0].fleet)

    async def register(
        self,
        device: Device,
        *,
        one_time: int,
        kyber_one_time: int,
        code: str = "",
        registration_key: str = "",
        pin: str = "",
    ) -> None:
        """Register a person's device, also repeatedly. Attempts that fail do not add up to more stored keys.

        code: registration code; empty when a registration key is used
        pin: opens and sets the number's registration lock; empty for none
        """
        await self._store_new_keys([device], one_time, kyber_one_time)
        made = self._unconfirmed[device.number]
        body = made.keys.registration(
            device.number,
            device.registration_id,
            device.identity.public,
            code=code,
            token=made.token,
            pin=pin,
            person=True,
        )
        try:
            with self._attempt([device]):
                device.token = await self._api.register(body, registration_key=registration_key)
        except NetworkUnreached:
            await self._delete_unconfirmed([device])
            raise
        except NetworkRefusal:
            await self._end_refused_attempt([device])
            raise
        del self._unconfirmed[device.number]
        await self._store_devices([device])

    async def register_many(
        self, devices: Sequence[Device], *, one_time: int, registration_key: str, stop: asyncio.Event
    ) -> None:
        """Register devices, also repeatedly. Waits as long as the network is unavailable.

        Returns early when `stop` is set. Raises `Unauthorized` and `NetworkRefusal`. Attempts that fail do not add up
        to more stored keys.
        """
        for start in range(0, len(devices), MAX_BULK):
            chunk = devices[start : start + MAX_BULK]
            await self._store_new_keys(chunk, one_time, 0)
            try:
                tokens = await self._register_chunk(chunk, registration_key, stop)
            except NetworkRefusal:
                await self._end_refused_attempt(chunk)
                raise
            if tokens is None:
                await self._delete_unconfirmed(chunk)
                return
            for device in chunk:
                device.token, device.blocked = tokens[device.number], ""
                del self._unconfirmed[device.number]
            await self._store_devices(chunk)
            log.info("devices.registered", extra={"done": start + len(chunk), "of": len(devices)})

    async def _register_chunk(
        self, chunk: Sequence[Device], registration_key: str, stop: asyncio.Event
    ) -> Mapping[str, str] | None:
        """Return the tokens by number; `None` when `stop` is set before the network answers."""
        bodies = [
            made.keys.registration(device.number, device.registration_id, device.identity.public, token=made.token)
            for device in chunk
            for made in [self._unconfirmed[device.number]]
        ]
        delay = RETRY_SECONDS
        while not stop.is_set():
            try:
                with self._attempt(chunk):
                    return await self._api.register_many(bodies, registration_key)
            except NetworkUnavailable as error:
                log.warning("registration.waiting", extra={"error": str(error)})
                await wait_for(stop, delay)
                delay = min(2 * delay, MAX_RETRY_SECONDS)
        return None

    async def refill(self, wanted: Iterable[tuple[Device, int, int]]) -> None:
        """Generate, store and upload more one-time pre-keys.

        wanted: device, number of one-time pre-keys and number of one-time Kyber pre-keys
        """
        requests = list(wanted)
        used = await self._list_key_ids([device for device, _, _ in requests])
        made = [
            (
                device,
                keys.make(device, one_time=count, kyber_one_time=kyber, lasting=False, used=used[device.number]),
            )
            for device, count, kyber in requests
        ]
        await self._store_keys([device for device, _ in made], [key_set for _, key_set in made])
        for start in range(0, len(made), UPLOADS_IN_FLIGHT):
            part = made[start : start + UPLOADS_IN_FLIGHT]
            await asyncio.gather(*(self._api.upload_keys(device, key_set.upload()) for device, key_set in part))

    async def list_due(self, after: str) -> Sequence[str]:
        """Return the next numbers after `after` whose lasting pre-keys are due for replacement."""
        before = self._context.now() - ROTATION_MS
        async with self._context.database.reading() as connection:
            return await prekeys.list_due(connection, self._context.name, before, after=after, limit=ROTATED_AT_A_TIME)

    async def rotate(self, devices: Sequence[Device]) -> Sequence[Device]:
        """Replace the signed and the last-resort Kyber pre-key of devices, and delete keys past their retention.

        New keys count as out of use until the network confirms them. A rotation that is killed in between is repeated
        with other keys, and the first ones are kept in case the network has received them.
        Returns the devices that the network refused. Raises `NetworkUnavailable`.
        """
        used = await self._list_key_ids(devices)
        made = [(device, keys.make(device, one_time=0, lasting=True, used=used[device.number])) for device in devices]
        await self._store_keys([device for device, _ in made], [key_set for _, key_set in made], in_use=False)
        refused: list[Device] = []
        for start in range(0, len(made), UPLOADS_IN_FLIGHT):
            part = made[start : start + UPLOADS_IN_FLIGHT]
            accepted = await asyncio.gather(*(self._rotate(*entry) for entry in part))
            refused += [device for (device, _), is_accepted in zip(part, accepted, strict=True) if not is_accepted]
        return refused

    async def block(self, devices: Sequence[Device], other: str) -> None:
        """Make these devices block a number, unless they do already."""
        todo = [device for device in devices if device.blocked != other]
        for start in range(0, len(todo), MAX_BULK):
            chunk = todo[start : start + MAX_BULK]
            for device in chunk:
                if device.blocked:
                    await self._api.unblock(device, device.blocked)
                await self._api.block(device, other)
                device.blocked = other
            await self._store_devices(chunk)

    async def _store_new_keys(self, devices: Sequence[Device], one_time: int, kyber_one_time: int) -> None:
        """Store keys for those of the devices that have no unconfirmed ones."""
        new = [device for device in devices if device.number not in self._unconfirmed]
        used = await self._list_key_ids(new)
        made: list[KeySet] = []
        for count, device in enumerate(new, 1):
            kept = used[device.number]
            made.append(keys.make(device, one_time=one_time, kyber_one_time=kyber_one_time, lasting=True, used=kept))
            if count % DEVICES_PER_ITERATION == 0:
                await asyncio.sleep(0)
        await self._store_keys(new, made)
        for device, key_set in zip(new, made, strict=True):
            self._unconfirmed[device.number] = UnconfirmedKeys(key_set, generate_token())

    @contextlib.contextmanager
    def _attempt(self, devices: Sequence[Device]) -> Iterator[None]:
        """Record that the network may have registered the devices if the request in this block has no clear outcome."""
        try:
            yield
        except (NetworkUnreached, NetworkRefusal):
            raise
        except BaseException:
            for device in devices:
                self._unconfirmed[device.number].may_be_registered = True
            raise

    async def _rotate(self, device: Device, made: KeySet) -> bool:
        try:
            left = await self._api.upload_keys(device, made.upload())
        except NetworkRefusal as error:
            log.warning("prekeys.refused", extra={"number": device.number, "error": str(error)})
            return False
        assert made.signed is not None
        assert made.kyber_last is not None
        lasting, now = [made.signed.key_id, made.kyber_last.key_id], self._context.now()
        async with self._context.database.transaction() as connection:
            await prekeys.replace_lasting(connection, device.number, lasting, now)
            if left.prekey_ids is not None:
                ids = [*left.prekey_ids, *(left.kyber_prekey_ids or ())]
                await prekeys.retire_one_time(connection, device.number, ids, now)
            await prekeys.delete_retired(connection, device.number, now - KEPT_MS)
            await BASE_KEYS.delete_others(connection, device.number, prekeys.signed_ids(device.number))
        return True

    async def _list_key_ids(self, devices: Sequence[Device]) -> dict[str, set[int]]:
        """Return the ids of all stored keys by number."""
        async with self._context.database.reading() as connection:
            return await prekeys.list_key_ids(connection, [device.number for device in devices])

    async def _store_keys(self, changed: Sequence[Device], made: Sequence[KeySet], *, in_use: bool = True) -> None:
        """Store devices with new keys.

        made: keys of each device, in order
        in_use: whether the keys are in use at once, and not only after the network confirms them
        """
        now = self._context.now()
        rows = [self._context.sealer.device_row(device, self._context.name) for device in changed]
        added: list[prekeys.HandsetPreKeyRow] = []
        for device, key_set in zip(changed, made, strict=True):
            added += keys.rows(self._context.sealer, device.number, key_set, now)
        if not in_use:
            added = [dataclasses.replace(row, retired_at=now) for row in added]
        async with self._context.database.transaction() as connection:
            await devices.save(connection, rows)
            await prekeys.add(connection, added)

    async def _end_refused_attempt(self, devices: Sequence[Device]) -> None:
        """End an attempt that the network has refused. It may have registered devices in an earlier attempt."""
        await self._delete_unconfirmed(devices)
        for device in devices:
            self._unconfirmed.pop(device.number, None)

    async def _delete_unconfirmed(self, devices: Sequence[Device]) -> None:
        """Delete unconfirmed keys that the network does not have, and the devices that have no others."""
        new = [device for device in devices if not self._unconfirmed[device.number].may_be_registered]
        deleted: list[tuple[str, int]] = []
        for device in new:
            made = self._unconfirmed.pop(device.number).keys
            for key in (*made.one_time, *made.kyber_one_time, made.signed, made.kyber_last):
                deleted += [(device.number, key.key_id)] if key is not None else []
        async with self._context.database.transaction() as connection:
            await prekeys.delete(connection, deleted)
            for device in new:
                await prekeys.delete_unregistered(connection, device.number)

    async def _store_devices(self, changed: Sequence[Device]) -> None:
        rows = [self._context.sealer.device_row(device, self._context.name) for device in changed]
        async with self._context.database.transaction() as connection:
            await devices.save(connection, rows)
