"""Hot routes: served before the framework and the middleware of the metrics, and counted as the other routes are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import FastAPI

from tests.webapp import raw
from tests.webapp.conftest import Serve, Served, body, code
from tests.webapp.test_health import values

# Of the number 15550000000, in every installation.
CLOUD = "/v25.0/1393060602093303/messages"
TEXT = {"messaging_product": "whatsapp", "to": "15550110001", "type": "text", "text": {"body": "Hi"}}
CALLS: list[tuple[str, str, Any, int]] = [
    ("/v1/messages", "POST_v1_messages", body("message_text"), 201),
    ("/v1/contacts", "POST_v1_contacts", {"blocking": "wait", "contacts": ["+15550110001"]}, 200),
    (CLOUD, "POST_phone-number-id_messages", TEXT, 200),
]


@pytest.fixture
async def api(serve: Serve) -> Served:
    served = await serve(over_socket=True, cloud_api=True)
    await served.log_in()
    return served


@pytest.mark.parametrize(("path", "sent", "status"), [(path, sent, status) for path, _, sent, status in CALLS])
async def test_a_request_to_a_hot_route_does_not_enter_the_framework(
    api: Served, monkeypatch: pytest.MonkeyPatch, path: str, sent: object, status: int
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("the framework was entered")

    monkeypatch.setattr(FastAPI, "__call__", broken)
    assert (await api.http.post(path, json=sent)).status_code == status
    assert code(await api.http.get("/v1/health")) == (500, 1000)


@pytest.mark.parametrize(("path", "name", "sent", "status"), CALLS)
async def test_each_request_to_a_hot_route_is_counted_once(
    api: Served, path: str, name: str, sent: object, status: int
) -> None:
    route = "/{phone-number-id}/messages" if path == CLOUD else path
    before = await values(api)
    assert (await api.http.post(path, json=sent)).status_code == status
    assert (await api.http.post(path, content=b"{")).status_code == 400
    after = await values(api)
    changed = {line: after[line] - before.get(line, 0) for line in after if after[line] != before.get(line, 0)}
    counted = {line: change for line, change in changed.items() if "_count{" in line and "POST" in line}
    latency = 'http_request_duration_seconds_count{"handler": "%s", "method": "POST", "status": "%s"}'
    assert {counted.pop(latency % (route, "2xx")), counted.pop(latency % (route, "4xx"))} == {1}
    summaries = [line for line in counted if line.startswith("api_requests_duration_ms_count")]
    assert len(summaries) == 2
    assert all(f'"method": "{name}"' in line and counted[line] == 1 for line in summaries)
    assert any(f'"result": "{status}"' in line for line in summaries)
    assert any('"result": "400"' in line for line in summaries)


async def test_a_body_in_two_parts_is_read_until_its_end(api: Served) -> None:
    content = b'{"to":"15550110001","type":"text","text":{"body":"' + b"x" * 100 + b'"}}'
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    head = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: {api.http.headers['Authorization']}\r\n"
    writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content[:20])
    # The response to another request shows that the first part has arrived.
    assert (await raw.call(api, "POST", "/v1/messages", body("message_text")))[0] == 201
    writer.write(content[20:])
    assert (await reader.readline()).split()[1] == b"201"
    writer.close()


async def test_an_unexpected_error_of_another_route_is_handled_by_the_outermost_layer(
    api: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webapp.api.stats.service.Stats.app", None)
    response = await api.http.get("/v1/stats/app")
    assert code(response) == (500, 1000)
