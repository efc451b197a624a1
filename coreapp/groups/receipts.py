"""Status of a message to a group at each participant: every status is reported once, by its own webhook."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from coreapp.context import ShardContext
from coreapp.statuses.reports import StatusReports
from coreapp.statuses.tracker import steps_between
from coreapp.webhook import bodies
from tidings.storage.business import callbacks, group_messages
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.group_messages import GroupReceipt
from tidings.storage.business.messages import Status


@dataclasses.dataclass(slots=True)
class ReceiptSteps:
    """Effects of one batch of receipts."""

    known: dict[tuple[str, str], int]  # known status by message and participant
    changed: dict[tuple[str, str], GroupReceipt] = dataclasses.field(default_factory=dict)
    statuses: dict[str, Status] = dataclasses.field(default_factory=dict)  # new statuses of the messages
    callbacks: list[Callback] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False, repr=False)
class GroupReceipts:
    """Receipts for one account's group messages. A message of the business is `sent` once; `delivered` and `read` are
    per participant.
    """

    context: ShardContext
    reports: StatusReports

    async def load(self, message_ids: Sequence[str], members: Iterable[str]) -> ReceiptSteps:
        """Load the known statuses of these messages and participants."""
        if not message_ids:
            return ReceiptSteps({})
        ids, numbers = list(dict.fromkeys(message_ids)), list(dict.fromkeys(members))
        rows = await self.context.database.query(
            lambda connection: group_messages.list_receipts(connection, ids, numbers)
        )
        return ReceiptSteps({(row.message_id, row.member): row.status for row in rows})

    def note(
        self, steps: ReceiptSteps, message_id: str, member: str, reached: Status, timestamp: int, group_id: str
    ) -> bool:
        """Record that a participant received or read a message, which must be in the status tracker. Returns whether
        that was new.

        A skipped status is reported together with the later one.

        timestamp: Unix seconds; 0 for now
        """
        current = Status(steps.known.get((message_id, member), Status.SENT))
        between = steps_between(current, reached)
        if not between:
            return False
        steps.known[message_id, member] = between[-1]
        now = self.context.clock.now()
        row, earlier = GroupReceipt(message_id, member, between[-1]), steps.changed.get((message_id, member))
        if self.context.settings.keeps_history:
            delivered_at = earlier.delivered_at if earlier is not None else int(now * 1000)
            read_at = int(now * 1000) if between[-1] is Status.READ else None
            row = dataclasses.replace(row, delivered_at=delivered_at, read_at=read_at)
        steps.changed[message_id, member] = row
        steps.statuses[message_id] = max(between[-1], steps.statuses.get(message_id, between[-1]))
        for step in between:
            if self.reports.is_posted(step):
                body = bodies.status(message_id, member, step, timestamp or int(now), group_id=group_id)
                event = callbacks.status_event(message_id, member, int(step))
                steps.callbacks.append(self.reports.callback(message_id, body, int(now * 1000), event))
        return True


def merged(report: Mapping[str, Status], steps: Mapping[str, Status]) -> dict[str, Status]:
    """Return the status of each message: the furthest of all participants."""
    result = dict(report)
    for message_id, status in steps.items():
        result[message_id] = max(status, result.get(message_id, status))
    return result
