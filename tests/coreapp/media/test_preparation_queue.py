"""Messages that wait for files: one that cannot be ended reopens the shard."""

from __future__ import annotations

from collections.abc import Sequence

from coreapp.media.preparation import FoundMedia, Preparation
from coreapp.media.preparation_queue import PreparationQueue
from tests.coreapp.signals import soon
from tests.manual_clock import ManualClock
from tidings.aio.batcher import BatcherFull
from tidings.storage.business.jobs import Job, JobForm

IMAGE = b'{"type":"image","image":{"id":"1"}}'


class NoFiles:
    """Origin whose files cannot be read."""

    async def find(self, source: object, held_up: object) -> FoundMedia:
        raise ValueError("unreadable")


def job(message_id: str) -> Job:
    return Job(message_id, 0, "15550000000", "15550110001", JobForm.NEW, "", b"", 0)


async def test_a_full_journal_at_the_end_of_a_preparation_breaks_the_shard() -> None:
    broken: list[BaseException] = []
    forwarded: list[str] = []

    def fail(jobs: Sequence[Job], code: int, details: str) -> None:
        raise BatcherFull("journal")

    queue = PreparationQueue(
        Preparation(NoFiles(), NoFiles(), ManualClock()),
        forward=lambda job, content: forwarded.append(job.id),
        fail=fail,
        held_up=lambda ids, why: None,
        broken=broken.append,
    )
    queue.enter(job("first"), IMAGE, has_media=True)
    queue.enter(job("second"), b"{}", has_media=False)
    await soon(lambda: bool(broken))
    assert [type(error) for error in broken] == [BatcherFull]
    # The second message is not sent before the first one, which is on disk.
    assert forwarded == []
