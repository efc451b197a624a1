"""Checks before a message is accepted: whether it may be accepted, and whether it can be sent at all."""

from __future__ import annotations

import dataclasses

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.groups.requests import GroupRequests
from coreapp.peers.wiring import ShardPeers
from tidings.wire import codes, core

GROUP = "group"  # recipient type
OUTSIDE_WINDOW = "the recipient did not write within the last 24 hours: only a template can be sent"


@dataclasses.dataclass(frozen=True, slots=True)
class CheckFailure:
    """Reason why a message is accepted and never sent."""

    code: int  # error code of its failed status
    details: str


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class RecipientChecks:
    """Checks of the recipients of one account's messages."""

    context: ShardContext
    peers: ShardPeers
    groups: GroupRequests

    async def look_up(self, question: core.AcceptMessage) -> CheckFailure | None:
        """Load what is not in memory and check the recipient. Returns None for a message that can be sent. Raises
        `RequestRefused`.
        """
        if question.recipient_type == GROUP:
            return None
        if question.to == self.context.account:
            raise RequestRefused(codes.BAD_USER, "a business cannot send to itself")
        await self.peers.contacts.require_valid(question.to)
        window = self.peers.window
        if window.needs_window(question.kind) and not await window.is_open(question.to):
            return CheckFailure(codes.REENGAGEMENT, OUTSIDE_WINDOW)
        return None

    def require_sendable(self, question: core.AcceptMessage) -> None:
        """Check the state that may change while other data is loaded; therefore called last. Raises
        `RequestRefused`."""
        if question.recipient_type == GROUP:
            self.groups.require_sendable(question.to)
        else:
            self.peers.identities.require_acknowledged(question.to)
