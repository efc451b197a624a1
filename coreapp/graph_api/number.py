"""State that the shards of one number in this process share to use the Cloud API: connections, pace, refused files."""

from __future__ import annotations

import asyncio

from coreapp.graph_api.client import GraphClient
from coreapp.graph_api.pace import UpstreamPace
from coreapp.graph_api.refused_files import RefusedFiles
from coreapp.settings import Settings
from tidings.aio.clock import Clock
from tidings.egress.guard import EgressGuard
from tidings.egress.responses import ReadCpuLimit


class NumberConnections:
    """Connections, pace and refused files of one number."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.client = GraphClient(EgressGuard(settings.outgoing_webhooks), pace=ReadCpuLimit())
        self.pace = UpstreamPace(clock, limit=settings.cloud_concurrency)
        self.refused_files = RefusedFiles(clock)
        self.fault_writes = asyncio.Lock()  # held during a write of the fault
        # Slots of file transfers. A Cloud API that hangs delays only the files of its own number.
        self.uploads = asyncio.Semaphore(settings.media_transfers)
        self.downloads = asyncio.Semaphore(settings.media_transfers)
        self._shards = 0
        self._of_shards = 1
        self._rate = 0.0

    def opened(self, shards: int, rate: float) -> None:
        """Record that one of the number's shards was opened here.

        shards: number of all shards of the number
        rate: messages per second of the number
        """
        self._shards, self._of_shards = self._shards + 1, shards
        self.set_rate(rate)

    def closed(self) -> None:
        """Record that one of the number's shards was closed here."""
        self._shards -= 1
        if not self._shards:
            self.client.close()
        else:
            self.set_rate(self._rate)

    def set_rate(self, rate: float) -> None:
        """Set the messages per second of the number, of which this process has the part of its shards."""
        self._rate = rate
        self.pace.set_rate(rate * min(self._shards, self._of_shards) / self._of_shards)
