"""The envelopes that one batch comes to, each at its position in the outbox."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from handset import behaviours, ids
from handset.devices import Device
from handset.vault import Vault
from tidings.storage import handset as storage
from tidings.wire import device as wire

MAX_REFS = 100  # receipts in one envelope

# number, peer, kind, group
_Shared = tuple[str, str, str, str]


@dataclasses.dataclass(slots=True)
class Positions:
    """The last positions given out."""

    inbox: int
    outbox: int


class Post:
    """Collects them; receipts of one kind to one peer share an envelope, which keeps the place of the first."""

    def __init__(self, fleet: str, vault: Vault, positions: Positions, receipt_ids: ids.Sequence, now: float) -> None:
        self._fleet = fleet
        self._vault = vault
        self._positions = positions
        self._receipt_ids = receipt_ids
        self._now = now
        self._envelopes: list[tuple[Device, storage.Envelope]] = []
        self._receipts: dict[_Shared, tuple[Device, int, list[str]]] = {}

    def envelopes(self) -> list[tuple[Device, storage.Envelope]]:
        """All of them, by position."""
        for (_, peer, kind, group), (device, position, refs) in self._receipts.items():
            self._add_receipt(device, position, peer, kind, group, 0, refs)
        self._receipts.clear()
        self._envelopes.sort(key=_position)
        return self._envelopes

    def message(self, device: Device, peer: str, kind: str, body: bytes) -> str:
        """The id under which it goes out."""
        message_id = ids.make(self._now)
        envelope = storage.Envelope(self._fleet, self._next(), device.number, peer, message_id, kind, 0, body, ())
        self._envelopes.append((device, envelope))
        return message_id

    def to_group(
        self, device: Device, group: str, epoch: int, body: bytes, plaintext: bytes, message_id: str = ""
    ) -> str:
        """A message to a group; the id under which it goes out, a new one unless it is given."""
        number, id_ = device.number, message_id or ids.make(self._now)
        draft = self._vault.seal_draft(number, group, id_, plaintext)
        envelope = storage.Envelope(
            self._fleet, self._next(), number, "", id_, wire.GROUP, 0, body, (), group, epoch, draft
        )
        self._envelopes.append((device, envelope))
        return id_

    def receipt(self, device: Device, message: behaviours.Message, receipt: behaviours.Receipt) -> None:
        """One receipt, at once or for later."""
        if receipt.after:
            due = int((self._now + receipt.after) * 1000)
            self._add_receipt(device, self._next(), message.peer, receipt.kind, message.group, due, (message.id,))
            return
        key = (device.number, message.peer, receipt.kind, message.group)
        collected = self._receipts.get(key)
        if collected is not None and len(collected[2]) >= MAX_REFS:
            self._add_receipt(device, collected[1], message.peer, receipt.kind, message.group, 0, collected[2])
            collected = None
        if collected is None:
            collected = self._receipts[key] = (device, self._next(), [])
        collected[2].append(message.id)

    def _add_receipt(
        self, device: Device, position: int, peer: str, kind: str, group: str, due: int, refs: Sequence[str]
    ) -> None:
        receipt_id = self._receipt_ids.next()
        envelope = storage.Envelope(
            self._fleet, position, device.number, peer, receipt_id, kind, due, b"", tuple(refs), group
        )
        self._envelopes.append((device, envelope))

    def _next(self) -> int:
        self._positions.outbox += 1
        return self._positions.outbox


def _position(entry: tuple[Device, storage.Envelope]) -> int:
    return entry[1].position
