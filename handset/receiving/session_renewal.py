"""Renewal of sessions with peers whose messages could not be read, or that could not read ours."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from handset import errors
from handset.devices.device import Device
from handset.receiving.items import PeerKey
from tidings.aio.clock import Clock
from tidings.aio.service import Wakeup, wait_for
from tidings.aio.use_limit import UseLimit
from tidings.client.errors import ClientError

log = logging.getLogger(__name__)

QUEUE_LIMIT = 1000  # peers; further ones are dropped, and their next unreadable message requests it again
MAX_RENEWALS = 3  # new sessions with the same peer in `PERIOD`
PERIOD = 3600.0  # seconds
RETRY_SECONDS = 5.0  # seconds before the next attempt when the network was unavailable


class SessionRenewal:
    """Sets up new sessions one at a time, at most `MAX_RENEWALS` per peer and hour."""

    def __init__(self, renew: Callable[[Device, str], Awaitable[None]], clock: Clock) -> None:
        """Create the queue.

        renew: sets up a new session with a peer; raises `ClientError`
        """
        self._renew = renew
        self._waiting: OrderedDict[PeerKey, Device] = OrderedDict()
        self._current: PeerKey | None = None
        self._use_limit: UseLimit[PeerKey] = UseLimit(
            clock, limit=MAX_RENEWALS, period=PERIOD, remembered=10 * QUEUE_LIMIT
        )
        self._wakeup = Wakeup()

    def request(self, device: Device, peer: str, answered: bool) -> None:
        """Request a new session with a peer, because one side could not read a message of the other.

        answered: whether the peer has replied on the present session.
            If not, it may not have received that session yet.
        """
        key = (device.number, peer)
        if key in self._waiting or key == self._current or len(self._waiting) >= QUEUE_LIMIT:
            return
        if (answered or not self._use_limit.used(key)) and self._use_limit.take(key):
            self._waiting[key] = device
            self._wakeup.wake()

    async def run(self, stop: asyncio.Event) -> None:
        with self._wakeup.woken_by(stop):
            while not stop.is_set():
                await self._wakeup.wait()
                while self._waiting and not stop.is_set():
                    await self._renew_next(stop)

    async def _renew_next(self, stop: asyncio.Event) -> None:
        key, device = self._waiting.popitem(last=False)
        self._current, (number, peer) = key, key
        try:
            await self._renew(device, peer)
            log.info("session.renewed", extra={"number": number, "peer": peer})
        except ClientError as error:
            log.warning("session.not_renewed", extra={"number": number, "peer": peer, "error": str(error)})
            if not isinstance(error, errors.NoSuchNumber):
                self._waiting[key] = device
                await wait_for(stop, RETRY_SECONDS)
        finally:
            self._current = None
