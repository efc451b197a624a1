"""Availability of the parts that sending a message needs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from tidings.observability.readiness import AWAY, OK
from tidings.wire import core
from webapp.api.health.service import DISCONNECTED, Liveness
from webapp.coreapps.interfaces import Coreapps
from webapp.http.errors import CoreappUnavailable

# Seconds that each Coreapp has to respond.
_TIMEOUT = 3.0

CONNECTING = "connecting"


MEDIA = "media"


class FileStoreState(Protocol):
    """Store of the files that messages name. `state` is `OK` or `AWAY`."""

    @property
    def state(self) -> str: ...


class SendingNeeds:
    """Parts that sending a message needs.

    They are the database, an owner of each shard with its network connection, and the file store.
    """

    def __init__(self, coreapps: Coreapps, database: Liveness, media: FileStoreState) -> None:
        self._coreapps = coreapps
        self._database = database
        self._media = media

    async def check(self) -> Mapping[str, str]:
        """Return `OK` or `AWAY` for each part."""
        alive, responses = await asyncio.gather(
            self._database.is_alive(),
            self._coreapps.call_all(lambda n: core.GetHealth(n=n), core.Health, timeout=_TIMEOUT),
        )
        responded = [response for response in responses if not isinstance(response, CoreappUnavailable)]
        away = {what for response in responded for what in _away(response)}
        all_respond = bool(responses) and len(responded) == len(responses)
        return {
            core.DATABASE: OK if alive and core.DATABASE not in away else AWAY,
            "coreapps": OK if all_respond and all(map(_is_at_work, responded)) else AWAY,
            core.NETWORK: AWAY if core.NETWORK in away else OK,
            MEDIA: self._media.state,
        }


def _is_at_work(response: core.Health) -> bool:
    """Return whether this Coreapp serves its shards.

    False for a Coreapp that has not yet noticed that it owns a shard, or has noticed that it owns none.
    """
    return bool(response.shards) or response.gateway_status != DISCONNECTED


def _away(response: core.Health) -> Sequence[str]:
    """Return the names of the parts that this Coreapp lacks.

    Older releases do not name the reason for `disconnected`. It was their database.
    """
    if response.gateway_status == CONNECTING:
        return [*response.away, core.NETWORK]
    if response.gateway_status == DISCONNECTED and response.shards and not response.away:
        return [core.DATABASE]
    return response.away
