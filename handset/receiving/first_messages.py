"""First messages of sessions: the pre-keys that they use up, and the base keys of those without a one-time pre-key."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from handset.devices.device import Device
from handset.devices.row_sealer import RowSealer
from handset.receiving.batch import InboundBatch
from handset.receiving.items import Delivery
from handset.receiving.sessions import SessionBatch
from tidings import e2ee
from tidings.client import sessions
from tidings.client.base_keys import AcceptedBaseKeys, name_of
from tidings.client.sessions import PreKeys
from tidings.storage.base_keys import BaseKey
from tidings.storage.database import Connection
from tidings.storage.handset import prekeys
from tidings.storage.handset.base_keys import BASE_KEYS
from tidings.storage.handset.prekeys import KYBER_LAST, KYBER_ONE_TIME, ONE_TIME, SIGNED, HandsetPreKeyRow
from tidings.wire.device import PREKEY

PreKey = TypeVar("PreKey")


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class FirstMessages:
    """First messages of one batch."""

    sealer: RowSealer
    # existing pre-keys that the first messages name, by number and key id
    named: Mapping[tuple[str, int], HandsetPreKeyRow]
    _: dataclasses.KW_ONLY
    accepted: Mapping[str, AcceptedBaseKeys]  # base keys of accepted first messages, by number
    batch: InboundBatch

    def check(self, device: Device, peer: str, first: e2ee.PreKeySignalMessage) -> None:
        """Require that a message may open a session. Raises `e2ee.KnownBaseKey` and `e2ee.TooManySetUps`."""
        if device.number in self.accepted:
            self.accepted[device.number].check(peer, first)

    def prekeys_of(self, device: Device) -> PreKeys:
        """Return the pre-keys of a device, without those that an earlier message of the batch has used."""
        number = device.number
        return PreKeys(
            functools.partial(self._find, self.sealer.signed, (SIGNED,), number),
            functools.partial(self._find, self.sealer.one_time, (ONE_TIME,), number),
            functools.partial(self._find, self.sealer.kyber, (KYBER_ONE_TIME, KYBER_LAST), number),
        )

    def use_up(self, device: Device, peer: str, first: e2ee.PreKeySignalMessage) -> None:
        """Record that this message has set up a session: its one-time pre-keys or base key cannot set up another."""
        if device.number in self.accepted:
            name = self.accepted[device.number].accept(peer, first)
            if name is not None:
                self.batch.base_keys.append(BaseKey(device.number, name, peer, first.signed_prekey_id))
        for key_id, kind in ((first.prekey_id, ONE_TIME), (first.kyber_prekey_id, KYBER_ONE_TIME)):
            row = self.named.get((device.number, key_id)) if key_id is not None else None
            if row is not None and row.kind == kind:
                self.batch.used_prekeys.append((row.number, row.key_id))

    def _find(
        self, unseal: Callable[[HandsetPreKeyRow], PreKey], kinds: Collection[str], number: str, key_id: int
    ) -> PreKey | None:
        row = self.named.get((number, key_id))
        if row is None or row.kind not in kinds or (number, key_id) in self.batch.used_prekeys:
            return None
        return unseal(row)


async def load_prekeys(
    connection: Connection, deliveries: Iterable[Delivery], batch: SessionBatch
) -> Mapping[tuple[str, int], HandsetPreKeyRow]:
    """Return the pre-keys that first messages among these deliveries need to set up sessions, by number and key id."""
    wanted: set[tuple[str, int]] = set()
    for delivery in deliveries:
        if delivery.frame.kind != PREKEY:
            continue
        try:
            first = e2ee.PreKeySignalMessage.parse(delivery.frame.body)
        except e2ee.E2EEError:
            continue
        number = delivery.device.number
        record = batch.get((number, delivery.frame.sender))
        if not sessions.has_identity(record, first.identity_key) or sessions.needs_setup(record, first):
            named = (first.signed_prekey_id, first.prekey_id, first.kyber_prekey_id)
            wanted.update((number, key_id) for key_id in named if key_id is not None)
    if not wanted:
        return {}
    return {(row.number, row.key_id): row for row in await prekeys.list_prekeys(connection, wanted)}


async def load_base_keys(connection: Connection, deliveries: Iterable[Delivery]) -> Mapping[str, AcceptedBaseKeys]:
    """Return the stored base keys that concern these deliveries, by receiving number.

    Considers first messages that name no one-time pre-key. Numbers without such a message are omitted.
    """
    wanted: dict[str, dict[str, set[str]]] = {}
    for delivery in deliveries:
        if delivery.frame.kind != PREKEY:
            continue
        try:
            name = name_of(e2ee.PreKeySignalMessage.parse(delivery.frame.body))
        except e2ee.E2EEError:
            continue
        if name is not None:
            wanted.setdefault(delivery.device.number, {}).setdefault(delivery.frame.sender, set()).add(name)
    found: dict[str, AcceptedBaseKeys] = {}
    for number, by_peer in wanted.items():
        found[number] = AcceptedBaseKeys(
            await BASE_KEYS.list_known(connection, number, set().union(*by_peer.values())),
            dict(await BASE_KEYS.count_by_peer(connection, number, by_peer)),
            await BASE_KEYS.count(connection, number),
        )
    return found
