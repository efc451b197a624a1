"""Checks before a message is accepted: whether it may be accepted, and whether it can be sent at all."""

from __future__ import annotations

import dataclasses
import math

from coreapp.accepting import reaction_targets
from coreapp.accepting.pair_rate import PairRate
from coreapp.accepting.reached_recipients import ReachedRecipients
from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.groups.requests import GroupRequests
from coreapp.peers import identities
from coreapp.peers.contact_cache import NOT_VALID
from coreapp.peers.wiring import ShardPeers
from tidings.testing import numbers
from tidings.testing.numbers import TestKind
from tidings.wire import codes, core
from tidings.wire.cloud.codes import PAIR_RATE

GROUP = "group"  # recipient type
ANOTHER_IDENTITY = "the recipient's identity is not the one whose hash the request names"
TOO_MANY_TO_ONE = (
    "Message failed to send because there were too many messages sent from this phone number to the same phone number "
    "in a short period of time."
)
OUTSIDE_WINDOW = "the recipient did not write within the last 24 hours: only a template can be sent"
BLOCKED = "the business has blocked the recipient"
FAILS_BY_NUMBER = "messages to this test number fail (docs/testing.md)"


@dataclasses.dataclass(frozen=True, slots=True)
class CheckFailure:
    """Reason why a message is accepted and never sent."""

    code: int  # error code of its failed status; of v1, or of the Cloud API from 130000 on
    details: str


@dataclasses.dataclass(eq=False, repr=False)
class RecipientChecks:
    """Checks of the recipients of one account's messages."""

    context: ShardContext
    peers: ShardPeers
    groups: GroupRequests

    def __post_init__(self) -> None:
        self._pair_rate = PairRate(self.context.clock)
        self._reached = ReachedRecipients(self.context, self.peers.window)

    async def look_up(self, request: core.AcceptMessage) -> CheckFailure | None:
        """Load what is not in memory and check the recipient. Returns None for a message that can be sent. Raises
        `RequestRefused`.
        """
        if request.recipient_type == GROUP:
            return None
        if self.context.settings.testing and numbers.kind_of(request.to) is TestKind.FAILS:
            return CheckFailure(numbers.code_of(request.to), FAILS_BY_NUMBER)
        if request.to == self.context.account:
            raise RequestRefused(codes.BAD_USER, "a business cannot send to itself")
        if request.to in self.context.config.blocked:
            return CheckFailure(codes.RECIPIENT_BLOCKED, BLOCKED)
        if request.checked_late:
            failure = await self._late_failure(request)
            if failure is not None:
                return failure
        elif not await self._is_checked_later(request.to):
            await self.peers.contacts.require_valid(request.to)
        window = self.peers.window
        if window.needs_window(request.kind) and not await window.is_open(request.to):
            return CheckFailure(codes.REENGAGEMENT, OUTSIDE_WINDOW)
        return None

    def counts(self, request: core.AcceptMessage) -> bool:
        """Return whether the recipient counts towards the messaging limit."""
        return request.recipient_limit > 0 and request.recipient_type != GROUP

    async def reach(self, request: core.AcceptMessage) -> None:
        """Count the recipient towards the messaging limit. Raises `RequestRefused` over the limit."""
        await self._reached.admit(request.to, request.recipient_limit)

    async def close(self) -> None:
        """Accept no more requests, and finish the pending database accesses that requests wait for."""
        await self._reached.close()

    async def _is_checked_later(self, wa_id: str) -> bool:
        """Return whether an unknown recipient is checked only after the message is accepted, which then fails by
        webhook: a contacts call that does not wait has no result for it yet.
        """
        contacts = self.peers.contacts
        if not self.context.settings.check_unknown or not contacts.is_checked_without_wait(wa_id):
            return False
        return await contacts.find(wa_id) is None

    async def _late_failure(self, request: core.AcceptMessage) -> CheckFailure | None:
        """Return the reason why a message of the Cloud API fails; None if it does not. Raises `RequestRefused`."""
        contacts = self.peers.contacts
        # The message is accepted before it is known whether the recipient is on the network, and fails if the network
        # has no keys. But only recipients on the network count towards the messaging limit.
        found = contacts.is_registered if request.recipient_limit else contacts.find
        if await found(request.to) is False:
            return CheckFailure(codes.INVALID_USER, NOT_VALID)
        if not await reaction_targets.has_target(self.context, request):
            return CheckFailure(codes.PARAMETER_INVALID, reaction_targets.NO_TARGET)
        if not request.identity_hash:
            return None
        with self.peers.identities.pinned((request.to,)):
            await self.peers.identities.load((request.to,))
            known = self.peers.identities.find(request.to)
        if known is None or identities.text_of(known.hash) != request.identity_hash:
            return CheckFailure(codes.USER_CHANGED, ANOTHER_IDENTITY)
        return None

    def require_sendable(self, request: core.AcceptMessage) -> None:
        """Check the state that may change while other data is loaded; therefore called last. Raises
        `RequestRefused`."""
        if request.recipient_type == GROUP:
            self.groups.require_sendable(request.to)
        else:
            self.peers.identities.require_acknowledged(request.to)

    def count(self, request: core.AcceptMessage) -> None:
        """Count an accepted message against the pair rate. Raises `RequestRefused` if the rate is exceeded."""
        if request.pair_limited:
            wait = self._pair_rate.take(request.to)
            if wait:
                raise RequestRefused(PAIR_RATE, TOO_MANY_TO_ONE, math.ceil(wait))
