"""docs/device-api.md is correct and complete about limits, close codes, paths and reasons."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import Route, WebSocketRoute

import network.app
from network import http, routing
from network.blobs import store
from network.blobs.routes import SILENCE_SECONDS, TRANSFER_SECONDS, BlobEndpoints
from network.connections import connections as live_connections
from network.connections import session, websocket_connection, websocket_frames
from network.connections.connections import Connections
from network.delay import Delay
from network.devices import codes, keys, locks, registering, routes
from network.devices.registering import MAX_BULK_BODY, MAX_CODE_BODY, RegistrationEndpoints
from network.devices.routes import DeviceEndpoints
from network.directory import bundles, device_rate_limits, lookups, refills
from network.groups import chats, copies, rules
from network.groups.routes import GroupEndpoints
from network.operator import OperatorEndpoints
from network.settings import BlobSettings, DeviceRateLimits, Limits, Quotas, Settings
from tests.network.device_api_page import section, table
from tidings.e2ee import chains, ratchet, record
from tidings.http import protocol
from tidings.http.listener_settings import UnauthenticatedSettings
from tidings.net import unauthenticated
from tidings.wire import addresses, connection, device, groups, registration, unfinished
from tidings.wire.groups import MAX_PARTICIPANTS, MAX_SUBJECT


def limit(name: str) -> str:
    """Return the limit in a line of the section, `- SUBJECT: LIMIT (WHAT IS BEYOND)`."""
    lines = re.sub(r"\n  ", " ", section("Limits"))
    return dict(re.findall(r"^- (.+?): (.+) \([^()]+\)$", lines, re.MULTILINE))[name]


def figures(text: str) -> list[int]:
    return [int(figure.replace(",", "")) for figure in re.findall(r"\d[\d,]*", text)]


def test_documented_limits_match_the_code() -> None:
    limits, files, quotas, allowed = Limits(), BlobSettings(directory=Path("blobs")), Quotas(), DeviceRateLimits()
    mib, day_ms = 1024 * 1024, 24 * 3600 * 1000
    default_ttl = Settings.model_fields["message_ttl"].default
    http_clients = UnauthenticatedSettings()
    expected = {
        "digits of a number": [addresses.MIN_DIGITS, addresses.MAX_DIGITS],
        "`id`": [session.MAX_ID],
        "`body` of an envelope": [session.MAX_BODY],
        "`refs` of an envelope": [session.MAX_REFS, session.MAX_ID],
        "a frame, or WebSocket message": [connection.MAX_FRAME, unauthenticated.FRAME],
        "an incomplete frame": [int(unfinished.FRAME_SECONDS), unfinished.MAX_UNFINISHED],
        "numbers in an `ack`": [device.MAX_ACKED],
        "unanswered sends of a connection": [limits.sends],
        "frames without effect": [int(session.INEFFECTIVE.burst), round(1 / session.INEFFECTIVE.interval)],
        "unread bytes of a device": [connection.HIGH_WATER // mib, unauthenticated.UNREAD // 1024],
        "a device that reads nothing": [int(connection.STALL)],
        "from connecting to a login": [int(limits.login)],
        "unauthenticated connections": [limits.unauthenticated, limits.unauthenticated_each],
        "connections, and logins until one succeeds": [
            int(live_connections.EACH_RATE),
            int(live_connections.EACH_BURST),
            int(live_connections.ALL_RATE),
            int(live_connections.ALL_BURST),
        ],
        "numbers in a `check`": [lookups.MAX_NUMBERS],
        "numbers in a `fetch`": [bundles.MAX_NUMBERS],
        "numbers that one device fetches": [allowed.fetch_burst, int(allowed.fetch_rate)],
        "numbers that one device checks": [allowed.check_burst, int(allowed.check_rate)],
        "one-time keys of one number for one device": [allowed.one_time, allowed.one_time],
        "blobs of one device": [files.device_quota // mib],
        "uploads of one device": [allowed.blob_burst, int(allowed.blob_rate)],
        "changes of groups by one device": [allowed.group_burst, int(allowed.group_rate)],
        "key uploads of one device": [device_rate_limits.KEY_BURST, int(device_rate_limits.KEY_RATE)],
        "block changes of one device": [device_rate_limits.BLOCK_BURST, int(device_rate_limits.BLOCK_RATE)],
        "waiting envelopes of one sender for one recipient": [quotas.share, quotas.share_bytes // mib],
        "waiting envelopes for one recipient": [quotas.mailbox, quotas.mailbox_bytes // mib],
        "envelopes from one sender to one recipient or group": [quotas.pair_burst, int(quotas.pair_rate)],
        "requests in flight on a connection": [limits.requests],
        "unacknowledged deliveries to a device, or partition": [limits.window, limits.window_bytes // mib],
        "unacknowledged deliveries on a connection": [limits.session_bytes // mib],
        "unaccepted envelopes in the network": [limits.undecided, limits.undecided_bytes // mib],
        "stored bytes of one sender": [quotas.stored_bytes // mib, quotas.stored_rate // 1024],
        "open connections": [limits.connections],
        "bytes waiting for one reader": [limits.write_buffer // mib],
        "silence": [int(limits.idle)],
        "`ttl`": [default_ttl, 30],
        "recognised repeats": [limits.remembered],
        "a body over HTTP": [http.MAX_BODY, MAX_BULK_BODY, MAX_CODE_BODY],
        "unauthenticated HTTP connections": [http_clients.connections, http_clients.connections_each],
        "requests on unauthenticated HTTP connections": [int(http_clients.rate), int(http_clients.rate_each)],
        "HTTP headers": [protocol.MAX_HEADERS, protocol.MAX_HEAD, int(protocol.HEAD_TIMEOUT)],
        "pipelined HTTP requests": [protocol.MAX_PIPELINED],
        "participants of a group": [MAX_PARTICIPANTS],
        "groups of a number": [rules.MAX_GROUPS],
        "a group's subject": [MAX_SUBJECT],
        "a group's icon": [chats.MAX_ICON],
        "group messages waiting for the database": [copies.WAITING],
        "registrations in a bulk": [registration.MAX_BULK],
        "one-time pre-keys kept, of each kind": [keys.MAX_KEPT],
        "blocked numbers": [routes.MAX_BLOCKED],
        "a code": [
            codes.SHORT,
            codes.LONG,
            codes.VALID_MS // 1000,
            codes.ATTEMPTS,
            codes.SPACING_MS // 1000,
            codes.PER_WINDOW,
            codes.WINDOW_MS // 1000,
        ],
        "codes requested": [registering.CODES_EACH, registering.SECONDS_EACH],
        "registrations without proof": [registering.TRIES_EACH, registering.TRY_SECONDS_EACH],
        "wrong six-digit codes of a number": [codes.NUMBER_TRIES.burst],
        "wrong PINs of a number, from its familiar addresses and from others each": [
            locks.DAILY.burst,
            locks.YEARLY.burst,
            locks.YEARLY.interval // day_ms,
        ],
        "digits of a PIN": [6, 20],
        "a registration lock": [locks.EXPIRES_MS // day_ms],
        "an HTTP call": [int(http.TIMEOUT), int(TRANSFER_SECONDS), int(SILENCE_SECONDS)],
        "a blob": [store.MAX_SIZE, store.MAX_SIZE // mib],
        "all blobs": [files.quota // mib],
        "concurrent blob transfers": [limits.transfers],
        "a blob's lifetime": [files.ttl, 14],
    }
    assert {name: figures(limit(name)) for name in expected} == expected
    assert connection.MAX_FRAME == 4_194_304
    assert default_ttl == 30 * 86_400
    told = section("Quotas")
    assert f"(or {routing.quotas.REPEAT_SECONDS:g} s after its time)" in told
    assert (refills.LOW, limits.store_after) == (20, 0.5)
    assert f"fewer than {refills.LOW} ordinary" in section("`prekeys_low`")
    assert (chains.MAX_FORWARD_JUMP, chains.MAX_STORED_KEYS, ratchet.MAX_CHAINS) == (25_000, 2_000, 5)
    assert (ratchet.FULL, ratchet.SHORT) == ((25_000, 2_000), (2_000, 100))
    assert (record.MAX_ARCHIVED, record.MAX_LENGTH) == (10, 256 * 1024)


def test_documented_limits_of_registrations_are_those_of_the_shipped_defaults() -> None:
    # Literals: a constant that is loosened together with the page is noticed here.
    shipped = {
        "registrations in a bulk": [500],
        "a code": [6, 16, 600, 5, 30, 5, 3_600],
        "codes requested": [20, 30],
        "registrations without proof": [10, 60],
        "wrong six-digit codes of a number": [10],
        "digits of a PIN": [6, 20],
        "wrong PINs of a number, from its familiar addresses and from others each": [5, 45, 90],
        "a registration lock": [7],
        "unauthenticated HTTP connections": [256, 100],
        "requests on unauthenticated HTTP connections": [16, 8],
    }
    assert {name: figures(limit(name)) for name in shipped} == shipped


def test_every_close_code_is_documented() -> None:
    text = section("WebSocket")
    for reason, code in websocket_connection.CLOSE_CODES.items():
        assert f"{code} (`{reason}`)" in text
    assert f"{websocket_frames.POLICY_VIOLATION} (everything else)" in text


def test_every_subprotocol_and_path_is_documented() -> None:
    assert {row[0].strip("`") for row in table(section("WebSocket"), "subprotocol")} == set(
        websocket_connection.SUBPROTOCOLS
    )
    anything: Any = types.SimpleNamespace()
    connections = Connections.__new__(Connections)
    endpoints = [
        RegistrationEndpoints(anything, anything, anything, anything).routes(),
        DeviceEndpoints(anything, anything).routes(),
        GroupEndpoints(anything, anything).routes(),
        BlobEndpoints(anything, anything, anything).routes(),
        OperatorEndpoints(anything, anything).routes(),
        network.app.operator_routes(connections, anything, anything),
    ]
    app = network.app.create(endpoints, Delay(0, 0))
    calls = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    for route in [*app.routes, *websocket_connection.make_routes(connections, write_buffer=1).routes]:
        if isinstance(route, Route | WebSocketRoute) and not isinstance(route, APIRoute):
            calls.add(("GET", route.path))
    told = "\n".join(re.findall(r"^- `[A-Z]+ /.*(?:\n  .*)*", section("HTTP").partition("\n### ")[0], re.MULTILINE))
    for method, path in calls:
        assert f"`{method} {path}`" in told if path.startswith("/v1/") else f"{path}`" in told, (method, path)
    assert set(re.findall(r"(/[^`\s]*)`", told)) == {path for _, path in calls}
    assert len(calls) > 12


def test_every_http_status_and_reason_is_documented() -> None:
    lines = re.findall(r"^- (\d+) `(\w+)`: ", section("Errors"), re.MULTILINE)
    told = {(int(status), reason) for status, reason in lines}
    source = "\n".join(path.read_text() for path in Path(network.app.__file__).parent.rglob("*.py"))
    kinds = {kind.reason: kind.status for kind in errors_of(network.errors.RequestError)}
    own = set(re.findall(r"reason=\"(\w+)\"", source))
    own |= {getattr(groups, name) for name in re.findall(r"reason=(?:groups\.)?([A-Z_]+)", source)}
    assert {reason for _, reason in told} == set(kinds) | own
    assert {(status, reason) for reason, status in kinds.items()} <= told


def errors_of(kind: type[network.errors.RequestError]) -> list[type[network.errors.RequestError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in errors_of(child))]
