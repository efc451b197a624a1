"""Contents of messages that are posted to the Cloud API: as the business sent them, without pointers to files."""

from __future__ import annotations

from typing import Self

from coreapp.media.preparation_queue import PreparationQueue
from coreapp.recovery.sent_content import SentContents
from tidings.storage.business.jobs import Job


class PlainContents(PreparationQueue):
    """Forwards every message at once: its files are not stored in the network."""

    @classmethod
    def like(cls, queue: PreparationQueue) -> Self:
        """Create the replacement of a queue."""
        return cls(
            queue.preparation, forward=queue.forward, fail=queue.fail, held_up=queue.held_up, broken=queue.broken
        )

    def ready(self, peer: str, content: bytes, *, has_media: bool) -> bytes | None:
        return content

    def resume(self, job: Job, content: bytes) -> None:
        self.forward(job, content)


class NoKeptContents(SentContents):
    """Keeps no content: no recipient can ask to have a message encrypted again."""

    def keep(self, message_id: str, peer: str, content: bytes, *, encrypted: bool) -> bytes | None:
        return None
