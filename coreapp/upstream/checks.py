"""Checks before a message is accepted that will be sent through the Cloud API."""

from __future__ import annotations

from coreapp.accepting.checks import BLOCKED, GROUP, CheckFailure, RecipientChecks
from coreapp.errors import RequestRefused
from tidings.wire import codes, core

NO_GROUPS = "recipient_type: the Cloud API has no groups of v1"
NO_TTL = "ttl: the Cloud API has no time to live of a message, only one of a template"
NO_IDENTITY = "recipient_identity_key_hash: is not known for a number that sends through the Cloud API"


class UpstreamChecks(RecipientChecks):
    """Refuses what the Cloud API does not have. It checks the recipient and the 24-hour window itself."""

    async def look_up(self, request: core.AcceptMessage) -> CheckFailure | None:
        if request.recipient_type == GROUP:
            raise RequestRefused(codes.INVALID_RECIPIENT_TYPE, NO_GROUPS)
        if request.ttl:
            raise RequestRefused(codes.PARAMETER_NOT_REQUIRED, NO_TTL)
        if request.identity_hash:
            raise RequestRefused(codes.PARAMETER_NOT_REQUIRED, NO_IDENTITY)
        if request.to == self.context.account:
            raise RequestRefused(codes.BAD_USER, "a business cannot send to itself")
        if request.to in self.context.config.blocked:
            return CheckFailure(codes.RECIPIENT_BLOCKED, BLOCKED)
        await self.peers.contacts.require_valid(request.to, checks=True)
        return None

    def counts(self, request: core.AcceptMessage) -> bool:
        """Return False: the Cloud API counts recipients itself."""
        return False

    def require_sendable(self, request: core.AcceptMessage) -> None:
        """Do nothing: identities are those of the network."""
