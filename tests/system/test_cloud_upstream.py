"""A client of v1 at A, whose number sends through the Cloud API of B: the client does not notice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness import polling
from harness.client import Business
from harness.cloud_client import VERSION
from harness.cloud_pair import CloudPair
from harness.proxy import Proxy
from tests.system.webhook import Webhook, listening

pytestmark = [pytest.mark.whole_system, pytest.mark.asyncio(loop_scope="module")]

READER, ECHO, MISSING, ANSWERING = "15550110001", "15550140001", "15550160001", "15550180001"
NAMED = "15550370007"  # of a user with a user name, whose number is hidden


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CloudPair]:
    """Installations that run and are connected, for the tests of this module that need no other ones."""
    async with CloudPair(tmp_path_factory.mktemp("pair"), b={"TIDINGS_ROBOTS_PER_KIND": "2"}) as started:
        await started.start()
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def webhook() -> AsyncIterator[tuple[Webhook, str]]:
    """Yield a webhook and its URL."""
    async with listening() as found:
        yield found


async def send(business: Business, to: str, **fields: Any) -> str:
    """Send a message over v1. Returns its id."""
    message = {"to": to, "type": "text", "text": {"body": "Hello"}, **fields}
    response = await business.check_call("POST", "/v1/messages", message)
    message_id: str = response["messages"][0]["id"]
    assert len(message_id) == 27
    return message_id


def statuses(webhook: Webhook, message_id: str) -> list[str]:
    """Return the statuses of a message in their order. After a kill a callback may arrive twice."""
    found = [status for body in webhook.bodies for status in body.get("statuses", ())]
    return list(dict.fromkeys(status["status"] for status in found if status["id"] == message_id))


async def test_messages_statuses_replies_and_read_marks_pass_through_both(
    pair: CloudPair, webhook: tuple[Webhook, str]
) -> None:
    received, url = webhook
    business = await pair.a.business()
    await business.set_webhook(url)
    await business.check_contacts([READER, ECHO])
    before = pair.b.shown_bytes()

    message_id = await send(business, READER)
    await received.until(lambda _: len(statuses(received, message_id)) == 3)
    assert statuses(received, message_id) == ["sent", "delivered", "read"]

    echoed = await send(business, ECHO, text={"body": "Grüße / \U0001f642"})
    reply = await received.received("text")
    assert (reply["from"], reply["text"]) == (ECHO, {"body": "Grüße / \U0001f642"})
    assert len(reply["id"]) == 27
    await received.until(lambda _: len(statuses(received, echoed)) == 3)
    await business.check_call("PUT", f"/v1/messages/{reply['id']}", {"status": "read"})
    # A reply to the robot's message, which the robot echoes.
    reply_id = await send(business, ECHO, text={"body": "again"}, context={"message_id": reply["id"]})
    await received.until(lambda _: len(statuses(received, reply_id)) == 3)

    shown = {line.message_id for line in pair.b.list_shown(before)}
    assert len(shown) == 3
    # Nothing was sent twice.
    assert len(pair.b.list_shown(before)) == 3


async def test_a_recipient_who_does_not_exist_fails_as_over_v1(pair: CloudPair, webhook: tuple[Webhook, str]) -> None:
    received, url = webhook
    business = await pair.a.business()
    await business.set_webhook(url)
    message_id = await send(business, MISSING)
    await received.until(lambda _: bool(statuses(received, message_id)))
    (status,) = (
        status for body in received.bodies for status in body.get("statuses", ()) if status["id"] == message_id
    )
    assert status["status"] == "failed"
    assert status["errors"][0]["code"] == 1013
    response = await business.check_call("POST", "/v1/contacts", {"blocking": "wait", "contacts": [f"+{MISSING}"]})
    assert response["contacts"][0]["status"] == "invalid"


@pytest.mark.parametrize("word", ["location", "order", "reaction"])
async def test_messages_of_other_types_arrive(pair: CloudPair, webhook: tuple[Webhook, str], word: str) -> None:
    received, url = webhook
    business = await pair.a.business()
    await business.set_webhook(url)
    message_id = await send(business, ANSWERING, text={"body": word})
    message = await received.received(word)
    assert message["from"] == ANSWERING
    if word == "reaction":
        assert message["reaction"]["message_id"] == message_id


async def test_a_user_without_a_visible_number_gets_a_reply_at_the_stand_in_number(
    tmp_path: Path, webhook: tuple[Webhook, str]
) -> None:
    received, url = webhook
    variables = {"TIDINGS_ROBOTS_PER_KIND": "1", "TIDINGS_CLOUD_BSUID": "1", "TIDINGS_TESTING": "1"}
    async with CloudPair(tmp_path, b=variables) as pair:
        business = await pair.start()
        await business.set_webhook(url)
        first = await send(business, NAMED)
        reply = await received.received("text")
        stand_in = reply["from"]
        assert (len(stand_in), stand_in[:3]) == (15, "999")
        response = await business.check_call("POST", "/v1/contacts", {"blocking": "wait", "contacts": [f"+{stand_in}"]})
        assert response["contacts"] == [{"input": f"+{stand_in}", "status": "valid", "wa_id": stand_in}]
        second = await send(business, stand_in, text={"body": "to the number that stands for the user"})
        await received.until(lambda _: len(statuses(received, second)) == 3)
        echoed = await received.until(lambda body: "to the number that stands" in str(body.get("messages")))
        assert echoed["contacts"][0]["wa_id"] == echoed["messages"][0]["from"] == stand_in
        found = [status for body in received.bodies for status in body.get("statuses", ())]
        assert {status["recipient_id"] for status in found if status["id"] == second} == {stand_in}
        await received.until(lambda _: len(statuses(received, first)) == 3)


async def test_a_coreapp_that_is_killed_sends_nothing_twice(pair: CloudPair, webhook: tuple[Webhook, str]) -> None:
    received, url = webhook
    business = await pair.a.business()
    await business.set_webhook(url)
    before = pair.b.shown_bytes()
    sent = [await send(business, f"155501100{n % 2:02}", text={"body": str(n)}) for n in range(10)]
    await pair.a.processes["coreapp"].kill9()
    await pair.a.start(["coreapp"])
    sent += [await send(business, READER, text={"body": f"later {n}"}) for n in range(5)]

    def is_settled() -> bool:
        return all(statuses(received, one)[-1:] in (["read"], ["failed"]) for one in sent)

    await polling.until(is_settled, seconds=90.0)
    shown = [line.digest for line in pair.b.list_shown(before)]
    assert len(shown) == len(set(shown))
    read = [one for one in sent if statuses(received, one) == ["sent", "delivered", "read"]]
    failed = [one for one in sent if statuses(received, one) == ["failed"]]
    assert len(read) + len(failed) == 15
    assert len(read) <= len(shown) <= 15


async def test_the_command_shows_the_upstream(pair: CloudPair) -> None:
    shown = await pair.run("number", "upstream", "15550000000")
    assert f"base URL         {pair.base_url}\n" in shown
    assert "state            working\n" in shown
    assert "rate             80 messages a second\n" in shown


@pytest.mark.parametrize("outcome", ["fail", "resend"])
async def test_a_cut_connection_sends_nothing_twice_or_loses_nothing_as_configured(
    tmp_path: Path, webhook: tuple[Webhook, str], outcome: str
) -> None:
    received, url = webhook
    variables = {"TIDINGS_CLOUD_UNKNOWN_OUTCOME": outcome, "TIDINGS_CLOUD_UNKNOWN_WAIT_S": "3"}
    async with CloudPair(tmp_path, a=variables, b={"TIDINGS_ROBOTS_PER_KIND": "8"}) as pair:
        proxy = Proxy("127.0.0.1", pair.b.api_port)
        await proxy.start()
        try:
            business = await pair.start(f"{proxy.url}/{VERSION}")
            await business.set_webhook(url)
            sent = []
            for n in range(64):
                sent.append(await send(business, f"1555011{n % 8:04}", text={"body": f"number {n}"}))
                if n % 8 == 5:
                    # In the middle of posts and of their responses.
                    proxy.cut()
                elif n % 8 == 7:
                    proxy.open()

            def is_settled() -> bool:
                return all(statuses(received, one)[-1:] in (["read"], ["failed"]) for one in sent)

            await polling.until(is_settled, seconds=180.0)
        finally:
            await proxy.stop()
        shown = [line.digest for line in pair.b.list_shown()]
        failed = [one for one in sent if statuses(received, one) == ["failed"]]
        read = [one for one in sent if statuses(received, one) == ["sent", "delivered", "read"]]
        assert len(read) + len(failed) == 64
        if outcome == "fail":
            assert len(shown) == len(set(shown))
            assert len(read) <= len(shown)
        else:
            assert failed == []
            assert len(set(shown)) == 64
