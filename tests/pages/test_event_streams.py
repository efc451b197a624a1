"""Event streams: bounded, repeating what a page missed, and kept alive."""

from __future__ import annotations

import asyncio

import pytest

from tidings.pages.event_streams import EventStreams


async def test_a_stream_sends_the_events_of_its_topics_alone() -> None:
    streams = EventStreams()
    stream = streams.open("me", ["a"])
    assert stream is not None
    chunks = stream.chunks()
    assert await anext(chunks) == b"retry: 2000\n\n"
    streams.publish("b", "changed")
    streams.publish("a", "changed", "1")
    found = await anext(chunks)
    assert found.count(b"event: changed") == 1
    assert found.startswith(b"id: ")
    assert b"-2\n" in found


async def test_a_page_that_connects_again_gets_what_it_missed() -> None:
    streams = EventStreams()
    streams.publish("a", "changed")
    first = streams.open("me", ["a"])
    assert first is not None
    chunks = first.chunks()
    await anext(chunks)
    streams.publish("a", "changed")
    last = (await anext(chunks)).decode().partition("\n")[0].removeprefix("id: ")
    first.close()
    streams.publish("a", "later")
    again = streams.open("me", ["a"], last)
    assert again is not None
    chunks = again.chunks()
    await anext(chunks)
    assert b"event: later" in await anext(chunks)


async def test_the_streams_of_one_owner_are_ended() -> None:
    streams = EventStreams()
    mine, others = streams.open("me", ["a"]), streams.open("you", ["a"])
    assert mine is not None
    assert others is not None
    chunks, more = mine.chunks(), others.chunks()
    await anext(chunks)
    await anext(more)
    streams.end("me")
    with pytest.raises(StopAsyncIteration):
        await anext(chunks)
    assert streams.count == 1
    streams.publish("a", "changed")
    assert b"event: changed" in await anext(more)


async def test_a_page_that_missed_too_much_or_another_process_loads_everything() -> None:
    streams = EventStreams()
    for _ in range(300):
        streams.publish("a", "changed")
    incarnation = streams._incarnation
    for last_id, reset in (
        (f"{incarnation}-10", True),
        (f"{incarnation}-299", False),
        ("00000000-299", True),
        ("x", True),
    ):
        stream = streams.open("me", ["a"], last_id)
        assert stream is not None
        chunks = stream.chunks()
        await anext(chunks)
        assert (b"event: reset" in await anext(chunks)) == reset, last_id
        stream.close()


async def test_50_streams_of_all_and_8_of_one_owner_are_open() -> None:
    streams = EventStreams()
    of_one = [streams.open("one", ["a"]) for _ in range(9)]
    assert [stream is not None for stream in of_one] == [True] * 8 + [False]
    of_all = [streams.open(f"owner {n // 8}", ["a"]) for n in range(50)]
    assert sum(stream is not None for stream in of_all) == 42
    assert streams.count == 50
    assert of_one[0] is not None
    of_one[0].close()
    of_one[0].close()
    assert streams.count == 49
    assert streams.open("one", ["a"]) is not None


async def test_a_silent_stream_is_kept_alive_by_a_comment_and_a_beat() -> None:
    streams = EventStreams(keep_alive=0.01)
    stream = streams.open("me", ["a"])
    assert stream is not None
    chunks = stream.chunks()
    await anext(chunks)
    assert await anext(chunks) == b": keep-alive\nevent: beat\ndata: 1\n\n"


def test_the_keep_alive_is_sent_every_15_seconds() -> None:
    assert EventStreams()._keep_alive == 15.0


async def test_streams_end_with_the_process() -> None:
    streams = EventStreams()
    stream = streams.open("me", ["a"])
    assert stream is not None
    reading = asyncio.create_task(_read_all(stream.chunks()))
    await asyncio.sleep(0)
    streams.close()
    async with asyncio.timeout(10):
        await reading
    assert streams.open("me", ["a"]) is None


async def _read_all(chunks: object) -> None:
    async for _ in chunks:  # type: ignore[attr-defined]
        pass
