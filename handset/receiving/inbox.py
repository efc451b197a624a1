"""Conversion of received messages to rows of the inbox, and of rows to shown messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from handset.application import ReceivedMessage
from handset.devices.row_sealer import RowSealer
from handset.receiving.items import Delivery, MessageKey
from handset.sending.outbox import LastPositions
from tidings.storage.handset.inbox import ANSWER, TEXT, UNREADABLE, InboxRow
from tidings.wire import content


class InboxBatch:
    """Rows that one batch adds to the inbox."""

    def __init__(self, fleet: str, positions: LastPositions, sealer: RowSealer) -> None:
        self._rows: dict[MessageKey, InboxRow] = {}
        self.decrypted: list[MessageKey] = []  # messages whose undecryptable rows are replaced
        # Undecryptable messages that this batch has received or may repeat, with the time of their first receipt,
        # Unix milliseconds.
        self._undecrypted: dict[MessageKey, int] = {}
        self._fleet = fleet
        self._positions = positions
        self._sealer = sealer

    @property
    def rows(self) -> Sequence[InboxRow]:
        """Return the rows, sorted by position."""
        return list(self._rows.values())

    def expect(self, undecrypted: Mapping[MessageKey, int]) -> None:
        """Add undecryptable messages that may be repeated in this batch."""
        self._undecrypted.update(undecrypted)

    def is_undecrypted(self, key: MessageKey) -> bool:
        """Return whether the message is in the inbox, or in this batch, as undecryptable."""
        return key in self._undecrypted

    def is_read(self, key: MessageKey) -> bool:
        """Return whether the message is in this batch in readable form."""
        return key in self._rows and key not in self._undecrypted

    def mark_read(self, key: MessageKey) -> None:
        """Record that a message of this batch has been read."""
        self._rows[key] = dataclasses.replace(self._rows[key], is_read=True)

    def add(self, delivery: Delivery, kind: str, text: str = "") -> InboxRow:
        """Add a row at the next position."""
        self._positions.inbox += 1
        key, frame = delivery.key, delivery.frame
        received_at = frame.timestamp
        if key in self._undecrypted:
            # The time of the original message, not of its repetition.
            received_at = self._undecrypted.pop(key)
            self.decrypted.append(key)
        # The row of this position is the last one, even if it replaces another of this batch.
        self._rows.pop(key, None)
        row = self._rows[key] = InboxRow(
            self._fleet,
            self._positions.inbox,
            *key,
            kind=kind,
            received_at=received_at,
            content=self._sealer.seal_text(*key, text),
            group_id=frame.group,
        )
        if kind == UNREADABLE:
            self._undecrypted[key] = received_at
        return row


def shown_after_restart(row: InboxRow, sealer: RowSealer) -> ReceivedMessage:
    """Return a message that was not shown before the restart."""
    kind, text, raw = row.kind, "", sealer.open_text(row.number, row.peer, row.id, row.content)
    if kind == TEXT:
        text, raw = raw, ""
    elif kind == ANSWER:
        kind, text = TEXT, content.text_of(raw)
    return ReceivedMessage(
        row.number, row.peer, row.id, row.position, 1, row.received_at, kind, text, raw, row.group_id
    )
