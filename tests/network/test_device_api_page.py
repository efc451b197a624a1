"""docs/device-api.md tells the truth about frames, figures, paths, answers and cryptography, and leaves nothing out."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import re
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import websockets
from starlette.routing import Route, WebSocketRoute

import network.app
from network import http, routing
from network.blobs import store
from network.blobs.routes import SILENCE_SECONDS, TRANSFER_SECONDS, BlobEndpoints
from network.connections import guest, pace, places, sends, session, websocket
from network.connections.connections import Connections
from network.delay import Delay
from network.devices import blocks, codes, keys, rations
from network.devices.routes import MAX_BULK_BODY, MAX_CODE_BODY, DeviceEndpoints
from network.directory import bundles, lookups, refills
from network.groups import chats, copies, rules
from network.groups.routes import GroupEndpoints
from network.operator import OperatorEndpoints
from network.settings import Allowances, Blobs, Limits, Quotas, Settings
from tests.conftest import DatabaseFactory
from tests.network.support import PATIENCE, REGISTRATION_KEY, Network
from tidings import e2ee
from tidings.e2ee import attachments, chains, curve, kdf, kem, pq_ratchet, ratchet, record, session_setup
from tidings.runtime import http1, log
from tidings.runtime.api_key import NO_KEY, ApiKey
from tidings.runtime.settings import StrangerSettings
from tidings.wire import addresses, connection, device, groups, registration, unfinished
from tidings.wire.groups import MAX_PARTICIPANTS, MAX_SUBJECT

PAGE = Path(__file__).parents[2] / "docs" / "device-api.md"
TEXT = PAGE.read_text(encoding="utf-8")

FROM_DEVICE = {frame.__struct_config__.tag: frame for frame in get_args(device.FromDevice)}
FROM_NETWORK = {frame.__struct_config__.tag: frame for frame in get_args(device.FromNetwork)}
ALL_FRAMES = {**FROM_DEVICE, **FROM_NETWORK}


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@pytest.fixture
async def net(database_factory: DatabaseFactory) -> AsyncIterator[Network]:
    database = await database_factory("network")
    net = Network(database.settings, "json")
    await net.start(api_key=ApiKey(OPERATOR_KEY))
    yield net
    await net.remove()


OPERATOR_KEY = "the key of these tests"

# Reading the page.


def section(title: str) -> str:
    """The text under a heading, up to the next heading of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", TEXT, re.MULTILINE)
    assert found, f"the page has no section {title!r}"
    end = re.search(rf"^#{{1,{len(found[1])}}} ", TEXT[found.end() :], re.MULTILINE)
    return TEXT[found.end() : found.end() + end.start() if end else len(TEXT)]


def fences(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def example_frames(text: str = TEXT) -> list[tuple[str, str]]:
    """(arrow, JSON) of each frame."""
    return [(arrow, body) for arrow, body in re.findall(r"^([→←]) (.*)$", text, re.MULTILINE)]


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of the table whose first column has this heading."""
    found = re.search(rf"^\| {heading} \|.*\n\|[-| ]+\|\n((?:\|.*\n)*)", text, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found[1].splitlines()] if found else []


def hex_dump(text: str) -> bytes:
    (dump,) = fences("hex", text)
    return bytes.fromhex("".join(re.split(r" {2,}", line)[0] for line in dump.splitlines()))


def values(block: str) -> dict[str, bytes]:
    joined = re.sub(r"\n +", "", block)
    return {name: bytes.fromhex(text) for name, text in re.findall(r"^(.+?) = *([0-9a-f]+)$", joined, re.MULTILINE)}


# Frames.

TYPES = {
    "int": "integer",
    "Number": "integer",
    "Numbers": "list of integers",
    "int | None": "integer",
    "str": "string",
    "bytes": "bytes",
    "bytes | None": "bytes",
    "list[int]": "list of integers",
    "list[str]": "list of strings",
    "list[Bundle]": "list of bundles",
}


def check_fields(kind: type[msgspec.Struct], rows: list[list[str]]) -> None:
    described = {row[0].strip("`"): row[1] for row in rows}
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    assert list(described) == list(fields)
    for name, field in fields.items():
        told, _, default = described[name].partition(", default ")
        assert told == TYPES[kind.__annotations__[field.name]], f"{kind.__name__}.{name}"
        assert bool(default) is not field.required, f"{kind.__name__}.{name}"


@pytest.mark.parametrize("tag", ALL_FRAMES)
def test_every_frame_has_its_fields_types_defaults_and_an_example(tag: str) -> None:
    text = section(f"`{tag}`")
    check_fields(ALL_FRAMES[tag], table(text, "field"))
    arrow = "→" if tag in FROM_DEVICE else "←"
    assert any(found == arrow and json.loads(body)["t"] == tag for found, body in example_frames(text))


def test_a_bundle_is_described() -> None:
    check_fields(device.Bundle, table(section("`bundles`"), "bundle field"))


@pytest.mark.parametrize(("arrow", "body"), sorted(set(example_frames())))
def test_every_example_is_a_frame_that_comes_out_as_it_went_in(arrow: str, body: str) -> None:
    frames: Any = device.FromDevice if arrow == "→" else device.FromNetwork
    frame = msgspec.json.decode(body, type=frames)
    assert json.loads(msgspec.json.encode(frame)) == json.loads(body)


def test_every_kind_of_envelope_and_every_reason_is_explained() -> None:
    constants = {value for name, value in vars(device).items() if name.isupper() and isinstance(value, str)}
    kinds = {row[0].strip("`") for row in table(section("Kinds of envelope"), "`kind`")}
    reasons = {row[0].strip("`") for row in table(section("Reasons"), "reason")}
    assert kinds | reasons == constants
    notices = {device.EXPIRED, device.IDENTITY, device.GROUP_CHANGED, device.ANNOUNCEMENT}
    of_devices = {device.PREKEY, device.MESSAGE, device.GROUP, device.DELIVERED, device.READ, device.RETRY}
    assert kinds == of_devices | notices


def test_the_messagepack_example_is_the_frame_beside_it() -> None:
    text = section("Encoding of frames")
    ((_, body),) = example_frames(text)
    data = hex_dump(text)
    frame = msgspec.msgpack.decode(data, type=device.FromDevice)
    assert frame == msgspec.json.decode(body, type=device.FromDevice)
    assert msgspec.msgpack.encode(frame) == data
    assert f"`{len(data).to_bytes(4, 'big').hex(' ')}` would stand before it" in text


def test_the_tcp_example_is_its_length_and_the_frame_beside_it() -> None:
    text = section("TCP")
    ((_, body),) = example_frames(text)
    data = hex_dump(text)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert msgspec.msgpack.decode(data[4:], type=device.FromDevice) == msgspec.json.decode(body, type=device.FromDevice)


def test_the_slots_of_the_example_are_those_of_the_code_and_the_partitions_too() -> None:
    text = section("Partitions")
    (numbers,) = re.findall(r"The numbers (\d+) and (\d+) are in the slots", text)
    slots = [addresses.slot_of(number) for number in numbers]
    assert f"are in the slots {slots[0]} and {slots[1]}: of two partitions 0 has the one and 1 the other" in text
    assert [slot % 2 for slot in slots] == [0, 1]
    ((_, body),) = example_frames(text)
    login = msgspec.json.decode(body, type=device.FromDevice)
    assert device.Partition(login.partition, login.partitions, login.layout).is_valid
    assert f"modulo {addresses.SLOTS}" in text
    assert f"{', '.join(str(count) for count in addresses.COUNTS[:-1])} or {addresses.COUNTS[-1]}" in section("`login`")


# Limits and reasons in figures.


def limit(name: str) -> str:
    rows = {row[0].removesuffix(" ¹"): row[1] for row in table(section("Limits"), "what")}
    return rows[name]


def figures(text: str) -> list[int]:
    return [int(figure.replace(",", "")) for figure in re.findall(r"\d[\d,]*", text)]


def test_the_limits_are_those_of_the_code() -> None:
    limits, files, quotas, allowed = Limits(), Blobs(directory=Path("blobs")), Quotas(), Allowances()
    mib = 1024 * 1024
    default_ttl = Settings.model_fields["message_ttl"].default
    strangers = StrangerSettings()
    expected = {
        "digits of a number": [addresses.MIN_DIGITS, addresses.MAX_DIGITS],
        "`id`": [sends.MAX_ID],
        "`body` of an envelope": [sends.MAX_BODY],
        "`refs` of an envelope": [sends.MAX_REFS, sends.MAX_ID],
        "a frame, or WebSocket message": [connection.MAX_FRAME, guest.FRAME],
        "the rest of a frame": [int(unfinished.FRAME_SECONDS), unfinished.MAX_UNFINISHED],
        "numbers in an `ack`": [device.MAX_ACKED],
        "sends of a connection that are not answered": [limits.sends],
        "what does nothing: pings, faults": [int(pace.BURST), int(pace.RATE)],
        "bytes that a device has not read": [session.UNREAD // mib, guest.UNREAD // 1024],
        "a device that reads nothing": [int(connection.STALL)],
        "from connecting to a login": [int(limits.login)],
        "open connections without a login": [limits.strangers, limits.strangers_each],
        "connections and logins before one succeeds": [
            int(places.EACH_RATE),
            int(places.EACH_BURST),
            int(places.ALL_RATE),
            int(places.ALL_BURST),
        ],
        "numbers in a `check`": [lookups.MAX_NUMBERS],
        "numbers in a `fetch`": [bundles.MAX_NUMBERS],
        "numbers that one device fetches": [allowed.fetch_burst, int(allowed.fetch_rate)],
        "numbers that one device checks": [allowed.check_burst, int(allowed.check_rate)],
        "one-time keys of one number for one device": [allowed.one_time, allowed.one_time],
        "blobs of one device": [files.device_quota // mib],
        "blobs that one device leaves": [allowed.blob_burst, int(allowed.blob_rate)],
        "groups that one device makes and changes": [allowed.group_burst, int(allowed.group_rate)],
        "envelopes of one sender that wait for one recipient": [quotas.share, quotas.share_bytes // mib],
        "envelopes that wait for one recipient": [quotas.mailbox, quotas.mailbox_bytes // mib],
        "envelopes from one sender to one recipient or group": [quotas.pair_burst, int(quotas.pair_rate)],
        "requests in flight on a connection": [limits.requests],
        "unacknowledged deliveries to a device, or partition": [limits.window, limits.window_bytes // mib],
        "unacknowledged deliveries on a connection": [limits.session_bytes // mib],
        "unaccepted envelopes in the network": [limits.undecided, limits.undecided_bytes // mib],
        "open connections": [limits.connections],
        "bytes waiting for one reader": [limits.write_buffer // mib],
        "silence": [int(limits.idle)],
        "`ttl`": [default_ttl, 30],
        "repeats recognised": [limits.remembered],
        "a body over HTTP": [http.MAX_BODY, MAX_BULK_BODY, MAX_CODE_BODY],
        "of those on which no token or key was right": [strangers.connections, strangers.connections_each],
        "requests on those": [int(strangers.rate), int(strangers.rate_each)],
        "the headers of a request over HTTP": [http1.MAX_HEADERS, http1.MAX_HEAD, int(http1.HEAD_TIMEOUT)],
        "requests on a connection that wait for the one before": [http1.MAX_PIPELINED],
        "participants of a group": [MAX_PARTICIPANTS],
        "groups of a number": [rules.MAX_GROUPS],
        "a group's subject": [MAX_SUBJECT],
        "a group's icon": [chats.MAX_ICON],
        "messages to groups that wait for the database": [copies.WAITING],
        "registrations in a bulk": [registration.MAX_BULK],
        "one-time pre-keys kept, of each kind": [keys.MAX_KEPT],
        "blocked numbers": [blocks.MAX_BLOCKED],
        "a code": [
            6,
            codes.VALID_MS // 1000,
            codes.ATTEMPTS,
            codes.SPACING_MS // 1000,
            codes.PER_WINDOW,
            codes.WINDOW_MS // 1000,
        ],
        "codes asked for": [rations.CODES_EACH, rations.SECONDS_EACH, rations.CODES_ALL, rations.SECONDS_ALL],
        "registrations that prove nothing": [
            rations.TRIES_EACH,
            rations.TRY_SECONDS_EACH,
            rations.TRIES_ALL,
            rations.TRY_SECONDS_ALL,
        ],
        "an HTTP call": [int(http.TIMEOUT), int(TRANSFER_SECONDS), int(SILENCE_SECONDS)],
        "a blob": [store.MAX_SIZE, store.MAX_SIZE // mib],
        "all blobs": [files.quota // mib],
        "blobs that come and go": [limits.transfers],
        "a blob's life": [files.ttl, 14],
    }
    assert {name: figures(limit(name)) for name in expected} == expected
    assert websocket.MAX_MESSAGE == connection.MAX_FRAME == 4_194_304
    assert default_ttl == 30 * 86_400
    told = section("Quotas")
    assert f"at most {quotas.share:,} envelopes and {quotas.share_bytes // mib} MiB" in told
    assert f"senders together {quotas.mailbox:,} and {quotas.mailbox_bytes // mib:,} MiB" in told
    assert f"go {quotas.pair_burst:,} envelopes at once and then {quotas.pair_rate:g} a second" in told
    assert f"(or {routing.quotas.PATIENCE:g} s after its time)" in told
    assert (refills.LOW, limits.store_after) == (20, 0.5)
    assert f"fewer than {refills.LOW} ordinary" in section("`prekeys_low`")
    assert (chains.MAX_FORWARD_JUMP, chains.MAX_STORED_KEYS, ratchet.MAX_CHAINS) == (25_000, 2_000, 5)
    assert (ratchet.FULL, ratchet.SHORT) == ((25_000, 2_000), (2_000, 100))
    assert (record.MAX_ARCHIVED, record.MAX_LENGTH) == (10, 256 * 1024)


def test_every_close_code_is_told() -> None:
    text = section("WebSocket")
    for reason, code in websocket.CLOSE_CODES.items():
        assert f"{code} (`{reason}`)" in text
    assert f"{websocket.POLICY_VIOLATION} (everything else)" in text


def test_every_subprotocol_and_every_path_is_told() -> None:
    assert {row[0].strip("`") for row in table(section("WebSocket"), "subprotocol")} == set(websocket.SUBPROTOCOLS)
    anything: Any = types.SimpleNamespace()
    connections = Connections.__new__(Connections)
    devices = DeviceEndpoints(
        codes=anything,
        rations=anything,
        registrations=anything,
        keys=anything,
        blocks=anything,
        logins=anything,
        registration_key="",
    )
    routes = [
        devices.routes(),
        GroupEndpoints(anything, anything, anything).routes(),
        BlobEndpoints(anything, anything, anything, allowances=anything).routes(),
        OperatorEndpoints(anything, anything, anything, api_key=NO_KEY).routes(),
        network.app.operator_routes(connections, anything, anything),
    ]
    app = network.app.create(routes, Delay(0, 0))
    calls = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    for route in [*app.routes, *websocket.make_routes(connections, write_buffer=1).routes]:
        if isinstance(route, Route | WebSocketRoute):
            calls.add(("GET", route.path))
    told = "\n".join(" | ".join(row) for row in table(section("HTTP"), "method and path"))
    for method, path in calls:
        assert f"`{method} {path}`" in told if path.startswith("/v1/") else f"{path}`" in told, (method, path)
    assert set(re.findall(r"(/[^`\s]*)`", told)) == {path for _, path in calls}
    assert len(calls) > 12


def test_every_status_and_reason_over_http_is_told() -> None:
    told = {(int(row[0]), row[1].strip("`")) for row in table(section("Errors"), "status")}
    source = "\n".join(path.read_text() for path in Path(network.app.__file__).parent.rglob("*.py"))
    kinds = {kind.reason: kind.status for kind in errors_of(network.errors.RequestError)}
    own = set(re.findall(r"reason=\"(\w+)\"", source))
    own |= {getattr(groups, name) for name in re.findall(r"reason=(?:groups\.)?([A-Z_]+)", source)}
    assert {reason for _, reason in told} == set(kinds) | own
    assert {(status, reason) for reason, status in kinds.items()} <= told


def errors_of(kind: type[network.errors.RequestError]) -> list[type[network.errors.RequestError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in errors_of(child))]


# HTTP, played against the network in the order of the page.


def exchanges() -> list[tuple[str, str]]:
    blocks_ = fences("http")
    assert len(blocks_) % 2 == 0
    return list(zip(blocks_[::2], blocks_[1::2], strict=True))


def split(block: str) -> tuple[str, dict[str, str], Any]:
    """First line, headers, and JSON body."""
    head, _, body = block.partition("\n\n")
    first, *lines = head.splitlines()
    return first, dict(line.split(": ", 1) for line in lines), json.loads(body) if body.strip() else None


def without_tokens(answer: Any) -> Any:
    if isinstance(answer, dict):
        secret = ("token", "created_at")
        return {key: "…" if key in secret else without_tokens(value) for key, value in answer.items()}
    return [without_tokens(value) for value in answer] if isinstance(answer, list) else answer


async def test_every_http_example_gets_the_answer_beside_it(net: Network, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    tokens: dict[str, str] = {}
    # What the page calls a group and its invite, and what the network does.
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
        async with net.http.request(method, path, data=data, headers=headers) as answer:
            status, expected_headers, expected_body = split(expected)
            assert f"HTTP/1.1 {answer.status} {answer.reason}" == status, (first, await answer.text())
            assert set(expected_headers) <= set(answer.headers)
            if "Retry-After" in expected_headers:
                assert 25 <= int(answer.headers["Retry-After"]) <= int(expected_headers["Retry-After"])
            if expected_body is None:
                continue
            got = await answer.json()
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


async def test_the_blob_example_is_what_comes_back_and_its_pointer_leads_to_the_file(net: Network) -> None:
    await net.register("15550100001")
    told = values(fences("values")[2])
    authorization = {"Authorization": f"Bearer {net.tokens['15550100001']}"}
    async with net.http.post("/v1/blobs/15550100001", data=told["blob"], headers=authorization) as answer:
        assert answer.status == 201
        got = await answer.json()
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
async def test_text_that_is_not_utf_8_ends_with_the_documented_frame_and_without_a_traceback(
    net: Network, caplog: pytest.LogCaptureFixture, subprotocol: str, pieces: list[bytes]
) -> None:
    host, port = net.addresses.http
    async with websockets.connect(
        f"ws://{host}:{port}/v1/connect", subprotocols=[websockets.Subprotocol(subprotocol)]
    ) as socket:
        # Bytes are sent as text when it is said so.
        await socket.send(pieces[0] if len(pieces) == 1 else pieces, text=True)
        async with asyncio.timeout(PATIENCE):
            data = await socket.recv()
            with pytest.raises(websockets.ConnectionClosed) as closed:
                await socket.recv()
    decode: Any = msgspec.json.decode if isinstance(data, str) else msgspec.msgpack.decode
    assert decode(data) == {"t": "closing", "reason": "bad_frame", "detail": "bad frame: text that is not UTF-8"}
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1007, "bad_frame")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_the_line_with_the_code_is_in_the_log_as_it_is_shown(
    net: Network, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with net.http.post("/v1/codes", json={"number": "15550100001"}) as answer:
        assert answer.status == 202
    (record,) = [record for record in caplog.records if record.message == "code.issued"]
    record.code, record.created = "482913", 1767268800.1234
    told_text, told_json = fences("log")[0].splitlines()
    told_time, _, rest = told_text.partition(" ")
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", told_time)
    assert log.TextFormatter("network").format(record).partition(" ")[2] == rest
    assert json.loads(log.JSONFormatter("network").format(record)) == json.loads(told_json)


async def test_before_its_ok_a_device_may_do_nothing_and_after_it_a_skipped_delivery_comes_at_the_next_login_only(
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


# Cryptography.


def test_the_values_of_the_session_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    told = values(fences("values", section("Values to check a program against"))[0])
    queue = [told[f"{name} private"] for name in ("business base", "business ratchet", "handset ratchet")]
    queue.append(bytes([7]) * 32)
    monkeypatch.setattr(curve.KeyPair, "generate", lambda: curve.KeyPair.from_private(queue.pop(0)))

    business = e2ee.IdentityKeyPair.from_private(told["business identity private"])
    handset = e2ee.IdentityKeyPair.from_private(told["handset identity private"])
    pairs = {
        name: curve.KeyPair.from_private(told[f"{name} private"])
        for name in ("business base", "business ratchet", "signed pre-key", "one-time pre-key", "handset ratchet")
    }
    pairs |= {"business identity": business, "handset identity": handset}
    for name, pair in pairs.items():
        assert pair.public == told[f"{name} public"], name
    signed_pair, one_time_pair = pairs["signed pre-key"], pairs["one-time pre-key"]
    signature = told["signed pre-key signature"]

    bundle = e2ee.PreKeyBundle(
        registration_id=4711,
        identity_key=handset.public,
        signed_prekey_id=1,
        signed_prekey=signed_pair.public,
        signed_prekey_signature=signature,
        prekey_id=2,
        prekey=one_time_pair.public,
    )
    sender = e2ee.SessionRecord.initiate(business, 12345, bundle)
    assert sender.encrypt(told["plaintext"]) == (e2ee.PREKEY, told["PreKeySignalMessage"])

    first = e2ee.PreKeySignalMessage.parse(told["PreKeySignalMessage"])
    assert first.message.authenticated + first.message.mac == told["SignalMessage"]
    signed = e2ee.SignedPreKey(1, signed_pair.public, signed_pair.private, signature)
    one_time = e2ee.PreKey(2, one_time_pair.public, one_time_pair.private)
    receiver = e2ee.SessionRecord.respond(None, handset, first, signed, one_time)
    assert receiver.decrypt(e2ee.PREKEY, told["PreKeySignalMessage"]) == told["plaintext"]
    assert receiver.encrypt(b'{"type":"null"}') == (e2ee.MESSAGE, told["null SignalMessage"])
    reply = b'{"type":"text","text":{"body":"Hello yourself"}}'
    assert receiver.encrypt(reply) == (e2ee.MESSAGE, told["reply SignalMessage"])
    assert sender.decrypt(e2ee.MESSAGE, told["reply SignalMessage"]) == reply

    keys_ = session_setup.respond(handset, first, signed_pair, one_time_pair, None)
    assert (keys_.root_key, keys_.chain_key) == (told["root key 0"], told["chain key of the signed pre-key"])
    base = pairs["business base"]
    assert business.agree(signed_pair.public) == told["DH1"]
    assert base.agree(handset.public) == told["DH2"]
    assert base.agree(signed_pair.public) == told["DH3"]
    assert base.agree(one_time_pair.public) == told["DH4"]
    step = ratchet.kdf_rk(told["root key 0"], pairs["business ratchet"].agree(signed_pair.public))
    assert step == (told["root key 1"], told["business chain key 0"])
    assert chains.step(step[1], 0) == (told["next chain key"], told["message seed"])
    message_keys = kdf.hkdf(bytes(32), told["message seed"], b"WhisperMessageKeys", 80)
    assert message_keys == told["AES key"] + told["MAC key"] + told["IV"]
    step = ratchet.kdf_rk(step[0], pairs["handset ratchet"].agree(pairs["business ratchet"].public))
    assert step == (told["root key 2"], told["handset chain key 0"])


def test_the_walk_through_carries_the_values() -> None:
    told = values(fences("values")[0])
    bodies = [json.loads(body).get("body") for _, body in example_frames(section("A client in 12 steps"))]
    sent = {base64.b64decode(body) for body in bodies if body}
    assert sent == {told["PreKeySignalMessage"], told["null SignalMessage"], told["reply SignalMessage"]}


def test_the_values_of_the_quiet_ratchet_and_of_kyber_are_right() -> None:
    told = values(fences("values")[1])
    initiator, responder = pq_ratchet.start(told["third key"])
    assert (initiator, responder) == (told["initiator chain key"], told["responder chain key"])
    following, salt = pq_ratchet.step(initiator, 1)
    assert (following, salt) == (told["next initiator chain key"], told["salt of index 1"])
    assert pq_ratchet.step(following, 2)[1] == told["salt of index 2"]
    for index in (1, 300):
        assert pq_ratchet.encode(index) == told[f"field 5 of index {index}"]
    ciphertext = told["ML-KEM ciphertext, 1568 bytes, all"] * 1568
    assert kem.round_3(told["ML-KEM secret"], ciphertext) == told["round 3 secret"]


def test_the_values_of_the_sender_key_are_right() -> None:
    told = values(fences("values")[3])
    assert curve.KeyPair.from_private(told["signing private"]).public == told["signing public"]
    assert told["chain key"] in told["distribution message"]
    assert chains.step(told["chain key"], 0) == (told["next chain key"], told["message seed"])
    keys_ = kdf.hkdf(bytes(32), told["message seed"], b"WhisperGroup", 48)
    assert keys_ == told["IV"] + told["AES key"]
    record = e2ee.SenderKeyRecord(told["distribution id"])
    assert record.is_portable
    record.process(told["distribution message"])
    assert record.decrypt(told["group message"]) == told["plaintext"]
    assert e2ee.GroupMessage.parse(told["group message"]).chain_id == 12345678
    sent = {
        frame["body"]
        for frame in map(json.loads, (body for _, body in example_frames()))
        if frame.get("kind") == "group"
    }
    assert {base64.b64decode(body) for body in sent} == {told["group message"]}


def test_the_change_of_a_group_in_the_example_is_the_one_beside_it() -> None:
    text = section("Kinds of envelope")
    (body,) = [json.loads(body)["body"] for _, body in example_frames(text) if '"group_changed"' in body]
    assert base64.b64decode(body).decode() == fences("json", text)[0].strip()


@pytest.mark.parametrize("line", [line for block in fences("json") for line in block.splitlines()])
def test_every_json_example_is_json(line: str) -> None:
    assert isinstance(json.loads(line), dict)


def test_every_link_within_the_page_and_to_other_pages_leads_somewhere() -> None:
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for target in re.findall(r"\]\(([^)]+)\)", TEXT):
        if target.startswith("#"):
            assert target[1:] in anchors, target
        elif not target.startswith("https://"):
            assert (PAGE.parent / target.partition("#")[0]).exists(), target
