"""Several statuses in one post: which share it, what it contains, and what its outcome means for each."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest
from prometheus_client import REGISTRY

from coreapp.quarantine import Quarantine
from coreapp.webhook import batches, bodies, retry
from coreapp.webhook.batch_splits import BatchSplits
from coreapp.webhook.batches import Room
from coreapp.webhook.delivery import Deliveries
from coreapp.webhook.inbound import Inbound
from coreapp.webhook.queue import CallbackQueue
from coreapp.webhook.target import CallbackTarget
from harness.webhook_body import Verifier
from tests.coreapp.signals import soon
from tests.coreapp.sink import SECRET
from tests.coreapp.webhook.test_delivery_unexpected import Journal
from tests.manual_clock import ManualClock
from tidings.aio.batcher import BatcherFull
from tidings.storage.business.callbacks import CLOUD_ACCOUNT, CLOUD_ERROR, CLOUD_STATUS, Callback
from tidings.storage.business.messages import Status
from tidings.storage.business.quarantine import Suspect

NOW = 1_700_000_000.0
ACCOUNT, PEER = "15550000000", "15550110001"
KEY = b"k" * 32
ENVELOPE = b'{"object":"whatsapp_business_account","entry":[{"id":"1"}]}'


def status(seq: int, *, peer: str = PEER, **more: Any) -> Callback:
    body = bodies.status(f"m{seq}", peer, Status.SENT, int(NOW))
    at = int(NOW * 1000)
    return Callback(seq, 0, ACCOUNT, f"m{seq}", "status_change", body, at, event=f"evt_{seq}", recipient=peer, **more)


def inbound(seq: int, peer: str = PEER) -> Callback:
    body = bodies.inbound(f"m{seq}", peer, int(NOW), Inbound("unknown"))
    return Callback(seq, 0, ACCOUNT, f"m{seq}", "inbound_message", body, int(NOW * 1000), recipient=peer)


@dataclasses.dataclass
class Posted:
    """One post received."""

    event_id: str
    raw: bytes

    @property
    def ids(self) -> list[str]:
        return [each["id"] for each in json.loads(self.raw).get("statuses", ())]


class Receiver:
    """Poster that records each post, and responds with what `respond(post)` returns or raises."""

    def __init__(self) -> None:
        self.posts: list[Posted] = []
        self.respond: Callable[[Posted], int] = lambda post: 200

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, excerpt: bytearray | None = None) -> int:
        given = {name.encode(): value.encode() for name, value in headers.items()}
        assert Verifier(SECRET).is_valid(given, body)
        self.posts.append(Posted(headers["webhook-id"], body))
        return self.respond(self.posts[-1])

    @property
    def sizes(self) -> list[int]:
        return [len(post.ids) for post in self.posts]

    def trust(self, authorities: bytes) -> None:
        pass

    def close(self) -> None:
        pass


class Scene:
    """Deliveries of one worker, which posts up to `batch` statuses together."""

    def __init__(self, batch: int = 100, suspects: Sequence[int] = ()) -> None:
        self.clock = ManualClock(NOW)
        self.journal = Journal()
        self.receiver = Receiver()
        self.queue = CallbackQueue(1_000, self.clock, self.load)
        key = Verifier(SECRET)._key
        self.target = CallbackTarget("http://receiver.example/", 1, retry.Policy(), [key], batch=batch)
        held = [Suspect("callback", str(seq), "", 1, "the process ended", 0) for seq in suspects]
        self.deliveries = Deliveries(
            self.queue,
            self.journal,  # type: ignore[arg-type]
            lambda: self.target,
            poster=self.receiver,  # type: ignore[arg-type]
            clock=self.clock,
            quarantine=Quarantine(suspects=held),
        )

    async def load(self, after: int, limit: int) -> Sequence[Callback]:
        return []

    @contextlib.asynccontextmanager
    async def running(self, *callbacks: Callback) -> AsyncIterator[None]:
        """Deliver these callbacks, all of which are due when the worker starts."""
        await self.queue.start(0)
        self.queue.offer(callbacks)
        stop = asyncio.Event()
        task = asyncio.create_task(self.deliveries.run(stop))
        yield
        stop.set()
        await task
        await self.queue.close()

    async def delivered(self) -> None:
        await soon(lambda: not len(self.queue))

    async def tried(self, posts: int) -> None:
        """Wait until this many posts were made and all callbacks wait for their next attempt."""
        await soon(lambda: len(self.receiver.posts) == posts and self.queue.scheduled == len(self.queue))

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.queue.release_due()


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_a_batch_has_the_statuses_as_they_are_each_with_its_event_id() -> None:
    scene = Scene()
    async with scene.running(status(1), status(2), status(3)):
        await scene.delivered()
    (post,) = scene.receiver.posts
    expected = [json.loads(status(seq).body)["statuses"][0] | {"event_id": f"evt_{seq}"} for seq in (1, 2, 3)]
    assert json.loads(post.raw) == {"statuses": expected}
    assert post.event_id.startswith("batch_")


async def test_without_the_setting_each_status_is_posted_as_it_is_stored() -> None:
    scene, callbacks = Scene(batch=1), [status(1), status(2)]
    async with scene.running(*callbacks):
        await scene.delivered()
    assert [(post.event_id, post.raw) for post in scene.receiver.posts] == [(f"evt_{n.seq}", n.body) for n in callbacks]


async def test_a_single_due_status_is_posted_as_it_is_stored() -> None:
    scene = Scene()
    async with scene.running(status(1)):
        await scene.delivered()
    assert [(post.event_id, post.raw) for post in scene.receiver.posts] == [("evt_1", status(1).body)]


@pytest.mark.parametrize(("batch", "sizes"), [(1, [1] * 7), (3, [3, 3, 1]), (7, [7]), (100, [7])])
async def test_a_post_has_at_most_the_configured_number_of_statuses(batch: int, sizes: list[int]) -> None:
    scene = Scene(batch=batch)
    async with scene.running(*(status(seq) for seq in range(1, 8))):
        await scene.delivered()
    assert scene.receiver.sizes == sizes


async def test_statuses_of_one_message_are_in_separate_posts_in_their_order() -> None:
    scene = Scene()
    callbacks = [
        Callback(seq, 0, ACCOUNT, f"m{message}", "status_change", status(seq).body, int(NOW * 1000), event=f"evt_{seq}")
        for seq, message in enumerate((1, 2, 1, 2, 1, 2), 1)
    ]
    async with scene.running(*callbacks):
        await scene.delivered()
    assert [post.ids for post in scene.receiver.posts] == [["m1", "m2"], ["m3", "m4"], ["m5", "m6"]]


async def test_other_events_are_posted_alone_and_keep_their_turn() -> None:
    scene = Scene()
    peers = [f"1555011000{n}" for n in range(6)]
    async with scene.running(
        status(1, peer=peers[0]),
        inbound(2, peers[1]),
        status(3, peer=peers[2]),
        inbound(4, peers[3]),
        status(5, peer=peers[4]),
    ):
        await scene.delivered()
    assert scene.receiver.sizes == [3, 0, 0]
    assert [json.loads(post.raw)["messages"][0]["id"] for post in scene.receiver.posts[1:]] == ["m2", "m4"]


async def test_a_suspect_is_posted_alone() -> None:
    for suspects, sizes in (((), [4]), ((3,), [3, 1]), ((1,), [1, 3]), ((9,), [4])):
        scene = Scene(suspects=suspects)
        async with scene.running(*(status(seq, peer=f"1555011000{seq}") for seq in range(1, 5))):
            await scene.delivered()
        assert scene.receiver.sizes == sizes


async def test_an_accepted_batch_is_settled_by_one_change() -> None:
    scene = Scene()
    async with scene.running(*(status(seq) for seq in range(1, 31)), status(31, volatile=True)):
        await scene.delivered()
    assert scene.receiver.sizes == [31]
    assert [change.finished_callbacks for change in scene.journal.changes] == [tuple(range(1, 31))]


async def test_the_queue_counts_events_until_the_batch_is_accepted() -> None:
    scene = Scene()
    waiting: list[int] = []

    def respond(post: Posted) -> int:
        waiting.append(len(scene.queue))
        return 200

    scene.receiver.respond = respond
    async with scene.running(*(status(seq) for seq in range(1, 51))):
        await scene.delivered()
    assert waiting == [50]


@pytest.mark.parametrize("failure", [408, 425, 429, 502, 503, 504, OSError("refused"), TimeoutError()])
async def test_an_unavailable_receiver_gets_the_same_batch_again(failure: int | Exception) -> None:
    scene = Scene()

    def respond(post: Posted) -> int:
        if len(scene.receiver.posts) > 3:
            return 200
        if isinstance(failure, Exception):
            raise failure
        return failure

    scene.receiver.respond = respond
    # Two of each recipient: the order in which they become due again differs from that of the first attempt.
    async with scene.running(*(status(seq, peer=f"1555011000{seq % 5}") for seq in range(1, 11))):
        for posts in (1, 2, 3):
            await scene.tried(posts)
            scene.advance(3.0 * posts)
        await scene.delivered()
    assert scene.receiver.sizes == [10, 10, 10, 10]
    assert len({(post.event_id, post.raw) for post in scene.receiver.posts}) == 1
    failed = [[callback.seq for callback in change.failed_callbacks] for change in scene.journal.changes]
    assert failed == [list(range(1, 11))] * 3 + [[]]


async def test_one_bad_event_does_not_hold_up_the_others() -> None:
    scene = Scene()
    scene.receiver.respond = lambda post: 400 if "m4" in post.ids else 200
    callbacks = [status(seq) for seq in range(1, 11)]
    async with scene.running(*callbacks):
        # Without a delay: the batch, and each of its statuses alone.
        await scene.tried(11)
        assert scene.receiver.sizes == [10] + [1] * 10
        assert len(scene.queue) == 1
        assert callbacks[3].last_error == "HTTP 400"
        assert [callback.attempt for callback in callbacks] == [1, 1, 1, 2, 1, 1, 1, 1, 1, 1]
        # It is still posted alone, beside others that are due with it.
        scene.queue.offer([status(seq) for seq in range(21, 24)])
        scene.advance(6.0)
        await scene.tried(13)
    assert sorted(post.ids for post in scene.receiver.posts[11:]) == [["m21", "m22", "m23"], ["m4"]]
    finished = [seq for change in scene.journal.changes for seq in change.finished_callbacks]
    assert sorted(finished) == [1, 2, 3, 5, 6, 7, 8, 9, 10, 21, 22, 23]


async def test_a_refused_event_becomes_a_dead_letter_only_after_a_post_of_its_own() -> None:
    scene = Scene()
    scene.receiver.respond = lambda post: 400 if "m1" in post.ids else 200
    old = [dataclasses.replace(status(seq), attempt=20, created_at=0) for seq in (1, 2)]
    async with scene.running(*old):
        await scene.delivered()
    assert scene.receiver.sizes == [2, 1, 1]
    dead = [callback.seq for change in scene.journal.changes for callback in change.dead_callbacks]
    assert dead == [1]
    assert old[0].last_error == "HTTP 400"


async def test_events_of_a_receiver_that_was_away_for_a_day_become_dead_letters_without_more_posts() -> None:
    scene = Scene()
    scene.receiver.respond = lambda post: 503
    old = [dataclasses.replace(status(seq), attempt=9, created_at=0) for seq in range(1, 41)]
    async with scene.running(*old):
        await scene.delivered()
    assert scene.receiver.sizes == [40]
    assert [len(change.dead_callbacks) for change in scene.journal.changes] == [40]


async def test_a_receiver_that_refuses_everything_gets_one_split_in_10_seconds() -> None:
    scene = Scene(batch=20)
    scene.receiver.respond = lambda post: 500
    async with scene.running(*(status(seq) for seq in range(1, 61))):
        await scene.tried(23)
        # The first of three batches was split. Nothing was accepted since.
        assert sorted(scene.receiver.sizes) == [1] * 20 + [20] * 3
        scene.advance(9.0)
        await scene.tried(26)
        assert scene.receiver.sizes[23:] == [20, 20, 20]
        scene.advance(9.0)
        await scene.tried(49)
        assert sorted(scene.receiver.sizes[26:]) == [1] * 20 + [20] * 3
        scene.receiver.respond = lambda post: 200
        scene.advance(30.0)
        await scene.delivered()
    assert scene.receiver.sizes[49:] == [20, 20, 20]


async def test_a_full_journal_posts_the_batch_again_without_an_attempt() -> None:
    scene = Scene()
    scene.journal.error = BatcherFull("journal")
    callbacks = [status(seq) for seq in (1, 2)]
    async with scene.running(*callbacks):
        await scene.tried(1)
        assert [callback.attempt for callback in callbacks] == [0, 0]
        scene.journal.error = None
        scene.advance(1.0)
        await scene.delivered()
    assert scene.receiver.sizes == [2, 2]
    assert scene.receiver.posts[0] == scene.receiver.posts[1]


async def test_an_unexpected_error_with_a_batch_is_retried_for_each_alone() -> None:
    scene = Scene()

    def respond(post: Posted) -> int:
        if len(post.ids) > 1:
            raise LookupError("a mistake of ours")
        return 200

    scene.receiver.respond = respond
    callbacks = [status(seq) for seq in (1, 2)]
    async with scene.running(*callbacks):
        await scene.tried(1)
        assert [callback.last_error for callback in callbacks] == ["LookupError: a mistake of ours"] * 2
        scene.advance(3.0)
        await scene.delivered()
    assert scene.receiver.sizes == [2, 1, 1]


async def test_a_stop_returns_the_whole_batch_to_the_queue() -> None:
    scene = Scene()
    begun = asyncio.Event()

    async def hang(url: str, headers: Mapping[str, str], body: bytes, excerpt: bytearray | None = None) -> int:
        begun.set()
        await asyncio.Event().wait()
        return 200

    scene.receiver.post = hang  # type: ignore[method-assign]
    async with scene.running(*(status(seq) for seq in range(1, 6))):
        await begun.wait()
        assert scene.queue.ready == 0
    assert (scene.queue.ready, len(scene.queue)) == (5, 5)
    assert scene.journal.changes == []


async def test_a_changed_limit_applies_to_the_next_post() -> None:
    scene = Scene(batch=2)
    async with scene.running(status(1), status(2), status(3)):
        await scene.delivered()
        scene.target = dataclasses.replace(scene.target, batch=3)
        scene.deliveries.wake()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        scene.queue.offer([status(seq) for seq in range(4, 8)])
        await scene.delivered()
    assert scene.receiver.sizes == [2, 1, 3, 1]


async def test_metrics_count_events_and_posts() -> None:
    scene = Scene()
    events = {"result": "success", "type": "status_change", "number": ACCOUNT}
    before = counted("callback_requests_total", **events)
    posts = counted("tidings_callback_batch_size_count", number=ACCOUNT)
    batched = counted("tidings_callback_batch_size_sum", number=ACCOUNT)
    async with scene.running(*(status(seq) for seq in range(1, 31))):
        await scene.delivered()
        scene.queue.offer([status(31)])
        await scene.delivered()
    assert counted("callback_requests_total", **events) - before == 31
    assert counted("tidings_callback_batch_size_count", number=ACCOUNT) - posts == 1
    assert counted("tidings_callback_batch_size_sum", number=ACCOUNT) - batched == 30


def test_a_body_has_at_most_2_500_000_bytes() -> None:
    big = b'{"statuses":[{' + b"x" * 1_000_000 + b"}]}"
    room = Room(dataclasses.replace(status(1), body=big))
    assert room.admits(dataclasses.replace(status(2), body=big))
    assert not room.admits(dataclasses.replace(status(3), body=big))
    assert room.admits(status(4))


def test_events_about_an_account_do_not_share_a_post_with_others() -> None:
    def cloud(kind: str) -> Callback:
        return Callback(1, 0, ACCOUNT, "s", kind, ENVELOPE, 0)

    room = Room(cloud(CLOUD_STATUS))
    assert room.admits(cloud(CLOUD_ERROR))
    assert not room.admits(cloud(CLOUD_ACCOUNT))
    accounts = Room(cloud(CLOUD_ACCOUNT))
    assert accounts.admits(cloud(CLOUD_ACCOUNT))
    assert not accounts.admits(cloud(CLOUD_STATUS))
    assert Room(inbound(1)).is_closed
    assert Room(status(1, alone=True)).is_closed
    assert not Room(status(1)).admits(status(2, alone=True))


def test_the_id_of_a_batch_is_that_of_its_events() -> None:
    one = batches.join_statuses([status(1), status(2)])
    assert batches.join_statuses([status(1), status(2)]) == one
    assert len({one[0], batches.join_statuses([status(1), status(3)])[0], batches.join_statuses([status(1)])[0]}) == 3
    assert batches.join_entries([status(1), status(2)])[0] == "evt_1,evt_2"


def test_a_batch_is_split_once_in_10_seconds_unless_a_post_was_accepted() -> None:
    splits = BatchSplits()

    def refused(now: float, size: int = 9) -> bool:
        return splits.are_alone(500, size=size, was_alone=False, now=now)

    assert refused(100.0)
    assert not refused(100.5)
    # Nor does a refusal of a single status then say anything about it.
    assert not refused(101.0, size=1)
    assert not refused(109.9)
    assert refused(110.0)
    splits.accepts = True
    assert refused(110.5, size=1)
    assert refused(111.0)
    # The clock was set back.
    assert refused(50.0)


@pytest.mark.parametrize("status_", [None, 408, 425, 429, 502, 503, 504])
def test_an_unavailable_receiver_is_no_evidence_against_a_callback(status_: int | None) -> None:
    splits = BatchSplits()
    assert not splits.are_alone(status_, size=9, was_alone=False, now=1.0)
    assert not splits.are_alone(status_, size=1, was_alone=False, now=1.0)
    assert splits.are_alone(status_, size=1, was_alone=True, now=1.0)
    assert splits.accepts
