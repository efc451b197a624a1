"""Interfaces through which resources call the Coreapps, as small as their needs.

`CoreappLinks` implements all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from tidings.wire import core
from webapp.coreapps.shard_map import Coreapp
from webapp.http.errors import CoreappUnavailable

# Creates the request for a given request number, which the response repeats.
Make = Callable[[int], Any]
Response = TypeVar(
    "Response",
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
    core.Purged,
)


class PrimaryCoreapp(Protocol):
    """The Coreapp that owns the first shard, and with it groups, registration and contacts.

    `again` creates the request to send if no response to the first one came. Without it, whether the request was
    processed is unknown in that case. Reads may be sent any number of times.
    """

    async def call_primary(self, make: Make, expect: type[Response], *, again: Make | None = None) -> Response: ...

    async def call_primary_repeatable(self, make: Make, expect: type[Response]) -> Response: ...


class ShardOwners(PrimaryCoreapp, Protocol):
    """The Coreapp that owns a recipient's shard, and the primary one."""

    @property
    def has_shards(self) -> bool:
        """Return whether there are several shards."""
        ...

    @property
    def has_contacts_by_shard(self) -> bool:
        """Return whether contacts are requested from the shard of each."""
        ...

    def shard_of(self, recipient: str) -> int:
        """Return the number of a recipient's shard, according to the last known shard map."""
        ...

    async def call(
        self, recipient: str, make: Make, expect: type[Response], *, again: Make | None = None
    ) -> Response: ...

    async def call_repeatable(self, recipient: str, make: Make, expect: type[Response]) -> Response: ...


class PrimaryCoreappOfNumber(PrimaryCoreapp, Protocol):
    """Primary Coreapp of one number.

    `version` is the `LINK_VERSION` of the first release that knows the request. Other releases do not get it.
    """

    block: int  # shard block of the number

    async def call_primary(
        self, make: Make, expect: type[Response], *, again: Make | None = None, version: int = 0
    ) -> Response: ...


class PrimaryCoreapps(Protocol):
    """Primary Coreapp of each number."""

    def of(self, account: str) -> PrimaryCoreappOfNumber: ...


class NumberShardOwners(Protocol):
    """Owners of the shards of each number."""

    def of(self, account: str) -> ShardOwners: ...


class Coreapps(PrimaryCoreapp, Protocol):
    """All Coreapps, together and individually."""

    def coreapps(self) -> Sequence[Coreapp]: ...

    def unreached(self) -> Mapping[str, float]:
        """Return the seconds since the first failed call, by the address of each live Coreapp that is not reached."""
        ...

    async def call_all(
        self, make: Make, expect: type[Response], *, timeout: float
    ) -> list[Response | CoreappUnavailable]: ...

    async def call_each(
        self, make: Make, expect: type[Response], *, timeout: float
    ) -> list[tuple[Coreapp, Response | CoreappUnavailable]]: ...


class CoreappsOfNumber(Coreapps, Protocol):
    """All Coreapps, each with its shards of one number."""

    block: int  # shard block of the number


class AllCoreapps(Coreapps, Protocol):
    """All Coreapps, for the installation and for each number."""

    def of(self, account: str) -> CoreappsOfNumber: ...
