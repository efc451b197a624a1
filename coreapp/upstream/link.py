"""The Cloud API in the place of the network: it accepts read marks, and has no contacts, keys and deliveries."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client import Counter

from coreapp.config import Config
from coreapp.graph_api.client import NotPosted, ResponseMissing
from coreapp.graph_api.number import NumberConnections
from coreapp.graph_api.pace import backoff
from coreapp.network_connection import DeliveryListener, SendListener
from coreapp.upstream import bodies, outcomes
from coreapp.upstream.outcomes import FileMissing, Outcome, PostAccepted, PostRefused
from coreapp.upstream.standin_numbers import StandInNumbers
from tidings import e2ee
from tidings.aio import service
from tidings.storage.business import upstream_ids
from tidings.storage.business.upstream_ids import UpstreamId
from tidings.storage.database import Database
from tidings.wire import codes, device

log = logging.getLogger(__name__)

MARKS = Counter("tidings_cloud_read_marks_total", "Posts of read marks to the real Cloud API, by outcome", ["outcome"])

AT_ONCE = 16  # read marks that a shard posts at the same time
UNKNOWN_MESSAGES = "the Cloud API's ids of these messages are not known any more"


class UpstreamLink:
    """Connection of a shard whose number sends through the Cloud API."""

    name = "upstream-link"

    def __init__(self, config: Config, database: Database, number: NumberConnections, *, standin_prefix: str) -> None:
        """standin_prefix: first digits of numbers that stand for users"""
        self._config = config
        self._database = database
        self._number = number
        self._standins = StandInNumbers(database, config.account, standin_prefix)
        self._sends: SendListener
        self._is_running = False
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self.is_refused = False
        self.silence = 0.0

    @property
    def connected(self) -> bool:
        """Return whether read marks are accepted. A stopped number posts them when it is no longer stopped."""
        return self._is_running

    def listen(
        self, *, sends: SendListener, deliveries: DeliveryListener, prekeys_low: Callable[[int, int], None]
    ) -> None:
        """Register the listener for sends. The others are never called."""
        self._sends = sends

    def on_connect(self, call: Callable[[], None]) -> None:
        """Ignore `call`: it concerns the network."""

    def on_refused(self, call: Callable[[], None]) -> None:
        """Ignore `call`: it concerns the network."""

    def drop(self, reason: str) -> None:
        """Close the connections that no post uses; new ones are opened."""
        self._number.client.close()

    async def run(self, stop: asyncio.Event) -> None:
        """Accept read marks until `stop` is set."""
        self._is_running = True
        self._sends.connected()
        try:
            await stop.wait()
        finally:
            self._is_running = False
            await service.cancel(self._tasks)

    async def check_contacts(self, numbers: Sequence[str]) -> set[str]:
        """Return all numbers except those of the reserved range that stand for no user: the Cloud API has no check.
        Those that a status found invalid are cached as such.
        """
        reserved = {number for number in numbers if self._standins.is_reserved(number)}
        issued = await self._standins.find(reserved) if reserved else {}
        return {number for number in numbers if number not in reserved or number in issued}

    async def fetch_bundles(self, numbers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        """Return no keys: the Cloud API has no pre-keys."""
        return {}

    def acknowledge(self, deliveries: Iterable[device.Deliver]) -> None:
        """Do nothing: events are acknowledged by the response to their post."""

    def send(self, envelope: device.Send) -> None:
        """Post a read mark. Other kinds do not occur for such a number."""
        if envelope.kind != device.READ:
            log.error("upstream.unknown_envelope", extra={"id": envelope.id, "kind": envelope.kind})
            return
        task = asyncio.get_running_loop().create_task(self._mark_read(envelope))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _mark_read(self, envelope: device.Send) -> None:
        """Post a read mark until the Cloud API accepts or refuses it. A repeated one has no further effect."""
        for attempts in itertools.count(1):
            async with self._slots:
                outcome = await self._attempt(envelope.refs)
            if isinstance(outcome, PostAccepted):
                MARKS.labels("accepted").inc()
                self._sends.accepted([envelope.id])
                return
            if isinstance(outcome, PostRefused):
                MARKS.labels("refused").inc()
                self._sends.refused(envelope.id, "refused", outcome.details)
                return
            MARKS.labels("delayed").inc()
            await asyncio.sleep(backoff(attempts))

    async def _attempt(self, refs: Sequence[str]) -> Outcome | None:
        """Mark these messages as read. Returns None if the database or the Cloud API did not respond."""
        try:
            newest = await self._find_newest(refs)
        except Exception as error:
            log.warning("upstream.mark_delayed", extra={"error": repr(error)})
            return None
        if newest is None:
            return PostRefused(codes.NOT_FOUND, UNKNOWN_MESSAGES)
        return await self._post(bodies.mark_read(newest.wamid))

    async def _post(self, body: bytes) -> Outcome | None:
        access = self._config.upstream
        if access is None or not access.token:
            return None
        try:
            response = await self._number.client.post(access.messages_url, access.token, body)
        except (NotPosted, ResponseMissing):
            return None
        if 200 <= response.status < 300:
            return PostAccepted("")
        outcome = outcomes.of_response(response.status, response.content)
        return outcome.otherwise if isinstance(outcome, FileMissing) else outcome

    async def _find_newest(self, refs: Sequence[str]) -> UpstreamId | None:
        """Find the newest of these messages: with it the Cloud API marks those before it."""
        rows = await self._database.query(
            lambda connection: upstream_ids.list_by_id(connection, self._config.account, list(refs))
        )
        return max(rows, key=lambda row: (row.created_at, row.id), default=None)
