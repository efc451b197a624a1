"""Limit on management calls of the Cloud API: those about a number, its account and its templates, in an hour."""

from __future__ import annotations

from collections.abc import Sequence

from tidings.aio.clock import Clock
from tidings.storage.business import accounts, cloud_calls
from tidings.storage.business.cloud_calls import CallsOfHour
from tidings.storage.database import Connection, Database
from tidings.wire.cloud.codes import MANAGEMENT_RATE
from tidings.wire.cloud.identity import NumberIdentity, ObjectKind
from webapp.api.cloud import errors, responses
from webapp.api.cloud.responses import CallShare

# Calls in an hour: of a WABA with a registered number, and of one without.
REGISTERED, UNREGISTERED = 5_000, 200
_KINDS = frozenset((ObjectKind.NUMBER, ObjectKind.WABA, ObjectKind.TEMPLATE))
# Edges of a number that belong to messaging.
_MESSAGING = frozenset(("messages", "media"))
TOO_MANY = "There have been too many calls to this WhatsApp Business account within the last hour."


def is_counted(kind: str, edge: str) -> bool:
    """Return whether a call about an object of this kind is a management call."""
    return kind in _KINDS and not (kind == ObjectKind.NUMBER and edge in _MESSAGING)


class ManagementCalls:
    """Management calls of each WABA, counted in the database for all Webapps."""

    def __init__(self, database: Database, clock: Clock, *, throttle_status: int) -> None:
        """throttle_status: HTTP status of a refused call"""
        self._database = database
        self._clock = clock
        self._throttle_status = throttle_status

    async def admit(self, identity: NumberIdentity, members: Sequence[str]) -> CallShare:
        """Count a call, and return the share of the calls of an hour that are used. Raises `GraphError`.

        members: numbers of the WABA
        """
        found, limit = await self._database.commit(
            lambda connection: self._count(connection, identity.waba_owner, members)
        )
        share = CallShare(min(found.calls * 100 // limit, 100), found.wait)
        if found.wait:
            error = errors.coded(MANAGEMENT_RATE, TOO_MANY, status=self._throttle_status, retry_after=found.wait * 60)
            error.headers[responses.USAGE] = responses.usage_of(identity.waba_id, responses.MANAGEMENT, share).decode()
            raise error
        return share

    async def _count(self, connection: Connection, owner: str, members: Sequence[str]) -> tuple[CallsOfHour, int]:
        limit = REGISTERED if await accounts.is_any_registered(connection, members) else UNREGISTERED
        now = self._clock.now_ms()
        return await cloud_calls.count(connection, owner, limit=limit, now=now), limit
