"""Clients of v1 get the same results from A, which sends through the Cloud API of B, as from B itself, which sends
through its network; except for what the Cloud API does not have.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness.client import Business
from harness.cloud_pair import CloudPair
from tests.media_samples import PNG
from tests.system.webhook import Webhook, listening
from tests.webapp import message_cases

pytestmark = [pytest.mark.whole_system, pytest.mark.asyncio(loop_scope="module")]

DATA = Path(__file__).parents[1] / "data" / "api"
READER, ECHO = "15550110001", "15550140001"
PROFILE = {
    "address": "1 Main Street",
    "description": "Parcels",
    "email": "desk@example.com",
    "vertical": "Education",
    "websites": ["https://example.com"],
}
ABOUT, PHOTO = "/v1/settings/profile/about", "/v1/settings/profile/photo"
BUSINESS, TWO_STEP = "/v1/settings/business/profile", "/v1/settings/account/two-step"

# Requests that succeed, or fail in the same way. Values of responses that differ each time are compared by their type.
CALLS: Sequence[tuple[str, str, Any]] = [
    ("GET", "/v1/health", None),
    ("POST", "/v1/contacts", {"blocking": "wait", "contacts": [f"+{READER}", READER, "not a number"]}),
    ("GET", "/v1/settings/application", None),
    ("PATCH", "/v1/settings/application", {"callback_backoff_delay_ms": "3000", "on_call_pager": "x"}),
    ("PATCH", ABOUT, {"text": "We are here"}),
    ("PATCH", ABOUT, {"text": "x" * 140}),
    ("GET", ABOUT, None),
    ("POST", BUSINESS, PROFILE),
    ("GET", BUSINESS, None),
    ("POST", BUSINESS, {"address": "2 Main Street"}),
    ("GET", BUSINESS, None),
    ("POST", BUSINESS, {"email": "x" * 129}),
    ("GET", f"{PHOTO}?format=link", None),
    ("DELETE", PHOTO, None),
    ("POST", TWO_STEP, {"pin": "123456"}),
    ("POST", TWO_STEP, {"pin": "12"}),
    ("POST", "/v1/configs/templates", {"name": "x", "language": "en_US", "category": "UTILITY", "components": []}),
    ("GET", "/v1/configs/templates", None),
    ("PUT", "/v1/messages/gBEGkYiEB1VXAglK1ZEqA1YKPrU", {"status": "read"}),
    ("GET", "/v1/media/11111111-1111-4111-8111-111111111111", None),
    ("GET", "/v1/certificates/webhooks/ca", None),
    ("GET", "/v1/account/shards", None),
    ("GET", "/v1/users/admin", None),
    ("GET", "/v1/nothing", None),
]

# Requests that succeed at a number of the network, and are refused because the Cloud API has nothing like it.
REFUSED: Mapping[str, tuple[str, str, Any, int, str]] = {
    "group": ("POST", "/v1/groups", {"subject": "Friends"}, 1005, "no groups"),
    "life": ("POST", "/v1/messages", {"to": READER, "ttl": 60, "text": {"body": "x"}}, 1010, "ttl"),
    "PIN": ("DELETE", TWO_STEP, None, 1005, "cannot remove a two-step PIN"),
    "photo": ("DELETE", PHOTO, None, 1005, "cannot remove a profile photo"),
    "import": ("POST", "/v1/configs/templates/import", {"data": []}, 1005, "one by one"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def businesses(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Business, Business]]:
    """Yield the businesses at A and at B, whose rates are unlimited."""
    unlimited = {"TIDINGS_MESSAGES_RATE": "0", "TIDINGS_CONTACTS_RATE": "0"}
    robots = {"TIDINGS_ROBOTS_PER_KIND": "2"}
    async with CloudPair(tmp_path_factory.mktemp("pair"), a=unlimited, b=unlimited | robots) as pair:
        yield await pair.start(), await pair.b.business()


def shape(value: Any) -> Any:
    """Return the structure of a response, with the types of its values, and the codes of errors."""
    if isinstance(value, dict):
        return {name: each if name == "code" else shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value[:1]]
    return type(value).__name__


async def results(business: Business) -> list[Any]:
    """Return request, status and shape of each response."""
    found = []
    for method, path, body in CALLS:
        status, response = await business.call(method, path, body)
        found.append((method, path, status, shape(response)))
    return found


def accepted_bodies() -> Mapping[str, dict[str, Any]]:
    """Return messages of clients that v1 accepts, by the name of their case."""
    found = {f"text, {one['case']}": one["body"] for one in json.loads((DATA / "messages_good.json").read_text())}
    for name in ("contacts", "location", "interactive"):
        cases = json.loads((DATA / "messages" / f"{name}.json").read_text())["good"]
        found |= {f"{name}, {case}": one["body"] for case, one in cases.items()}
    # Files of these cases do not exist.
    kinds = ("image", "video", "document", "audio", "sticker")
    return {case: body for case, body in found.items() if not any(f'"{kind}"' in json.dumps(body) for kind in kinds)}


async def send_all(business: Business, received: Webhook, bodies: Mapping[str, dict[str, Any]]) -> Mapping[str, Any]:
    """Send messages. Returns the status of the call and the statuses of the message, by case."""
    ids: dict[str, str] = {}
    outcomes: dict[str, Any] = {}
    for case, body in bodies.items():
        status, response = await business.call("POST", "/v1/messages", {**body, "to": READER})
        outcomes[case] = (status, shape(response))
        if status == 201:
            ids[case] = response["messages"][0]["id"]
    waited = set(ids.values())

    def is_last(body: dict[str, Any]) -> bool:
        for status in body.get("statuses", ()):
            if status["status"] in ("read", "failed"):
                waited.discard(status["id"])
        return not waited

    try:
        await received.until(is_last)
    except TimeoutError:
        pytest.fail(f"without a last status: {[case for case, one in ids.items() if one in waited]}")
    posted = [status for body in received.bodies for status in body.get("statuses", ())]
    return {
        case: (*outcomes[case], [status["status"] for status in posted if status["id"] == ids.get(case)])
        for case in bodies
    }


async def with_webhook(business: Business, url: str) -> None:
    await business.set_webhook(url)
    await business.check_contacts([READER, ECHO])


async def test_calls_have_the_same_results_except_those_that_the_cloud_api_lacks(
    businesses: tuple[Business, Business],
) -> None:
    business, owner = businesses
    at_b, at_a = await results(owner), await results(business)
    differ = [both for both in zip(at_a, at_b, strict=True) if both[0] != both[1]]
    assert not differ, "\n".join(map(repr, differ))
    # Which other metrics are shown depends on what a Coreapp has done.
    for one in (owner, business):
        assert "pending_messages" in (await one.check_call("GET", "/v1/stats/app"))["stats"]["app"]
    # A has changed the profile of the number at B.
    assert (await owner.check_call("GET", BUSINESS))["settings"]["business"]["profile"]["address"] == "2 Main Street"
    await business.check_call("PATCH", ABOUT, {"text": "Closed"})
    assert (await owner.check_call("GET", ABOUT))["settings"]["profile"]["about"]["text"] == "Closed"
    await upload_photo(business)
    assert await photo(business) == await photo(owner) == PNG
    # B requires the PIN that A has set.
    registration = {"cc": "1", "phone_number": "5550000000", "shards": 1}
    assert (await owner.call("POST", "/v1/account/shards", registration))[0] == 400
    for method, path, body, code, words in REFUSED.values():
        status, response = await business.call(method, path, body)
        assert (status // 100, response["errors"][0]["code"]) == (4, code), (path, response)
        assert words in response["errors"][0]["details"]
    for method, path, body, *_ in (REFUSED[name] for name in ("group", "life", "PIN", "photo")):
        status, response = await owner.call(method, path, body)
        assert status in (200, 201), (path, response)


async def test_messages_have_the_same_results(businesses: tuple[Business, Business]) -> None:
    business, owner = businesses
    bodies = accepted_bodies()
    assert len(bodies) > 40
    async with listening() as (received, url):
        await with_webhook(owner, url)
        at_b = await send_all(owner, received, bodies)
        await owner.check_call("POST", "/v1/messages", {"to": ECHO, "text": {"body": "Hello"}})
        reply_at_b = shape(await received.until(lambda body: "messages" in body))
        await owner.check_call("PATCH", "/v1/settings/application", {"webhooks": {"url": ""}})
        received.bodies.clear()
        await with_webhook(business, url)
        at_a = await send_all(business, received, bodies)
        await business.check_call("POST", "/v1/messages", {"to": ECHO, "text": {"body": "Hello"}})
        assert shape(await received.until(lambda body: "messages" in body)) == reply_at_b
    assert {case: found for case, found in at_a.items() if found != at_b[case]} == {}


async def test_wrong_messages_have_the_same_results(businesses: tuple[Business, Business]) -> None:
    business, owner = businesses
    wrong = [one["body"] for one in json.loads((DATA / "messages_wrong.json").read_text())]
    for name in ("contacts", "location", "interactive", "hsm", "media", "template"):
        wrong += [case.values[0] for case in message_cases.wrong(name)]
    assert len(wrong) > 100
    differ = []
    for body in wrong:
        at_b, at_a = [await one.call("POST", "/v1/messages", body) for one in (owner, business)]
        assert at_b[0] >= 400, body
        if (at_a[0], at_a[1].get("errors")) != (at_b[0], at_b[1]["errors"]):
            differ.append((body, at_a, at_b))
    assert not differ, "\n".join(map(repr, differ))


async def upload_photo(business: Business) -> None:
    connection = await business.connect()
    try:
        request = business.request("POST", PHOTO, PNG, mime_type="image/png")
        status, response = await connection.request(request)
    finally:
        connection.close()
    assert status == 200, response


async def photo(business: Business) -> bytes:
    connection = await business.connect()
    try:
        status, content = await connection.request(business.request("GET", PHOTO, b""))
    finally:
        connection.close()
    assert status == 200, content
    return bytes(content)
