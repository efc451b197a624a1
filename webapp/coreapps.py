"""Questions that resources ask the Coreapps, in interfaces as small as their needs; `CoreappLinks` has them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from tidings.wire import core
from webapp.errors import CoreappAway
from webapp.shard_map import Coreapp

# The question, given the number that its answer will have.
Make = Callable[[int], Any]
Answer = TypeVar(
    "Answer",
    core.Done,
    core.Contacts,
    core.Accepted,
    core.Identity,
    core.Health,
    core.Metrics,
    core.Exported,
    core.GroupList,
    core.GroupDescription,
    core.GroupInvite,
    core.GroupIcon,
)


class PrimaryCoreapp(Protocol):
    """The Coreapp that owns the first shard, and with it what no shard owns: groups, registration, contacts.

    again: the question as it may be asked again when it was sent and no answer came. Without it nobody can know then
    whether it was done. What is read may be asked any number of times.
    """

    async def ask_first(self, make: Make, expect: type[Answer], *, again: Make | None = None) -> Answer: ...

    async def ask_first_safely(self, make: Make, expect: type[Answer]) -> Answer: ...


class ShardOwners(PrimaryCoreapp, Protocol):
    """The Coreapp that owns a recipient's shard, and the primary one."""

    @property
    def has_shards(self) -> bool:
        """Are there several shards?"""
        ...

    @property
    def has_contacts_by_shard(self) -> bool:
        """Is each shard asked for its own contacts?"""
        ...

    def shard_of(self, recipient: str) -> int:
        """The number of a recipient's shard, as far as the map of the shards is known."""
        ...

    async def ask(self, recipient: str, make: Make, expect: type[Answer], *, again: Make | None = None) -> Answer: ...

    async def ask_safely(self, recipient: str, make: Make, expect: type[Answer]) -> Answer: ...


class Coreapps(PrimaryCoreapp, Protocol):
    """All Coreapps, together and one by one."""

    def coreapps(self) -> Sequence[Coreapp]: ...

    async def ask_all(self, make: Make, expect: type[Answer], *, timeout: float) -> list[Answer | CoreappAway]: ...

    async def ask_each(
        self, make: Make, expect: type[Answer], *, timeout: float
    ) -> list[tuple[Coreapp, Answer | CoreappAway]]: ...
