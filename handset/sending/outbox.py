"""Envelopes of one batch, each with its position in the outbox."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence

from handset.application import ReceivedMessage, SendReceipt
from handset.devices.context import FleetContext
from handset.devices.device import Device
from tidings.storage.handset.outbox import OutboxRow
from tidings.wire.device import GROUP, RETRY

MAX_REFS = 100  # receipts in one envelope
# Maximum delay of requests for lost messages, in seconds. They wait for a new session, on which the messages can be
# sent.
ASK_AFTER = 2.0

# number, peer, kind, group
_Shared = tuple[str, str, str, str]

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_BITS = 95  # 16 characters of base 62


def _base62(value: int, length: int) -> str:
    digits = []
    for _ in range(length):
        value, digit = divmod(value, 62)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def make_id(now: float) -> str:
    """Return a new id: `ABGG` and 23 characters of [0-9A-Za-z], of which the first 7 sort by time.

    now: Unix seconds; the 7 characters of milliseconds suffice until 2081
    """
    return "ABGG" + _base62(int(now * 1000), 7) + _base62(secrets.randbits(_RANDOM_BITS), 16)


class ReceiptIds:
    """Ids of receipts: a random prefix and a counter. Only the network's detection of duplicates reads them."""

    def __init__(self) -> None:
        self._prefix = f"r{secrets.token_hex(12)}."
        self._count = 0

    def next(self) -> str:
        """Return a new id."""
        self._count += 1
        return f"{self._prefix}{self._count:x}"


@dataclasses.dataclass(slots=True)
class LastPositions:
    """Last positions that were assigned in a fleet's inbox and outbox."""

    inbox: int
    outbox: int


class OutboxBatch:
    """Envelopes that one batch adds to the outbox.

    Receipts of one kind to one peer share an envelope, which has the position of the first receipt.
    """

    def __init__(self, context: FleetContext, positions: LastPositions, receipt_ids: ReceiptIds) -> None:
        self._fleet = context.name
        self._sealer = context.sealer
        self._positions = positions
        self._receipt_ids = receipt_ids
        self._now = context.clock.now()
        self._envelopes: list[tuple[Device, OutboxRow]] = []
        self._receipts: dict[_Shared, tuple[Device, int, list[str]]] = {}

    def envelopes(self) -> list[tuple[Device, OutboxRow]]:
        """Return the envelopes, sorted by position."""
        for key in list(self._receipts):
            self._flush(key)
        self._envelopes.sort(key=_position)
        return self._envelopes

    def add_message(
        self, device: Device, peer: str, kind: str, body: bytes, *, envelope_id: str = "", repeats: str = ""
    ) -> OutboxRow:
        """Add a message to a peer.

        envelope_id: empty for a new id
        repeats: id of the message that it repeats; empty for none
        """
        id_, refs = envelope_id or make_id(self._now), (repeats,) if repeats else ()
        envelope = OutboxRow(self._fleet, self._next(), device.number, peer, id_, kind, 0, body, refs)
        self._envelopes.append((device, envelope))
        return envelope

    def request_again(self, device: Device, peer: str, message_id: str) -> None:
        """Add a request to a peer to resend a message that could not be decrypted.

        Requests of one batch share an envelope.
        """
        self._collect(device, (device.number, peer, RETRY, ""), message_id)

    @property
    def now(self) -> int:
        """Return the time of the batch in Unix milliseconds."""
        return int(self._now * 1000)

    def add_group_message(
        self, device: Device, group: str, epoch: int, body: bytes, plaintext: bytes, message_id: str = ""
    ) -> str:
        """Add a message to a group, and return its id.

        message_id: empty for a new id
        """
        number, id_ = device.number, message_id or make_id(self._now)
        draft = self._sealer.seal_draft(number, group, id_, plaintext)
        envelope = OutboxRow(self._fleet, self._next(), number, "", id_, GROUP, 0, body, (), group, epoch, draft)
        self._envelopes.append((device, envelope))
        return id_

    def add_receipt(self, device: Device, message: ReceivedMessage, receipt: SendReceipt) -> None:
        """Add a receipt, which is sent at once or after its delay."""
        if receipt.after:
            due = int((self._now + receipt.after) * 1000)
            self._append_receipt(device, self._next(), message.peer, receipt.kind, message.group, due, (message.id,))
            return
        self._collect(device, (device.number, message.peer, receipt.kind, message.group), message.id)

    def _collect(self, device: Device, key: _Shared, message_id: str) -> None:
        collected = self._receipts.get(key)
        if collected is not None and len(collected[2]) >= MAX_REFS:
            self._flush(key)
            collected = None
        if collected is None:
            collected = self._receipts[key] = (device, self._next(), [])
        collected[2].append(message_id)

    def _flush(self, key: _Shared) -> None:
        device, position, refs = self._receipts.pop(key)
        _, peer, kind, group = key
        due = int((self._now + ASK_AFTER) * 1000) if kind == RETRY else 0
        self._append_receipt(device, position, peer, kind, group, due, refs)

    def _append_receipt(
        self, device: Device, position: int, peer: str, kind: str, group: str, due: int, refs: Sequence[str]
    ) -> None:
        receipt_id = self._receipt_ids.next()
        envelope = OutboxRow(self._fleet, position, device.number, peer, receipt_id, kind, due, b"", tuple(refs), group)
        self._envelopes.append((device, envelope))

    def _next(self) -> int:
        self._positions.outbox += 1
        return self._positions.outbox


def _position(entry: tuple[Device, OutboxRow]) -> int:
    return entry[1].position
