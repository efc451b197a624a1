"""Trace contexts: the network accepts them from the business's device, and from no unknown sender."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from network.settings import DeviceRateLimits
from tests import spans
from tests.network.support import Network
from tidings.wire import device

ALICE, BOB = "15550000001", "15550000002"
TRACE = "0af7651916cd43dd8448eb211c80319c"
CONTEXT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    """Yield an exporter with the spans of what the network was asked to trace."""
    with spans.exported() as exporter:
        yield exporter


def traced(exported: InMemorySpanExporter) -> list[tuple[str, object]]:
    """Return the trace id and the message id of each span."""
    return [
        (f"{span.context.trace_id:032x}", (span.attributes or {}).get("tidings.message_id"))
        for span in exported.get_finished_spans()
        if span.context
    ]


async def test_a_trace_context_received_over_http_is_ignored(network: Network, exported: InMemorySpanExporter) -> None:
    await network.start()
    await network.register(ALICE)
    headers = {"traceparent": CONTEXT}
    for method, path in (
        ("GET", "/health"),
        ("GET", "/health/ready"),
        ("GET", "/v1/nothing"),
        ("POST", "/v1/codes"),
        ("POST", "/v1/registrations"),
        ("GET", f"/v1/groups/{ALICE}"),
        ("POST", f"/v1/blobs/{ALICE}"),
    ):
        async with network.http.request(method, path, headers=headers, json={}) as response:
            await response.read()
    assert traced(exported) == []


@pytest.mark.parametrize("businesses", [frozenset(), frozenset({ALICE})], ids=["none named", "one named"])
async def test_with_configured_businesses_only_their_envelopes_are_traced(
    network: Network, exported: InMemorySpanExporter, businesses: frozenset[str]
) -> None:
    await network.start(rate_limits=DeviceRateLimits(businesses=businesses))
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    # A sender that is not logged in can send nothing.
    alice.send(BOB, ALICE, "forged", trace=CONTEXT)
    await alice.next(device.Refused)
    alice.send(ALICE, BOB, "asked", trace=CONTEXT)
    bob.ack(*await bob.deliveries(1))
    await alice.accepted(1)
    bob.send(BOB, ALICE, "answered", trace=CONTEXT)
    alice.ack(*await alice.deliveries(1))
    await bob.accepted(1)
    everybody = [(TRACE, "asked"), (TRACE, "answered")]
    assert traced(exported) == (everybody[:1] if businesses else everybody)
