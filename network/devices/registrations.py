"""Registration of devices, and their removal from the directory."""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import logging
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import Counter

from network.context import NetworkContext
from network.devices import signatures
from network.devices.keys import kyber_rows, prekey_rows
from network.devices.locks import Locks, is_expired
from network.directory import logins
from network.errors import BadRequest, Locked, RequestError, StaleEpoch
from network.groups.chats import GROUPS_PER_TRANSACTION, Chats
from network.routing.reservations import Notice
from tidings.storage import outages
from tidings.storage.database import Connection
from tidings.storage.network import directory, lock_addresses, locks, prekeys
from tidings.storage.network.directory import RegisteredDevice
from tidings.wire import device, registration

log = logging.getLogger(__name__)

_NO_LOCKS: Mapping[str, str] = {}

REGISTRATIONS = Counter("tidings_network_registrations_total", "Devices registered, for the first time or again")


@dataclasses.dataclass(frozen=True, slots=True)
class Registrations:
    """Registrations, one for each number. Registering again replaces keys and token, and ends the device's connection.

    When the identity key differs from the previous one, even across an unregistration, an `identity` envelope with the
    new key is stored in the same transaction. It goes to at most 10,000 numbers that fetched a bundle of this number or
    whose bundle this number fetched; the others learn the key from the first message. Numbers that recently checked
    this number while it was not registered receive one too. The number's waiting envelopes and its blocks are kept.
    """

    context: NetworkContext
    chats: Chats
    locks: Locks

    async def is_repetition(self, devices: Sequence[registration.DeviceRegistration]) -> bool:
        """Return whether all of these are registered exactly so, with tokens chosen by the client: the request is a
        repetition.

        It must not be carried out again, or one-time pre-keys handed out in the meantime would be stored a second time.
        """
        if not all(body.token for body in devices):
            return False
        numbers = [body.number for body in devices]
        found = await self.context.database.query(lambda c: directory.list_registrations(c, numbers), retry_seconds=20)
        return _are_registered(devices, [body.token for body in devices], found)

    async def register(
        self, devices: Sequence[registration.DeviceRegistration], *, opened: Mapping[str, str] = _NO_LOCKS
    ) -> list[str]:
        """Register devices, all or none; return their tokens in order.

        A device with a PIN is locked by it from then on. Raises `BadRequest`, `StaleEpoch`, `Unavailable`, and `Locked`
        when a number was locked during the registration.

        opened: for devices registered by code, the hash of the lock that their PIN opened; empty for none.
        """
        router, nodes = self.context.router, self.context.directory.other_nodes
        numbers = [body.number for body in devices]
        for body in devices:
            if router.is_stale(body.number, body.epoch) or await nodes.is_stale(body.number, body.epoch):
                raise StaleEpoch(f"+{body.number} is logged in under a higher epoch")
        if len(set(numbers)) != len(numbers):
            raise BadRequest("a number appears twice")
        if devices and await self.is_repetition(devices):
            return [body.token for body in devices]
        await signatures.check(
            (f"registrations[{index}]." if len(devices) > 1 else "", body.identity_key, body)
            for index, body in enumerate(devices)
        )
        issued = [body.token or logins.make_token() for body in devices]
        now = self.context.now()
        rows = [_row_of(body, token, now) for body, token in zip(devices, issued, strict=True)]
        ordinary = [row for body in devices for row in prekey_rows(body.number, body.prekeys)]
        kyber = [row for body in devices for row in kyber_rows(body.number, body.kyber_prekeys)]
        pins = {body.number: await self.locks.hash(body.pin) for body in devices if body.pin}

        with self.context.reservations() as reservations:

            async def work(connection: Connection) -> None:
                for body in devices:
                    if not await directory.raise_login_epoch(connection, body.number, body.epoch):
                        raise StaleEpoch(f"+{body.number} was registered, or uploaded keys, under a higher epoch")
                registered = await directory.list_registrations(connection, numbers, lock=True)
                if _are_registered(devices, issued, registered):
                    # An earlier attempt has committed.
                    return
                former = await directory.take_former_identities(connection, numbers)
                former.update((number, found.identity_key) for number, found in registered.items())
                changed = {
                    body.number: body.identity_key
                    for body in devices
                    if former.get(body.number) not in (None, body.identity_key)
                }
                await directory.register(connection, rows)
                await _set_locks(connection, pins, opened, now)
                await prekeys.drop(connection, numbers)  # also those of a first registration that has just committed
                await prekeys.put(connection, ordinary)
                await prekeys.put_kyber(connection, kyber)
                pairs = await prekeys.take_fetchers(connection, list(changed))
                notices = [Notice(device.IDENTITY, owner, fetcher, body=changed[owner]) for owner, fetcher in pairs]
                await reservations.store(connection, notices)

            with self._expelling_if_unknown(numbers):
                await self.context.database.persist(work, retry_seconds=20)
        await self._announce_registered({body.number: body.identity_key for body in devices})
        return issued

    async def _announce_registered(self, keys: Mapping[str, bytes]) -> None:
        """Announce registrations that have committed. keys: identity keys by number."""
        numbers = list(keys)
        await self._void_former_tokens(numbers, keys)
        await self.notify_askers(keys)
        REGISTRATIONS.inc(len(numbers))
        log.info("devices.registered", extra={"count": len(numbers), "first": numbers[0] if numbers else ""})

    async def unregister(self, number: str, token: str) -> None:
        """Remove a number from the directory and from all groups, unless it was registered since with another token.

        Its waiting envelopes are kept until they expire, and its identity key is remembered.
        """
        token_hash = logins.digest(token)
        while await self.chats.leave_page(number, token_hash) == GROUPS_PER_TRANSACTION:
            pass
        with self.context.reservations() as reservations:

            async def work(connection: Connection) -> bool:
                if not await directory.unregister(connection, number, token_hash):
                    # An earlier attempt has committed, or another device has registered the number.
                    return not await directory.list_registered(connection, [number])
                await locks.delete(connection, number)
                await prekeys.drop(connection, [number])
                # A number outside the directory cannot join a group, so these are the last groups.
                await self.chats.leave_in(connection, reservations, number)
                return True

            with self._expelling_if_unknown([number]):
                is_removed = await self.context.database.persist(work, retry_seconds=20)
        if is_removed:
            await self._void_former_tokens([number], {})
            log.info("device.unregistered", extra={"number": number})

    async def was_unregistered(self, number: str, token: str) -> bool:
        """Return whether the device with this token has unregistered the number: the request is a repetition.

        The end of the process may have prevented the announcement, which is repeated.
        """
        former = await self.context.database.query(lambda c: directory.find_former_token(c, number), retry_seconds=20)
        if former is None or not logins.matches(token, former):
            return False
        await self._void_former_tokens([number], {})
        return True

    async def notify_askers(self, keys: Mapping[str, bytes]) -> None:
        """Notify the numbers that checked these numbers while they were not registered.

        Called after the commit, so that a check made during the registration is included. When an outage or the end of
        the process prevents a notice, its recipient finds out at its next check.

        keys: new identity keys by number.
        """
        pairs = self.context.directory.lookups.missing_numbers.take(keys)
        due = [Notice(device.IDENTITY, number, asker, body=keys[number]) for number, asker in pairs]
        if not due:
            return
        with self.context.reservations() as reservations:
            try:
                await self.context.database.persist(
                    lambda connection: reservations.store(connection, due), retry_seconds=5
                )
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("askers.not_notified", extra={"count": len(due), "error": outages.brief(error)})

    @contextlib.contextmanager
    def _expelling_if_unknown(self, numbers: Sequence[str]) -> Iterator[None]:
        """Make these devices log in again, with their tokens checked, if a change ends with an unknown outcome."""
        try:
            yield
        except RequestError:
            raise
        except BaseException:
            self.context.directory.registrations_changed(numbers)
            for number in numbers:
                self.context.router.expel(number, device.OVERLOADED)
            self.context.directory.other_nodes.changed_perhaps()
            raise

    async def _void_former_tokens(self, numbers: Sequence[str], keys: Mapping[str, bytes]) -> None:
        """Void the previous tokens of these numbers on all nodes. keys: identity keys of those that were registered."""
        directory = self.context.directory
        directory.registrations_changed(numbers)
        for number in numbers:
            self.context.router.expel(number, device.REPLACED)
        await directory.other_nodes.changed(numbers, expelled=numbers, keys=keys)


async def _set_locks(connection: Connection, pins: Mapping[str, str], opened: Mapping[str, str], now: int) -> None:
    """Lock the numbers with a PIN. Raises `Locked`.

    Delete expired locks of numbers registered by code, with a new PIN only their familiar addresses.

    pins: hashes by number.
    opened: as for `Registrations.register`.
    now: Unix milliseconds.
    """
    for number, opened_hash in opened.items():
        found = await locks.find(connection, number, lock=True)
        if found is not None and not is_expired(found, now) and not hmac.compare_digest(found.pin_hash, opened_hash):
            raise Locked("the number was locked meanwhile: send its PIN")
        if found is not None and number not in pins:
            await locks.delete(connection, number)
        elif found is not None and is_expired(found, now):
            # They may belong to a former owner.
            await lock_addresses.delete_of(connection, number)
    for number, pin_hash in pins.items():
        await locks.put(connection, number, pin_hash, now)


def _are_registered(
    devices: Sequence[registration.DeviceRegistration], tokens: Sequence[str], found: Mapping[str, RegisteredDevice]
) -> bool:
    """Return whether the tokens and keys of all devices are those of the stored registrations."""
    return all(
        (stored := found.get(body.number)) is not None
        and logins.matches(token, stored.token_hash)
        and body.identity_key == stored.identity_key
        and body.registration_id == stored.registration_id
        for body, token in zip(devices, tokens, strict=True)
    )


def _row_of(body: registration.DeviceRegistration, token: str, now: int) -> RegisteredDevice:
    kyber = body.kyber_prekey
    return RegisteredDevice(
        number=body.number,
        registration_id=body.registration_id,
        identity_key=body.identity_key,
        signed_prekey_id=body.signed_prekey.key_id,
        signed_prekey=body.signed_prekey.public,
        signed_prekey_signature=body.signed_prekey.signature,
        kyber_prekey_id=kyber.key_id if kyber else None,
        kyber_prekey=kyber.public if kyber else None,
        kyber_prekey_signature=kyber.signature if kyber else None,
        token_hash=logins.digest(token),
        registered_at=now,
    )
