"""Users whose number the Cloud API does not show, by the number that stands for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from coreapp.errors import RequestRefused
from tidings.aio.lru import LRU
from tidings.storage.business import standins
from tidings.storage.business.standins import StandIn
from tidings.storage.database import Database
from tidings.wire import codes, standin_numbers

CACHED = 10_000  # users in memory, 200 bytes each
TAKEN = "the number stands for another user, or the user has another number"


@dataclasses.dataclass(eq=False, repr=False)
class StandInNumbers:
    """Numbers that stand for users of one account. The shard of a number is the one that issues it."""

    database: Database
    account: str
    prefix: str  # first digits of new numbers

    def __post_init__(self) -> None:
        # Ids of users by number, on disk or in the journal.
        self._users: LRU[str, str] = LRU(CACHED)

    def is_reserved(self, number: str) -> bool:
        """Return whether a number cannot be a telephone number."""
        return standin_numbers.is_reserved(self.prefix, number)

    async def find(self, numbers: Iterable[str]) -> Mapping[str, str]:
        """Return the ids of the users that the numbers stand for. Telephone numbers are left out, and numbers of the
        reserved range that were not issued.
        """
        possible = {number for number in numbers if standin_numbers.may_be(self.prefix, number)}
        found = {number: user_id for number in possible if (user_id := self._users.get(number)) is not None}
        missing = list(possible - found.keys())
        if missing:
            rows = await self.database.query(
                lambda connection: standins.list_by_number(connection, self.account, missing)
            )
            found |= self._learn(rows)
        return found

    async def prepare(self, users: Mapping[str, str], moved: Mapping[str, str]) -> Mapping[str, str]:
        """Load what `issue` and `move` need. Raises `RequestRefused` if a number stands for another user, or a user has
        another number: the post is repeated then, and the Webapp chooses again.

        users: ids by number
        moved: new ids by number, of users for whom it stands
        Returns the other numbers that new ids have already, by number: those cannot be moved.
        """
        unknown = {number: user_id for number, user_id in users.items() if self._users.get(number) != user_id}
        if not unknown and not moved:
            return {}
        ids = [*unknown.values(), *moved.values()]
        async with self.database.reading() as connection:
            of_users = await standins.list_by_user(connection, self.account, ids)
            self._learn([*of_users, *await standins.list_by_number(connection, self.account, [*unknown, *moved])])
        present = {row.user_id: row.number for row in of_users}
        for number, user_id in unknown.items():
            # Another request may have issued it during the read.
            is_taken = self._users.get(number) not in (None, user_id) or present.get(user_id, number) != number
            if is_taken and number not in moved:
                raise RequestRefused(codes.NOT_READY, TAKEN, 1)
        return {number: other for number, new in moved.items() if (other := present.get(new, number)) != number}

    def issue(self, number: str, user_id: str) -> Sequence[StandIn]:
        """Return the row to commit; nothing if the number stands for the user already."""
        if number in self._users:
            return ()
        self._users.put(number, user_id)
        return (StandIn(self.account, number, user_id),)

    def move(self, number: str, user_id: str) -> Sequence[StandIn]:
        """Let an issued number stand for a user with another id. Returns the row to commit; nothing if it does so
        already.
        """
        if self._users.get(number) in (None, user_id):
            return ()
        self._users.put(number, user_id)
        return (StandIn(self.account, number, user_id),)

    async def confirm(self, moved: Sequence[StandIn]) -> None:
        """Read committed moves again. Raises `RequestRefused` if a number stayed with its user, because another shard
        had issued one to the new id in the meantime: the post is repeated then.
        """
        if not moved:
            return
        numbers = [row.number for row in moved]
        stored = await self.database.query(
            lambda connection: standins.list_by_number(connection, self.account, numbers)
        )
        # A number that has moved on since has another user in memory.
        stayed = [
            row
            for row in stored
            if row not in moved and StandIn(self.account, row.number, self._users.get(row.number) or "") in moved
        ]
        for row in stayed:
            self._users.put(row.number, row.user_id)
        if stayed:
            raise RequestRefused(codes.NOT_READY, TAKEN, 1)

    def _learn(self, rows: Iterable[StandIn]) -> Mapping[str, str]:
        """Keep rows that were read, unless memory is newer: a number may have moved since. Returns ids by number."""
        found = {}
        for row in rows:
            known = self._users.get(row.number)
            if known is None:
                self._users.put(row.number, row.user_id)
            found[row.number] = known or row.user_id
        return found
