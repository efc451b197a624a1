"""Requests that are traced, and their trace ids: an unauthenticated client cannot decide what is sampled."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from tests import spans
from tests.webapp.conftest import Served

TRACE = "0af7651916cd43dd8448eb211c80319c"
CONTEXT = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture
def exported() -> Iterator[InMemorySpanExporter]:
    """Yield the spans of a tracer that samples what the caller has sampled, and nothing else."""
    with spans.exported(sampler=ParentBased(ALWAYS_OFF)) as exporter:
        yield exporter


def traces(exported: InMemorySpanExporter) -> list[str]:
    return [f"{span.context.trace_id:032x}" for span in exported.get_finished_spans() if span.context]


async def test_only_authenticated_clients_continue_their_trace(
    served_api: Served, exported: InMemorySpanExporter
) -> None:
    path, token = "/v1/settings/application", served_api.http.headers["Authorization"]
    async with httpx.AsyncClient(base_url=served_api.http.base_url) as client:
        for given in ({}, {"Authorization": "Bearer x"}):
            assert (await client.get(path, headers={**CONTEXT, **given})).status_code == 401
        assert traces(exported) == []
        assert (await client.get(path, headers={**CONTEXT, "Authorization": token})).status_code == 200
    assert traces(exported) == [TRACE]


@pytest.mark.parametrize("path", ["/", "/metrics", "/v1/metrics", "/v1/health", "/health/live", "/health/ready"])
async def test_monitoring_endpoints_are_not_traced(
    served_api: Served, exported: InMemorySpanExporter, path: str
) -> None:
    for _ in range(2):
        await served_api.http.get(path, headers=CONTEXT)
    assert traces(exported) == []
