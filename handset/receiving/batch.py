"""Changes and effects of one batch of a message store."""

from __future__ import annotations

from handset.application import DeviceEvent, ReceivedMessage
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.receiving.inbox import InboxBatch
from handset.receiving.items import KeyWanted
from handset.receiving.sessions import SessionBatch
from handset.sending.outbox import LastPositions, OutboxBatch, ReceiptIds
from tidings.storage.base_keys import BaseKey
from tidings.storage.handset.sent import SentRow


class InboundBatch:
    """Changes and effects of the items of one transaction. If it is not committed, the whole batch is discarded."""

    def __init__(self, context: FleetContext, positions: LastPositions, receipt_ids: ReceiptIds) -> None:
        self.sessions = SessionBatch()
        self.inbox = InboxBatch(context.name, positions, context.sealer)
        self.outbox = OutboxBatch(context, positions, receipt_ids)
        self.used_prekeys: list[tuple[str, int]] = []  # (number, key id) of pre-keys to delete
        self.base_keys: list[BaseKey] = []  # base keys of first messages that named no one-time pre-key
        self.sent: list[SentRow] = []  # contents that peers may request again
        self.shown: list[ReceivedMessage] = []  # messages for the application
        self.events: list[DeviceEvent] = []  # events for the application
        # (device, peer, whether the peer has replied on the present session) of sessions to replace
        self.to_renew: list[tuple[Device, str, bool]] = []
        self.keys_to_request: list[KeyWanted] = []  # peers whose sender key of a group we lack
        self.keys_to_send: list[KeyWanted] = []  # peers that lack our sender key of a group
