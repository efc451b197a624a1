"""The harness itself: its client and its sink count correctly."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest

from coreapp import signature
from coreapp.webhook import bodies, inbound
from harness import client, measure
from harness.client import Business, UnexpectedResponse
from harness.http_connection import NoResponse
from harness.sink import Record
from harness.sink_process import SinkProcess
from harness.webhook_body import Verifier
from tidings.storage.business.messages import Status
from tidings.wire.cloud import wamid

SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # the example of the specification


@pytest.fixture
async def sink(tmp_path: Path) -> AsyncIterator[SinkProcess]:
    async with SinkProcess(tmp_path, SECRET, verify_every=1) as running:
        yield running


async def post(sink: SinkProcess, event_id: str, body: bytes, *, key: bytes | None = None) -> int:
    """Post a callback as the Coreapp does."""
    headers = signature.headers([key or signature.secret_bytes(SECRET)], event_id, 1_700_000_000, body)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request = f"POST /callback HTTP/1.1\r\nHost: sink\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    connection = await Business(sink.port).connect()
    status, _ = await connection.request(request)
    connection.close()
    return status


async def post_all(sink: SinkProcess, message_id: str) -> None:
    for status in (Status.SENT, Status.DELIVERED, Status.READ):
        body = bodies.status(message_id, "15550110001", status, 1_700_000_000)
        assert await post(sink, f"{message_id}-{status.name}", body) == 200


async def test_the_sink_reports_when_messages_have_all_three_statuses(sink: SinkProcess) -> None:
    waiting = asyncio.create_task(sink.wait_complete(2))
    await post_all(sink, "a")
    await post(sink, "b-1", bodies.status("b", "15550110001", Status.SENT, 1_700_000_000))
    assert (await sink.counts()).complete == 1
    assert not waiting.done()
    await post_all(sink, "b")
    counts = await waiting
    assert (counts.complete, counts.requests, counts.verified, counts.bad_signatures) == (2, 7, 7, 0)
    records = await sink.take()
    assert [record.event_id for record in records] == [
        *("a-SENT", "a-DELIVERED", "a-READ"),
        *("b-1", "b-SENT", "b-DELIVERED", "b-READ"),
    ]
    assert await sink.take() == []


async def test_the_sink_counts_an_invalid_signature(sink: SinkProcess) -> None:
    await post(sink, "a", bodies.status("a", "1", Status.SENT, 1), key=b"x" * 24)
    assert (await sink.counts()).bad_signatures == 1


async def test_the_sink_records_each_status_of_a_batch_under_its_own_event_id(sink: SinkProcess) -> None:
    several = bodies.joined([bodies.status(name, "1", Status.SENT, 1) for name in "ab"], ["evt_1", "evt_2"])
    await post(sink, "batch_1", several)
    await post(sink, "evt_3", bodies.status("a", "1", Status.READ, 1))
    records = [(record.event_id, record.message_id, record.status) for record in await sink.take()]
    assert records == [("evt_1", "a", "sent"), ("evt_2", "b", "sent"), ("evt_3", "a", "read")]
    counts = await sink.counts()
    assert (counts.batched, counts.verified, counts.bad_signatures) == (2, 2, 0)


async def test_requests_refused_by_the_sink_do_not_count(sink: SinkProcess) -> None:
    await sink.respond_with(503)
    assert await post(sink, "a", bodies.status("a", "1", Status.SENT, 1)) == 503
    assert (await sink.counts()).statuses == 0
    assert [record.response_status for record in await sink.take()] == [503]


async def test_an_inbound_message_is_recorded_with_its_text(sink: SinkProcess) -> None:
    content = {"type": "text", "text": {"body": "hello \u00fc"}}
    await post(sink, "in", bodies.inbound("m", "15550140001", 1, inbound.read(json.dumps(content).encode())))
    (record,) = await sink.take()
    assert (record.status, record.message_id, record.sender, record.text) == ("inbound", "m", "15550140001", "hello ü")


async def post_cloud(sink: SinkProcess, body: bytes, signature_of: bytes) -> None:
    signed = hmac.new(b"0123456789abcdef", signature_of, hashlib.sha256).hexdigest()
    request = (
        f"POST /callback HTTP/1.1\r\nHost: sink\r\nwebhook-id: e1\r\nX-Hub-Signature-256: sha256={signed}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    connection = await Business(sink.port).connect()
    status, _ = await connection.request(request.encode() + body)
    connection.close()
    assert status == 200


async def test_the_sink_reads_and_verifies_events_of_the_cloud_api(sink: SinkProcess) -> None:
    await sink.expect_cloud("0123456789abcdef")
    status = {"id": wamid.encode("gBEG0VbZZDBzMFefXNpbOZj5qac", "15550110001"), "status": "sent"}
    body = json.dumps({"entry": [{"changes": [{"value": {"statuses": [status]}, "field": "messages"}]}]}).encode()
    await post_cloud(sink, body, body)
    (record,) = await sink.take()
    assert (record.event_id, record.message_id, record.status) == ("e1", "gBEG0VbZZDBzMFefXNpbOZj5qac", "sent")
    await post_cloud(sink, body, b"another body")
    await post_cloud(sink, b"{}", b"{}")
    await sink.take()
    counts = await sink.counts()
    assert (counts.verified, counts.bad_signatures, counts.unreadable) == (3, 1, 1)


async def test_the_sink_responds_to_the_verification_of_a_callback(sink: SinkProcess) -> None:
    connection = await Business(sink.port).connect()
    for challenge in (b"1158201444", b"2"):
        query = b"hub.mode=subscribe&hub.challenge=%s&hub.verify_token=harness" % challenge
        assert await connection.request(b"GET /callback?%s HTTP/1.1\r\nHost: sink\r\n\r\n" % query) == (200, challenge)
    connection.close()


def test_the_verifier_agrees_with_the_specification() -> None:
    headers = {
        b"webhook-id": b"msg_p5jXN8AQM9LWM0D4loKWxJek",
        b"webhook-timestamp": b"1614265330",
        b"webhook-signature": b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    assert Verifier(SECRET).is_valid(headers, b'{"test": 2432232314}')
    assert not Verifier(SECRET).is_valid(headers, b'{"test": 2432232315}')


class FakeServer(asyncio.Protocol):
    """Server that responds to each message with the next given response. `b""` closes the connection instead."""

    responses: ClassVar[list[bytes]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        response = self.responses.pop(0)
        if response:
            self.transport.write(response)
        else:
            self.transport.close()


def http(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


@pytest.fixture
async def server() -> AsyncIterator[Business]:
    listening = await asyncio.get_running_loop().create_server(FakeServer, "127.0.0.1", 0)
    yield Business(listening.sockets[0].getsockname()[1])
    FakeServer.responses = []
    listening.close()


async def test_an_unanswered_request_is_recorded_and_the_next_uses_a_new_connection(server: Business) -> None:
    FakeServer.responses = [http(201, b'{"messages":[{"id":"one"}]}'), b"", http(503, b"{}")]
    load = await client.open_loop(server, [("1", "a"), ("2", "b"), ("3", "c")], rate=1000, limit=1)
    found = [(sent.request.number, sent.request.status, sent.request.message_id) for sent in load.sent]
    assert found == [("1", 201, "one"), ("2", None, ""), ("3", 503, "")]


async def test_a_response_received_in_pieces_is_one_response(server: Business) -> None:
    connection = await server.connect()
    pending = asyncio.create_task(connection.request(b"x"))
    FakeServer.responses = [b"HTTP/1.1 200 OK\r\nContent-Le"]
    await asyncio.wait([pending], timeout=0.05)
    connection.data_received(b"ngth: 5\r\n\r\nhel")
    connection.data_received(b"lo")
    assert await pending == (200, b"hello")
    connection.close()
    with pytest.raises(NoResponse):
        await connection.request(b"y")


async def test_a_measured_run_ends_at_the_first_error(server: Business) -> None:
    FakeServer.responses = [http(201, b'{"messages":[{"id":"one"}]}'), http(429, b"{}")]
    with pytest.raises(ExceptionGroup) as caught:
        await client.closed_loop(server, [client.text_message("1", "a"), client.text_message("2", "b")], 1)
    assert caught.group_contains(UnexpectedResponse, match="429")


async def test_a_patient_client_retries_refused_requests_and_counts_bytes(
    server: Business, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "RETRY_SECONDS", 0.0)
    FakeServer.responses = [http(429, b"{}"), http(503, b"{}"), http(201, b'{"messages":[{"id":"one"}]}')]
    load = await client.closed_loop(server, [client.text_message("1", "a")], 1, patient=True)
    assert [sent.request.message_id for sent in load.sent] == ["one"]
    assert load.refused == {429: 1, 503: 1}
    assert load.received == sum(
        map(len, (http(429, b"{}"), http(503, b"{}"), http(201, b'{"messages":[{"id":"one"}]}')))
    )
    assert load.written > load.received


async def test_the_file_of_a_message_is_uploaded_first(server: Business) -> None:
    FakeServer.responses = [http(200, b'{"media":[{"id":"f1"}]}'), http(201, b'{"messages":[{"id":"one"}]}')]
    body = b'{"document":{"id":"%s"}}' % client.FILE_ID
    load = await client.closed_loop(server, [client.Message("1", body, "d", b"content", "application/pdf")], 1)
    assert [sent.request.message_id for sent in load.sent] == ["one"]
    FakeServer.responses = [http(503, b"{}")]
    with pytest.raises(ExceptionGroup):
        await client.closed_loop(server, [client.Message("1", body, "d", b"content", "application/pdf")], 1)
    assert FakeServer.responses == []


async def test_a_refused_connection_is_an_unanswered_request() -> None:
    load = await client.open_loop(Business(1), [("1", "a")], rate=1000)
    assert [sent.request.status for sent in load.sent] == [None]


def test_rates_count_messages_with_all_three_statuses() -> None:
    records = []
    for second in range(100):
        for status in ("sent", "delivered", "read"):
            records.append(Record(1000.0 + second, f"{second}-{status}", f"m{second}", status, 200))
    records.append(Record(5000.0, "late", "other", "sent", 200))
    found = measure.rates(999.0, records)
    assert found.seconds == 100.0
    assert found.whole == pytest.approx(1.0)
    assert found.steady == pytest.approx(1.0)


def test_percentiles_use_the_nearest_rank() -> None:
    assert measure.percentiles([float(n) for n in range(1, 101)]) == {f"p{n}": n for n in (50, 90, 95, 99)} | {
        "max": 100
    }
    assert set(measure.percentiles([3.0]).values()) == {3.0}


def test_a_metric_is_summed_over_its_labels() -> None:
    text = (
        '# HELP x y\ncommits_total{family="a",k="1"} 2.0\ncommits_total{family="b"} 3.0\ncommits_totals 9\nplain 4.0\n'
    )
    assert measure.metric(text, "commits_total") == 5.0
    assert measure.metric(text, "commits_total", 'family="a"') == 2.0
    assert measure.metric(text, "plain") == 4.0
    assert measure.metric(text, "absent") == 0.0
