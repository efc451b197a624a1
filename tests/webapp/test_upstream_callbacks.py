"""The callback that the real Cloud API posts to: verification, signature, bounds, and 200 only for events on disk."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from typing import Any

import httpx
import pytest

from tests.manual_clock import ManualClock
from tests.webapp.conftest import Serve, Served, code
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.keys import upstream_credentials
from tidings.keys.upstream_credentials import UpstreamCredentials
from tidings.storage.business import messages, numbers, standins, upstreams
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.business.standins import StandIn
from tidings.storage.business.upstreams import Upstream
from tidings.storage.database import Connection, Database
from tidings.wire import codes, core, standin_numbers
from webapp.api.upstream.service import UpstreamCallbacks
from webapp.http.envelope import CALLBACKS

NUMBER, P, W = "15550000000", "106540352242922", "102290129340398"
OTHER, OTHER_P = "15550000001", "106540352242923"
SECRET, VERIFY, APP_SECRET, OLD_SECRET = "the-path", "the token", "the app secret", "the old secret"
PATH = f"/cloud/callbacks/{SECRET}"
CLOCK_MS = 1_700_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(CLOCK_MS / 1000)


@pytest.fixture
async def api(serve: Serve, coreapp: FakeCoreapp, database: Database, clock: ManualClock) -> Served:
    """Webapp of a number that sends through the Cloud API."""
    coreapp.respond(core.TakeUpstreamEvents, lambda request: core.Done(request.n))
    credentials = UpstreamCredentials("T", APP_SECRET, SECRET, VERIFY, OLD_SECRET, CLOCK_MS + 1_000)
    sealed = upstream_credentials.sealed(SecretSealer(b"s" * 32), NUMBER, credentials)

    async def work(connection: Connection) -> None:
        await numbers.add_first(connection, NUMBER)
        number = await numbers.find(connection, NUMBER)
        assert number is not None
        await upstreams.attach(connection, number, Upstream(NUMBER, "http://x", P, W, 80, "", 1), sealed)

    await database.commit(work)
    served = await serve(clock=clock)
    await coreapp.until(lambda: coreapp.greetings > 0)
    await served.parts.common.changes.run_once()
    return served


def text(wamid: str, sender: str = "16505551234") -> dict[str, Any]:
    return {"from": sender, "id": wamid, "timestamp": "1749416383", "type": "text", "text": {"body": "hi"}}


def envelope(*values: dict[str, Any], field: str = "messages", number: str = P) -> bytes:
    """Return a body with one change per value."""
    metadata = {"display_phone_number": NUMBER, "phone_number_id": number}
    changes = [{"field": field, "value": {"messaging_product": "whatsapp", "metadata": metadata, **v}} for v in values]
    return json.dumps({"object": "whatsapp_business_account", "entry": [{"id": W, "changes": changes}]}).encode()


async def post(api: Served, body: bytes, secret: str = APP_SECRET, path: str = PATH, **headers: str) -> httpx.Response:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return await api.http.post(path, content=body, headers={"X-Hub-Signature-256": f"sha256={digest}", **headers})


async def test_the_callback_is_verified_with_its_token(api: Served) -> None:
    query = {"hub.mode": "subscribe", "hub.challenge": "1158201444", "hub.verify_token": VERIFY}
    response = await api.http.get(PATH, params=query)
    assert (response.status_code, response.text) == (200, "1158201444")
    for wrong in ({"hub.verify_token": "x"}, {"hub.mode": "x"}, {"hub.verify_token": ""}):
        assert code(await api.http.get(PATH, params={**query, **wrong})) == (403, codes.ACCESS_DENIED)
    assert code(await api.http.get("/cloud/callbacks/x", params=query)) == (404, codes.NOT_FOUND)


async def test_events_are_passed_on_and_acknowledged_with_200(api: Served, coreapp: FakeCoreapp) -> None:
    contact = {"profile": {"name": "Sheena"}, "wa_id": "16505551234"}
    status = {"id": "wamid.B", "status": "sent", "timestamp": "1", "recipient_id": "16505551234"}
    body = envelope({"contacts": [contact], "messages": [text("wamid.A")]}, {"statuses": [status]})
    response = await post(api, body)
    assert (response.status_code, response.content) == (200, b"")
    (request,) = coreapp.requested(core.TakeUpstreamEvents)
    assert request.account == NUMBER
    found = [(event.kind, json.loads(event.body), event.peer, event.name) for event in request.events]
    assert found == [
        ("message", text("wamid.A"), "16505551234", "Sheena"),
        ("status", status, "16505551234", ""),
    ]


async def test_a_wrong_signature_is_refused(api: Served, coreapp: FakeCoreapp) -> None:
    body = envelope({"messages": [text("wamid.A")]})
    right = hmac.new(APP_SECRET.encode(), body, hashlib.sha256).hexdigest()
    assert code(await post(api, body, "another secret")) == (401, codes.ACCESS_DENIED)
    other = "1" if right[-1] == "0" else "0"
    for signature in (b"", b"sha256=", right[:-1].encode(), f"sha256={right[:-1]}{other}".encode(), b"sha256=\xe9"):
        response = await api.http.post(PATH, content=body, headers=[(b"X-Hub-Signature-256", signature)])
        assert response.status_code == 401
    assert (await api.http.post(PATH, content=body)).status_code == 401
    # The signature is over the bytes, not over the JSON.
    digest = hmac.new(APP_SECRET.encode(), body, hashlib.sha256).hexdigest()
    response = await api.http.post(PATH, content=body + b" ", headers={"X-Hub-Signature-256": f"sha256={digest}"})
    assert response.status_code == 401
    assert coreapp.requested(core.TakeUpstreamEvents) == []


async def test_a_replaced_app_secret_is_accepted_until_its_end(
    api: Served, coreapp: FakeCoreapp, clock: ManualClock
) -> None:
    body = envelope({"messages": [text("wamid.A")]})
    assert (await post(api, body, OLD_SECRET)).status_code == 200
    clock.advance(2.0)
    assert (await post(api, body, OLD_SECRET)).status_code == 401
    assert (await post(api, body)).status_code == 200


async def test_a_body_over_3_mb_is_refused(api: Served) -> None:
    padding = {"type": "text", "text": {"body": "x" * (3 * 1024 * 1024)}}
    assert (await post(api, envelope({"messages": [text("wamid.A") | padding]}))).status_code == 413
    assert (await post(api, envelope({"messages": [text("wamid.A", "1" * 15)]}))).status_code == 200


async def test_an_unknown_path_is_not_found_whatever_the_body(api: Served) -> None:
    for body in (envelope({"messages": [text("wamid.A")]}), b"x" * (3 * 1024 * 1024 + 1)):
        assert code(await post(api, body, path="/cloud/callbacks/other")) == (404, codes.NOT_FOUND)


async def test_only_a_known_secret_is_recognised_by_its_path(api: Served) -> None:
    recognises = api.parts.limiter.recognise_path
    assert recognises(PATH)
    assert not any(map(recognises, [f"{PATH}x", PATH[:-1], "/cloud/callbacks/", "/cloud/callbacks", f"/v1{PATH}"]))


async def test_a_thousand_events_go_in_bounded_requests_in_their_order(api: Served, coreapp: FakeCoreapp) -> None:
    messages = [text(f"wamid.{n}") for n in range(1_000)]
    assert (await post(api, envelope({"messages": messages}))).status_code == 200
    requested = coreapp.requested(core.TakeUpstreamEvents)
    assert [len(request.events) for request in requested] == [500, 500]
    found = [json.loads(event.body)["id"] for request in requested for event in request.events]
    assert found == [f"wamid.{n}" for n in range(1_000)]


async def test_events_after_one_that_is_not_on_disk_are_not_passed_on(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.TakeUpstreamEvents, codes.MESSAGE_FAILED, "x")
    messages = [text(f"wamid.{n}") for n in range(1_000)]
    assert (await post(api, envelope({"messages": messages}))).status_code >= 400
    (request,) = coreapp.requested(core.TakeUpstreamEvents)
    assert len(request.events) == 500


async def test_events_of_foreign_numbers_and_of_accounts_are_acknowledged_and_dropped(
    api: Served, coreapp: FakeCoreapp
) -> None:
    for body in (
        envelope({"messages": [text("wamid.A")]}, number="999"),
        envelope({"event": "DISABLED_UPDATE"}, field="account_update"),
        envelope({"event": "x"}, field="of_the_future"),
        b'{"object":"whatsapp_business_account","entry":[]}',
        b'{"entry":[{"id":"1"}]}',
        # Changes that cannot be read are skipped.
        envelope({"messages": "x"}),
        b'{"entry":[{"changes":[{"value":{}}]}]}',
    ):
        assert (await post(api, body)).status_code == 200
    assert coreapp.requested(core.TakeUpstreamEvents) == []


async def test_a_body_that_is_no_webhook_is_refused(api: Served) -> None:
    for body in (b"", b"{", b"[]", b"{}", b'{"entry":5}', b"\xff", b'{"entry":[{"changes":5}]}'):
        assert code(await post(api, body)) == (400, codes.INVALID_REQUEST)


async def test_a_change_that_cannot_be_read_does_not_hinder_the_others(api: Served, coreapp: FakeCoreapp) -> None:
    body = envelope(
        {"messages": [text("wamid.A")]}, {"messages": "x"}, {"contacts": [5]}, {"messages": [text("wamid.B")]}
    )
    assert (await post(api, body)).status_code == 200
    (request,) = coreapp.requested(core.TakeUpstreamEvents)
    assert [json.loads(event.body)["id"] for event in request.events] == ["wamid.A", "wamid.B"]


async def add_number(api: Served, database: Database, app_secret: str, **more: Any) -> None:
    """Add a second number that sends through the Cloud API."""
    credentials = UpstreamCredentials("T", app_secret, "other-path", VERIFY, **more)

    async def work(connection: Connection) -> None:
        number = await numbers.find(connection, OTHER)
        if number is None:
            number = await numbers.add(connection, OTHER)
        sealed = upstream_credentials.sealed(SecretSealer(b"s" * 32), OTHER, credentials)
        await upstreams.attach(connection, number, Upstream(OTHER, "http://x", OTHER_P, W, 80, "", 1), sealed)

    await database.commit(work)
    await api.parts.common.changes.run_once()


async def test_events_of_a_number_whose_app_secret_is_not_replaced_yet_are_not_lost(
    api: Served, coreapp: FakeCoreapp, database: Database, clock: ManualClock
) -> None:
    await add_number(api, database, OLD_SECRET)
    body = envelope({"messages": [text("wamid.A")]}, number=OTHER_P)
    # The first number accepts both secrets, so both numbers are of one app.
    assert (await post(api, body)).status_code == 200
    (request,) = coreapp.requested(core.TakeUpstreamEvents)
    assert request.account == OTHER
    # After that time the Cloud API has to repeat the post.
    clock.advance(2.0)
    assert code(await post(api, body)) == (503, codes.NOT_READY)
    await add_number(api, database, APP_SECRET)
    assert (await post(api, body)).status_code == 200
    assert len(coreapp.requested(core.TakeUpstreamEvents)) == 2


async def test_events_of_a_number_of_another_app_are_acknowledged_and_dropped(
    api: Served, coreapp: FakeCoreapp, database: Database, clock: ManualClock
) -> None:
    await add_number(api, database, "secret of another app")
    clock.advance(8 * 86_400)
    assert (await post(api, envelope({"messages": [text("wamid.A")]}, number=OTHER_P))).status_code == 200
    assert coreapp.requested(core.TakeUpstreamEvents) == []


async def test_an_event_that_is_not_on_disk_is_not_acknowledged(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.TakeUpstreamEvents, codes.NOT_READY, "the database does not respond", 1)
    assert code(await post(api, envelope({"messages": [text("wamid.A")]}))) == (503, codes.NOT_READY)


async def test_events_without_a_usable_number_go_to_the_first_shard(api: Served, coreapp: FakeCoreapp) -> None:
    body = envelope({"messages": [text("wamid.A", "US.1349"), 5], "errors": [{"code": 1}]})
    assert (await post(api, body)).status_code == 200
    (request,) = coreapp.requested(core.TakeUpstreamEvents)
    assert [(event.kind, event.peer) for event in request.events] == [("message", ""), ("message", ""), ("error", "")]


async def test_a_number_that_is_switched_to_the_network_has_no_callback(api: Served, database: Database) -> None:
    async def work(connection: Connection) -> None:
        number = await numbers.find(connection, NUMBER)
        assert number is not None
        assert await upstreams.detach(connection, number)

    await database.commit(work)
    await api.parts.common.changes.run_once()
    assert (await post(api, envelope({"messages": [text("wamid.A")]}))).status_code == 404


async def test_a_change_of_a_template_is_passed_on(api: Served, coreapp: FakeCoreapp) -> None:
    for field in ("message_template_status_update", "template_category_update"):
        assert (await post(api, envelope({"event": "PAUSED"}, field=field))).status_code == 200
    requested = coreapp.requested(core.TakeUpstreamEvents)
    assert [(event.kind, event.peer) for request in requested for event in request.events] == [("template", "")] * 2


class TwoShards:
    """Owners of two shards: numbers that end in an even digit belong to the first."""

    has_shards = True

    def __init__(self) -> None:
        self.calls: list[tuple[str, core.TakeUpstreamEvents]] = []

    def of(self, account: str) -> TwoShards:
        return self

    def shard_of(self, recipient: str) -> int:
        return int(recipient[-1]) % 2 if recipient else 0

    async def call_repeatable(self, recipient: str, make: Any, expect: Any) -> Any:
        self.calls.append((recipient, make(1)))
        return core.Done(1)


async def test_a_status_goes_to_the_shard_of_the_number_that_the_message_was_sent_to(
    api: Served, database: Database, clock: ManualClock
) -> None:
    sent = MessageRow("gBEG1", NUMBER, 1, "5215550000001", "text", Status.ACCEPTED, 1, "")
    await database.commit(lambda connection: messages.add(connection, [sent]))
    owners = TwoShards()
    callbacks = UpstreamCallbacks(
        database,
        owners,  # type: ignore[arg-type]
        safe=SecretSealer(b"s" * 32),
        clock=clock,
        standin_prefix="999",
    )
    await callbacks.poll()
    status = {"id": "wamid.B", "status": "sent", "timestamp": "1", "recipient_id": "525550000002"}
    known = status | {"biz_opaque_callback_data": "gBEG1"}
    await callbacks.commit(SECRET, envelope({"statuses": [known, status], "messages": [text("wamid.A")]}))
    found = {event.peer: peer for peer, request in owners.calls for event in request.events}
    assert found.keys() == {"5215550000001", "525550000002", "16505551234"}
    assert all(owners.shard_of(event) == owners.shard_of(call) for event, call in found.items())


USER, STAND_IN = "US.13491208655302741918", "999844650983059"


def hidden(wamid: str, user_id: Any = USER) -> dict[str, Any]:
    message = text(wamid)
    del message["from"]
    return message | ({"from_user_id": user_id} if user_id else {})


async def issue(database: Database, number: str, user_id: str) -> None:
    """Let a number stand for a user, as the owner of its shard does."""
    row = StandIn(NUMBER, number, user_id)
    await database.commit(lambda connection: standins.add(connection, NUMBER, [row]))


def passed_on(coreapp: FakeCoreapp) -> list[tuple[str, str, str]]:
    """Return number, user and name of the events, in their order."""
    requested = coreapp.requested(core.TakeUpstreamEvents)
    return [(event.peer, event.user_id, event.name) for request in requested for event in request.events]


@pytest.mark.parametrize("in_message", [USER, None, "no id", 5])
async def test_a_sender_without_a_number_gets_one_that_stands_for_them(
    api: Served, coreapp: FakeCoreapp, in_message: Any
) -> None:
    contacts = [{"profile": {"name": "Ann", "username": "ann"}, "user_id": USER}]
    body = envelope({"contacts": contacts, "messages": [hidden("wamid.A", in_message)]})
    for _ in range(2):
        # The same one before and after it is issued, and in every Webapp.
        assert (await post(api, body)).status_code == 200
    assert passed_on(coreapp) == [(STAND_IN, USER, "Ann")] * 2


async def test_a_user_keeps_the_number_when_their_own_is_shown(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await issue(database, "888000000000001", USER)
    shown = {"contacts": [{"wa_id": "16505551234", "user_id": USER, "profile": {"name": "Ann"}}]}
    body = envelope(shown | {"messages": [text("wamid.A")]}, {"messages": [hidden("wamid.B")]})
    assert (await post(api, body)).status_code == 200
    assert passed_on(coreapp) == [("888000000000001", USER, "Ann"), ("888000000000001", USER, "")]


async def test_a_user_whose_number_is_shown_gets_none(api: Served, coreapp: FakeCoreapp, database: Database) -> None:
    shown = {"contacts": [{"wa_id": "16505551234", "user_id": USER, "profile": {"name": "Ann"}}]}
    assert (await post(api, envelope(shown | {"messages": [text("wamid.A") | {"from_user_id": USER}]}))).is_success
    assert passed_on(coreapp) == [("16505551234", "", "Ann")]


NEW = "US.13491208655302741999"


def changed_id(wamid: str, *, sender: str | None = USER, user_id: Any = NEW) -> dict[str, Any]:
    """Return the notice that a user has got another id."""
    body = f"User Ann changed from {USER} to {NEW}"
    system = {"body": body, "type": "user_changed_user_id", "user_id": user_id}
    return {**hidden(wamid, sender), "type": "system", "system": system}


@pytest.mark.parametrize("sender", [USER, NEW, None])
async def test_a_notice_of_another_id_and_messages_of_both_go_to_the_number_of_the_user(
    api: Served, coreapp: FakeCoreapp, database: Database, sender: str | None
) -> None:
    await issue(database, STAND_IN, USER)
    body = envelope({"messages": [hidden("wamid.B", NEW), changed_id("wamid.N", sender=sender), hidden("wamid.A")]})
    assert (await post(api, body)).status_code == 200
    assert passed_on(coreapp) == [(STAND_IN, NEW, ""), (STAND_IN, USER, ""), (STAND_IN, USER, "")]
    # When the Coreapp has moved the number, a repeated post goes there again.
    row = StandIn(NUMBER, STAND_IN, NEW)
    await database.commit(lambda connection: standins.move(connection, NUMBER, [row]))
    assert (await post(api, body)).status_code == 200
    assert passed_on(coreapp)[3:] == passed_on(coreapp)[:3]


async def test_a_notice_of_another_id_about_a_user_without_a_number_chooses_none(
    api: Served, coreapp: FakeCoreapp
) -> None:
    body = envelope({"messages": [changed_id("wamid.A"), changed_id("wamid.B", sender=None)]})
    assert (await post(api, body)).status_code == 200
    assert passed_on(coreapp) == [("", "", ""), ("", "", "")]


@pytest.mark.parametrize("user_id", [None, 7, "no id", USER])
async def test_a_notice_without_a_new_id_is_ignored(
    api: Served, coreapp: FakeCoreapp, database: Database, user_id: Any
) -> None:
    await issue(database, STAND_IN, USER)
    body = envelope({"messages": [changed_id("wamid.A", user_id=user_id), hidden("wamid.B", "US.2")]})
    assert (await post(api, body)).status_code == 200
    chosen = standin_numbers.candidates("999", "US.2")[0]
    assert passed_on(coreapp) == [(STAND_IN, USER, ""), (chosen, "US.2", "")]


async def test_a_number_that_stands_for_another_user_is_not_chosen(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await issue(database, STAND_IN, "US.1")
    assert (await post(api, envelope({"messages": [hidden("wamid.A")]}))).status_code == 200
    assert passed_on(coreapp) == [("999342688186451", USER, "")]


async def test_a_sender_without_number_and_id_is_left_to_the_first_shard(api: Served, coreapp: FakeCoreapp) -> None:
    several = [{"user_id": USER}, {"user_id": "US.2"}]
    body = envelope({"contacts": several, "messages": [hidden("wamid.A", None), hidden("wamid.B", "?")]})
    assert (await post(api, body)).status_code == 200
    assert passed_on(coreapp) == [("", "", ""), ("", "", "")]


async def test_events_of_such_users_go_to_the_shard_of_their_number(
    api: Served, database: Database, clock: ManualClock
) -> None:
    owners = TwoShards()
    callbacks = UpstreamCallbacks(
        database,
        owners,  # type: ignore[arg-type]
        safe=SecretSealer(b"s" * 32),
        clock=clock,
        standin_prefix="999",
    )
    await callbacks.poll()
    await issue(database, STAND_IN, USER)
    status = {"id": "wamid.B", "status": "sent", "timestamp": "1", "recipient_user_id": USER}
    body = envelope({"messages": [hidden("wamid.A"), hidden("wamid.C", "US.2")], "statuses": [status]})
    await callbacks.commit(SECRET, body)
    found = [(event.kind, event.peer) for _, request in owners.calls for event in request.events]
    assert sorted(found) == sorted(
        [("message", STAND_IN), ("status", STAND_IN), ("message", standin_numbers.candidates("999", "US.2")[0])]
    )
    for recipient, request in owners.calls:
        assert {owners.shard_of(event.peer) for event in request.events} == {owners.shard_of(recipient)}


@pytest.mark.parametrize("path", [PATH, PATH.replace("/callbacks", "//callbacks"), f"{PATH}/"])
async def test_the_secret_of_a_path_is_not_logged(
    api: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    async def fail(*args: object, **options: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(UpstreamCallbacks, "commit", fail)
    with caplog.at_level(logging.DEBUG):
        response = await post(api, envelope({"messages": [text("wamid.A")]}), path=path)
    assert response.status_code == 500
    assert "http.failed" in caplog.messages
    assert [vars(record)["path"] for record in caplog.records if record.message == "http.failed"] == [CALLBACKS]
