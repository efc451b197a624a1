"""Changes and effects of one batch of a mailroom."""

from __future__ import annotations

from handset.application import DeviceEvent, ReceivedMessage
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.groups.groups import KeyWanted
from handset.receiving.inbox import InboxBatch
from handset.receiving.sessions import SessionBatch
from handset.sending.ids import ReceiptIds
from handset.sending.outbox import LastPositions, OutboxBatch
from tidings.storage.base_keys import BaseKey
from tidings.storage.handset.sent import SentRow


class Batch:
    """Everything that follows from the items of one transaction. One that is not committed is thrown away whole.

    used_prekeys: (number, key id) of those to be deleted.
    base_keys: of first messages that named no one-time pre-key. sent: what is kept for peers that ask for it again.
    shown, events: for the application.
    to_renew: peers that need a new session, and whether they have answered on the session there is.
    to_ask, to_give: peers whose sender key of a group we lack, and who lack ours.
    """

    def __init__(self, context: FleetContext, positions: LastPositions, receipt_ids: ReceiptIds) -> None:
        self.sessions = SessionBatch()
        self.inbox = InboxBatch(context.name, positions, context.vault)
        self.outbox = OutboxBatch(context, positions, receipt_ids)
        self.used_prekeys: list[tuple[str, int]] = []
        self.base_keys: list[BaseKey] = []
        self.sent: list[SentRow] = []
        self.shown: list[ReceivedMessage] = []
        self.events: list[DeviceEvent] = []
        self.to_renew: list[tuple[Device, str, bool]] = []
        self.to_ask: list[KeyWanted] = []  # peers whose sender key of a group we lack
        self.to_give: list[KeyWanted] = []  # peers that lack our sender key of a group
