"""Pending downloads in memory, those due first. The others are only in the table."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from coreapp.media import retry
from tidings.aio.clock import Clock
from tidings.storage.business.media_downloads import Download


class WaitingDownloads:
    """Downloads in memory, at most `limit`. Further ones wait in the table until memory has drained to half of the
    limit.
    """

    def __init__(self, limit: int, clock: Clock) -> None:
        self.limit = limit
        self._clock = clock
        self._here: dict[str, Download] = {}
        # Time of the creation of each on the monotonic clock: the wall clock may be set ahead.
        self._since: dict[str, float] = {}
        # Due times on the monotonic clock: the wall clock may be set back.
        self._due: list[tuple[float, str]] = []
        # Whether rows exist that are not in memory. At the start there may be rows of an earlier owner.
        self._more = True
        self._missed = False
        # Downloads that ended while a page is being read, whose rows the page may still contain; None while none is
        # being read.
        self._ended: set[str] | None = None
        # Downloads that are done.
        self.left = 0

    def __len__(self) -> int:
        return len(self._here)

    @property
    def oldest(self) -> int | None:
        """Creation time of the oldest download in memory, Unix milliseconds; None without downloads."""
        return min((download.created_at for download in self._here.values()), default=None)

    def find(self, message_id: str) -> Download | None:
        """Return the download of this message; None if it is not in memory."""
        return self._here.get(message_id)

    def offer(self, downloads: Sequence[Download]) -> None:
        """Add new downloads that are on disk."""
        for download in downloads:
            if self._more or len(self._here) >= self.limit:
                self._more = self._missed = True
            else:
                self._admit(download, None)

    def take(self) -> Download | None:
        """Return a download that is due, or None. It counts as waiting until `done`."""
        while self._due:
            due_at, message_id = self._due[0]
            if due_at > self._clock.monotonic():
                return None
            heapq.heappop(self._due)
            download = self._here.get(message_id)
            if download is not None:
                return download
        return None

    def again(self, download: Download) -> None:
        """Schedule a failed download again at its `due_at`."""
        if download.id in self._here:
            self._schedule(download)

    def age(self, message_id: str) -> float:
        """Return the seconds since the creation of a download; 0 for one that is not in memory."""
        now = self._clock.monotonic()
        return now - self._since.get(message_id, now)

    def done(self, message_id: str) -> None:
        """Drop a download whose row is deleted."""
        self._since.pop(message_id, None)
        self.left += self._here.pop(message_id, None) is not None
        if self._ended is not None:
            self._ended.add(message_id)

    def seconds(self) -> float | None:
        """Return the seconds until the next download is due; None without downloads in memory."""
        return max(0.0, self._due[0][0] - self._clock.monotonic()) if self._due else None

    @property
    def has_more(self) -> bool:
        """Return whether the table may have downloads that are not in memory."""
        return self._more

    @property
    def wants_more(self) -> bool:
        return self._more and len(self._here) <= self.limit // 2

    def loading(self) -> int:
        """Record that a page is about to be read. Returns the number of rows to read, which includes those already in
        memory.
        """
        self._missed = False
        self._ended = set()
        return self.limit + len(self._here)

    def loaded(self, page: Sequence[Download], requested: int, now: int | None = None) -> None:
        """Add a page of the rows that are due first. It may include downloads that are already in memory.

        now: present time, Unix milliseconds; None for that of the clock
        """
        ended, self._ended = self._ended or set(), None
        fresh = [download for download in page if download.id not in self._here and download.id not in ended]
        room = self.limit - len(self._here)
        for download in fresh[:room]:
            self._admit(download, now)
        # Downloads offered during the read may be on no page yet.
        self._more = len(page) >= requested or len(fresh) > room or self._missed

    def _admit(self, download: Download, now: int | None) -> None:
        self._here[download.id] = download
        self._since[download.id] = self._clock.monotonic_of(download.created_at, now=now)
        self._schedule(download)

    def _schedule(self, download: Download) -> None:
        heapq.heappush(self._due, (self._clock.monotonic_at(download.due_at, longest=retry.LONGEST), download.id))
