"""Benchmark of the Cloud API behind: its bare server, and its rate of a queue that drains."""

from __future__ import annotations

import msgspec
import pytest

from benchmarks.cloud_upstream import drain_rate
from benchmarks.rig.run import RunFailed
from harness.graph_sink import GraphSink


def post(sink: GraphSink, message_id: str) -> int:
    """Return the HTTP status of the response to a message."""
    status, content = sink.take(msgspec.json.encode({"to": "1666", "biz_opaque_callback_data": message_id}))
    if status == 200:
        assert msgspec.json.decode(content)["messages"] == [{"id": f"wamid.{message_id}"}]
    else:
        assert msgspec.json.decode(content)["error"]["code"] == 130429
    return status


async def test_the_server_counts_messages_that_are_posted_again() -> None:
    sink = GraphSink(0.0, 0.0)
    assert [post(sink, message_id) for message_id in ("a", "b", "a")] == [200, 200, 200]
    found = await sink.respond({"do": "take"})
    assert (list(found["times"]), found["repeated"], found["throttled"]) == (["a", "b"], 1, 0)


async def test_the_server_refuses_more_than_a_second_of_its_rate_at_once() -> None:
    sink = GraphSink(0.0, 80.0)
    statuses = [post(sink, str(number)) for number in range(160)]
    assert statuses[:80] == [200] * 80
    # A second would admit 80 more.
    assert statuses.count(400) > 40
    assert (await sink.respond({"do": "take"}))["throttled"] == statuses.count(400)


def test_the_rate_of_a_queue_counts_from_the_end_of_the_load() -> None:
    times = [0.0, 0.1, 0.2, *(10.0 + n / 80 for n in range(161))]
    assert drain_rate(times, 5.0) == pytest.approx(80.0)
    with pytest.raises(RunFailed):
        drain_rate([1.0, 2.0], 5.0)
