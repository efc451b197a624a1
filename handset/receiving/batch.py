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
from tidings.storage.handset.sent import SentRow


class Batch:
    """Changes and effects of the items of one transaction. A batch that is not committed is discarded as a whole."""

    def __init__(self, context: FleetContext, positions: LastPositions, receipt_ids: ReceiptIds) -> None:
        self.sessions = SessionBatch()
        self.inbox = InboxBatch(context.name, positions, context.vault)
        self.outbox = OutboxBatch(context, positions, receipt_ids)
        self.used_prekeys: list[tuple[str, int]] = []  # (number, key id) of pre-keys to delete
        self.sent: list[SentRow] = []  # messages kept for peers that request them again
        self.shown: list[ReceivedMessage] = []  # messages for the application
        self.events: list[DeviceEvent] = []  # events for the application
        # peers that need a new session, and whether they have replied on the present one
        self.to_renew: list[tuple[Device, str, bool]] = []
        self.to_ask: list[KeyWanted] = []  # peers whose sender key of a group we lack
        self.to_give: list[KeyWanted] = []  # peers that lack our sender key of a group
