"""HTTP calls, blobs, failures and logins as docs/device-api.md describes them, run against the network."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import websockets

from tests.conftest import DatabaseFactory
from tests.network.device_api_page import fences, section, values
from tests.network.support import REGISTRATION_KEY, TIMEOUT, Network
from tidings.e2ee import attachments
from tidings.observability import log
from tidings.secrets.api_key import ApiKey
from tidings.wire import device

OPERATOR_KEY = "the key of these tests"


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@pytest.fixture
async def net(database_factory: DatabaseFactory) -> AsyncIterator[Network]:
    database = await database_factory("network")
    net = Network(database.settings, "json")
    await net.start(operator_key=ApiKey(OPERATOR_KEY))
    yield net
    await net.remove()


def exchanges() -> list[tuple[str, str]]:
    blocks_ = fences("http")
    assert len(blocks_) % 2 == 0
    return list(zip(blocks_[::2], blocks_[1::2], strict=True))


def split(block: str) -> tuple[str, dict[str, str], Any]:
    """Split a block into first line, headers and JSON body."""
    head, _, body = block.partition("\n\n")
    first, *lines = head.splitlines()
    return first, dict(line.split(": ", 1) for line in lines), json.loads(body) if body.strip() else None


def without_tokens(response: Any) -> Any:
    if isinstance(response, dict):
        secret = ("token", "created_at")
        return {key: "…" if key in secret else without_tokens(value) for key, value in response.items()}
    return [without_tokens(value) for value in response] if isinstance(response, list) else response


async def test_every_http_example_returns_the_documented_response(
    net: Network, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tokens: dict[str, str] = {}
    # The page's placeholders for the group and its invite, with the values that the network returned.
    given: dict[str, str] = {}
    for request, expected in exchanges():
        for told, name in given.items():
            request = request.replace(told, name)
        first, headers, body = split(request)
        method, path = first.split()
        if "Authorization" in headers:
            bearer = headers["Authorization"].removeprefix("Bearer ")
            number = bearer.removeprefix("TOKEN-OF-")
            bearer = REGISTRATION_KEY if bearer == "REGISTRATION-KEY" else tokens.get(number, bearer)
            headers["Authorization"] = f"Bearer {bearer}"
            if bearer == "Apikey OPERATOR-KEY":
                headers["Authorization"] = f"Apikey {OPERATOR_KEY}"
        if body and "code" in body and path == "/v1/registrations":
            body["code"] = next(r.__dict__["code"] for r in caplog.records if r.message == "code.issued")
        data = json.dumps(body).encode() if body is not None else None
        async with net.http.request(method, path, data=data, headers=headers) as response:
            status, expected_headers, expected_body = split(expected)
            assert f"HTTP/1.1 {response.status} {response.reason}" == status, (first, await response.text())
            assert set(expected_headers) <= set(response.headers)
            if "Retry-After" in expected_headers:
                assert 25 <= int(response.headers["Retry-After"]) <= int(expected_headers["Retry-After"])
            if expected_body is None:
                continue
            got = await response.json()
            for key in ("id", "code"):
                if key in expected_body:
                    given.setdefault(expected_body[key], got[key])
            text = json.dumps(got)
            for told, name in given.items():
                text = text.replace(name, told)
            got = json.loads(text)
        assert without_tokens(got) == without_tokens(expected_body), first
        for entry in got.get("registrations", [got]):
            if "token" in entry:
                tokens[entry["number"]] = entry["token"]
                assert re.fullmatch(r"[\w-]{43}", entry["token"], re.ASCII)
    assert len(tokens) == 3


async def test_the_blob_example_downloads_unchanged_and_decrypts_with_its_pointer(net: Network) -> None:
    await net.register("15550100001")
    told = values("attachment")
    authorization = {"Authorization": f"Bearer {net.tokens['15550100001']}"}
    async with net.http.post("/v1/blobs/15550100001", data=told["blob"], headers=authorization) as response:
        assert response.status == 201
        got = await response.json()
    expected = json.loads(re.findall(r"^\{.*\}$", section("POST and GET /v1/blobs/{number}"), re.MULTILINE)[0])
    assert list(got) == list(expected)
    assert (got["size"], len(got["id"])) == (expected["size"], len(expected["id"]))

    (pointer,) = [json.loads(block)["document"] for block in fences("json", section("Pointers"))]
    assert pointer["blob"] == expected["id"]
    assert base64.b64decode(pointer["key"]) == told["attachment key"]
    assert base64.b64decode(pointer["digest"]) == told["digest"]
    file = attachments.decrypt(told["attachment key"], told["digest"], told["blob"])
    assert (file, len(file)) == (told["file"], pointer["size"])
    assert hashlib.sha256(file).hexdigest() == pointer["sha256"]
    assert len(told["blob"]) == attachments.blob_size(len(file)) == (len(file) // 16 + 1) * 16 + 48


@pytest.mark.parametrize("pieces", [[b'{"t":"ping","x":"\xff"}'], [b'{"t":"ping","x":"\xe2', b'\x82"}']])
@pytest.mark.parametrize("subprotocol", ["tidings.v1.json", "tidings.v1.msgpack"])
async def test_text_that_is_not_utf_8_ends_with_the_documented_frame_and_no_traceback(
    net: Network, caplog: pytest.LogCaptureFixture, subprotocol: str, pieces: list[bytes]
) -> None:
    host, port = net.addresses.http
    async with websockets.connect(
        f"ws://{host}:{port}/v1/connect", subprotocols=[websockets.Subprotocol(subprotocol)]
    ) as socket:
        # The bytes are sent as a text frame when the page requires one.
        await socket.send(pieces[0] if len(pieces) == 1 else pieces, text=True)
        async with asyncio.timeout(TIMEOUT):
            data = await socket.recv()
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await socket.recv()
    decode: Any = msgspec.json.decode if isinstance(data, str) else msgspec.msgpack.decode
    assert decode(data) == {"t": "closing", "reason": "bad_frame", "detail": "bad frame: text that is not UTF-8"}
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1007, "bad_frame")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_the_log_line_with_the_code_is_as_documented(net: Network, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with net.http.post("/v1/codes", json={"number": "15550100001"}) as response:
        assert response.status == 202
    (record,) = [record for record in caplog.records if record.message == "code.issued"]
    record.code, record.created = "482913", 1767268800.1234
    told_text, told_json = fences("log")[0].splitlines()
    told_time, _, rest = told_text.partition(" ")
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", told_time)
    assert log.TextFormatter("network").format(record).partition(" ")[2] == rest
    assert json.loads(log.JSONFormatter("network").format(record)) == json.loads(told_json)


async def test_requests_before_ok_fail_and_skipped_deliveries_repeat_at_next_login(
    net: Network,
) -> None:
    await net.register("15550100001", "15550100002")
    ann, ben = await net.connect(transport="json"), await net.connect("15550100002", transport="json")
    token = net.tokens["15550100001"]
    ann.link.send(device.Send(1, "15550100001", "15550100002", "a", device.MESSAGE, b"x"))
    ann.link.send(device.Fetch(2, "15550100001", ["15550100002"]))
    ann.link.send(device.Login(3, "15550100001", token))
    assert (await ann.next(device.Refused)).reason == device.INVALID
    assert (await ann.next(device.Failed)).reason == device.UNAUTHORIZED
    assert (await ann.next(device.Ok)).n == 3

    for id_ in ("one", "two"):
        ben.send("15550100002", "15550100001", id_)
    skipped, taken = await ann.deliveries(2)
    ann.ack(taken)
    await ann.nothing_came()
    again = await net.connect("15550100001", transport="json")
    assert [frame.id for frame in await again.deliveries(1)] == [skipped.id]
