"""Requests to the owners of shards: replays and texts of callbacks, and with the operator key purges and contents."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from tidings.net.exposure import LinkCalls
from tidings.storage.business import shards
from tidings.storage.database import Database
from tidings.wire import core, single_requests
from tidings.wire.codes import ACCESS_DENIED
from tidings.wire.single_requests import NoConnection, NoResponse
from webapp.http.errors import CoreappRefused, CoreappUnavailable, CoreappUnreachable

NO_KEY = "this Webapp has no operator key: set TIDINGS_CONSOLE_KEY, or use `tidings queue` on a machine that has it"

Response = TypeVar("Response", core.CallbackText, core.Replayed, core.Purged, core.Shown)


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class OperatorLink:
    """Client for the owners of shards that opens one connection per request, since operators make few requests."""

    database: Database
    calls: LinkCalls  # verification of the Coreapps
    _: dataclasses.KW_ONLY
    link_key: str
    operator_key: str  # empty: `operate` is refused

    @property
    def is_usable(self) -> bool:
        """Return whether this Webapp has the operator key."""
        return bool(self.operator_key)

    async def operate(self, shard: int, make: Callable[[int], core.Request], expect: type[Response]) -> Response:
        """Send a request that needs the operator key, as `call` does."""
        if not self.operator_key:
            raise CoreappRefused(ACCESS_DENIED, NO_KEY)
        return await self.call(shard, make, expect)

    async def call(
        self, shard: int, make: Callable[[int], core.Request], expect: type[Response], *, version: int = 0
    ) -> Response:
        """Send one request to the owner of a shard, and return its response.

        Raises `CoreappRefused`, and `CoreappUnreachable` when the shard has no reachable owner of a release that knows
        the request. Only `CoreappUnavailable` leaves it unknown whether the request was processed.

        version: as in `single_requests.call`
        """
        async with self.database.reading() as connection:
            owner = (await shards.map_owners(connection)).get(shard)
        if owner is None or not owner.address:
            raise CoreappUnreachable(f"no Coreapp owns shard {shard}")
        try:
            response = await single_requests.call(
                owner.address,
                make,
                calls=self.calls,
                link_key=self.link_key,
                operator_key=self.operator_key,
                version=version,
            )
        except NoConnection as error:
            raise CoreappUnreachable(str(error)) from error
        except NoResponse as error:
            raise CoreappUnavailable(str(error)) from error
        if isinstance(response, core.Refused):
            raise CoreappRefused(response.code, response.details, retry_after=response.retry_after)
        if not isinstance(response, expect):
            raise CoreappUnavailable(f"the Coreapp at {owner.address} responded with {type(response).__name__}")
        return response
