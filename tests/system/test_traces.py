"""One trace over real processes: from the request of a business to the post at its webhook, exported by OTLP."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from harness.installation import Installation
from tests.system.webhook import Webhook
from tests.web_server import serving

pytestmark = pytest.mark.whole_system

READER = "15550110001"
SECONDS = 30.0
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TEXT = "a canary that no span may show"


class Receiver:
    """OTLP/HTTP receiver. It keeps every span with its service, and everything that was sent, as bytes."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []
        self.raw = b""
        self.url = ""
        self._news = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        content = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        self.raw += content
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
            service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
            self.spans += [(service, span) for scope in resource.scope_spans for span in scope.spans]
        self._news.set()
        return web.Response(content_type="application/x-protobuf")

    async def until(self, *names: str) -> dict[str, tuple[str, Any]]:
        """Wait for one span of each name in the trace, and return them with their services."""
        async with asyncio.timeout(SECONDS):
            while True:
                found = {span.name: (service, span) for service, span in self.spans if span.trace_id.hex() == TRACE}
                if found.keys() >= set(names):
                    return found
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    async with serving(app) as made.url:
        yield made


async def test_one_trace_spans_request_job_network_and_webhook_without_plaintext(
    installation: Installation, webhook: tuple[Webhook, str], receiver: Receiver
) -> None:
    sink, url = webhook
    tracing = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}
    await installation.start(extra={**tracing, "TIDINGS_ROBOTS_KINDS": "11", "TIDINGS_LOG_STYLE": "json"})
    business = await installation.business()
    await business.set_webhook(url)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{installation.api_port}") as client:
        authorization = business.request("GET", "/", b"").split(b"Authorization: ")[1].split(b"\r\n")[0].decode()
        response = await client.post(
            "/v1/messages",
            headers={
                "Authorization": authorization,
                "traceparent": f"00-{TRACE}-{PARENT}-01",
                "X-Request-ID": "order-4711",
            },
            json={"to": READER, "type": "text", "text": {"body": TEXT}},
        )
    assert response.status_code == 201, response.text
    message = response.json()["messages"][0]["id"]
    await sink.until(lambda body: any(entry["id"] == message for entry in body.get("statuses", ())))
    found = await receiver.until(
        "POST /v1/messages", "message.accept", "message.send", "envelope.route", "webhook.post"
    )
    services = {name: service for name, (service, _) in found.items()}
    assert services == {
        "POST /v1/messages": "tidings-webapp",
        "message.accept": "tidings-coreapp",
        "message.send": "tidings-coreapp",
        "envelope.route": "tidings-network",
        "webhook.post": "tidings-coreapp",
    }
    spans = {name: span for name, (_, span) in found.items()}
    assert spans["POST /v1/messages"].parent_span_id.hex() == PARENT
    assert spans["message.accept"].parent_span_id == spans["POST /v1/messages"].span_id
    assert spans["message.send"].parent_span_id == spans["message.accept"].span_id
    assert spans["envelope.route"].parent_span_id == spans["message.send"].span_id
    assert spans["webhook.post"].parent_span_id == spans["message.accept"].span_id
    assert TEXT.encode() not in receiver.raw
    assert READER.encode() not in receiver.raw
    assert b"order-4711" in receiver.raw
