"""The trace of a message stays with its job, whichever process sends it, and passes unchanged without a tracer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests import spans
from tests.coreapp.conftest import BUSINESS, Client, World
from tests.coreapp.signals import soon
from tidings.observability import tracing
from tidings.storage.business import jobs
from tidings.wire import core, device

NUMBER = "15550110000"
TRACE = "0af7651916cd43dd8448eb211c80319c"
CONTEXT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    """Yield the spans of a tracer that is installed for the test."""
    with spans.exported() as exporter:
        yield exporter


async def send(client: Client, traceparent: str) -> str:
    content = b'{"type":"text","text":{"body":"hello"}}'
    response = await client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, NUMBER, "text", content, "order-1", traceparent=traceparent)
    )
    assert isinstance(response, core.Accepted)
    return response.id


def of_trace(exported: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {s.name: s for s in exported.get_finished_spans() if s.context and f"{s.context.trace_id:032x}" == TRACE}


async def stored(world: World) -> list[str]:
    async with world.database.reading() as connection:
        return [job.traceparent for job in await jobs.list_jobs(connection, 0)]


async def test_a_job_sent_by_another_owner_stays_in_the_trace_of_its_request(
    world: World, exported: InMemorySpanExporter
) -> None:
    world.add_phones(NUMBER)
    first = await world.start()
    await world.connected(first)
    await first.client.check(NUMBER)
    world.network.away()
    message = await send(first.client, CONTEXT)
    accepted = of_trace(exported)["message.accept"]
    assert accepted.attributes is not None
    assert accepted.attributes["tidings.message_id"] == message
    (context,) = await stored(world)
    assert accepted.context is not None
    assert context == f"00-{TRACE}-{accepted.context.span_id:016x}-01"
    await first.stopped()
    await world.network.listen()
    await world.start(node="second")
    await world.sink.signals.until(lambda: world.sink.labels() == [(message, "sent")])
    await soon(lambda: of_trace(exported).keys() >= {"message.accept", "message.send", "webhook.post"})
    sent = next(frame for frame in world.network.sends if frame.id == message)
    assert sent.kind in (device.PREKEY, device.MESSAGE)
    assert tracing.is_context(sent.trace)
    assert TRACE in sent.trace
    (post,) = world.sink.posts
    assert TRACE in post.headers["traceparent"]
    assert post.headers["X-Request-ID"] == "order-1"


async def test_without_a_tracer_the_trace_context_or_request_id_still_reaches_the_network(
    world: World,
) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    traced = await send(running.client, CONTEXT)
    untraced = await send(running.client, "")
    await world.sink.signals.until(lambda: len(world.sink.taken()) == 2)
    traces = {frame.id: frame.trace for frame in world.network.sends}
    assert (traces[traced], traces[untraced]) == (CONTEXT, "order-1")
    assert all("traceparent" not in post.headers for post in world.sink.posts)


async def test_a_refused_job_ends_its_span_with_the_reason(world: World, exported: InMemorySpanExporter) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    world.network.policy = lambda frame: device.BLOCKED
    message = await send(running.client, CONTEXT)
    await world.sink.signals.until(lambda: world.sink.labels() == [(message, "failed")])
    await soon(lambda: "message.send" in of_trace(exported))
    assert of_trace(exported)["message.send"].status.description == device.BLOCKED
