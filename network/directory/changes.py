"""Changes of what is registered: every node forgets what it knew of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from network.directory.logins import Logins
from network.directory.others import NOBODY, Others
from network.directory.recipients import Recipients

_NO_KEYS: Mapping[str, bytes] = {}


class Changes:
    """Call these after the commit: when they return no node goes by what was before."""

    def __init__(self, recipients: Recipients, logins: Logins) -> None:
        self._recipients = recipients
        self._logins = logins
        self.others: Others = NOBODY

    async def blocks(self, number: str) -> None:
        """A number blocks others than before."""
        self._recipients.changed(number)
        await self.others.changed([number])

    def registrations(self, numbers: Sequence[str]) -> None:
        """Tokens of these numbers are void, as this node knows from here on."""
        self._logins.changed()
        for number in numbers:
            self._recipients.changed(number)

    async def tell_others(self, numbers: Sequence[str], keys: Mapping[str, bytes] = _NO_KEYS) -> None:
        """The same for the other nodes, whose devices of these numbers have to leave. keys: the identity keys of those
        that were registered."""
        await self.others.changed(numbers, expelled=numbers, keys=keys)

    async def is_stale(self, number: str, epoch: int) -> bool:
        """Is the device attached to another node under a higher epoch?"""
        return await self.others.is_stale(number, epoch)
