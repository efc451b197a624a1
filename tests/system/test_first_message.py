"""Main scenario on real processes: a business sends, a recipient reads and replies, the webhook gets all
callbacks."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import jwt
import pytest

from harness import ledger, polling
from harness.client import Business
from harness.installation import Installation
from harness.sink import Record
from harness.sink_process import SinkProcess

pytestmark = pytest.mark.whole_system

READER, ECHO, UNKNOWN = "15550110001", "15550140001", "15550160001"
SECONDS = 30.0
# Optional script of a business, which is kept outside the repository.
PLAY = Path(__file__).parents[3] / "shared" / "acceptance" / "first_message.py"


@pytest.fixture
async def installation(
    database_engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Installation]:
    """Installation that is not started; with five robots of each kind."""
    mariadb = request.getfixturevalue("installation_mariadb") if database_engine == "mariadb" else None
    async with Installation(tmp_path, mariadb, {"TIDINGS_ROBOTS_PER_KIND": "5"}) as prepared:
        yield prepared


class Webhook:
    """Bodies that the sink got, checked until a condition holds."""

    def __init__(self, sink: SinkProcess) -> None:
        self.sink = sink
        self.records: list[Record] = []

    async def wait_for(self, wanted: Callable[[list[Record]], bool]) -> None:
        async def is_there() -> bool:
            self.records += await self.sink.take()
            return wanted(self.records)

        await polling.until(is_there, seconds=SECONDS)

    def statuses(self, message_id: str) -> list[str]:
        return [record.status for record in self.records if record.message_id == message_id]


@pytest.fixture
async def webhook(installation: Installation, tmp_path: Path) -> AsyncIterator[Webhook]:
    async with SinkProcess(tmp_path, installation.webhook_secret, verify_every=1) as sink:
        yield Webhook(sink)


async def play(installation: Installation, webhook: Webhook, text: str) -> None:
    """Check contacts, send a message that is read, and one that gets a reply."""
    business = await installation.business()
    await business.set_webhook(webhook.sink.url)
    numbers = [f"+{READER}", ECHO, f"+{UNKNOWN}"]
    contacts = (await business.check_call("POST", "/v1/contacts", {"blocking": "wait", "contacts": numbers}))[
        "contacts"
    ]
    assert contacts == [
        {"input": f"+{READER}", "status": "valid", "wa_id": READER},
        {"input": ECHO, "status": "valid", "wa_id": ECHO},
        {"input": f"+{UNKNOWN}", "status": "invalid"},
    ]

    read = await send(business, READER, text)
    await webhook.wait_for(lambda records: "read" in webhook.statuses(read))
    assert webhook.statuses(read) == ["sent", "delivered", "read"]
    assert (READER, read, ledger.digest(text)) in [
        (line.number, line.message_id, line.digest) for line in installation.list_shown()
    ]

    echoed = await send(business, ECHO, f"{text}, and back")
    await webhook.wait_for(lambda records: any(record.text == f"{text}, and back" for record in records))
    (reply,) = [record for record in webhook.records if record.text == f"{text}, and back"]
    assert reply.sender == ECHO
    await webhook.wait_for(lambda records: "read" in webhook.statuses(echoed))
    counts = await webhook.sink.counts()
    assert not counts.bad_signatures


async def send(business: Business, number: str, text: str) -> str:
    response = await business.check_call("POST", "/v1/messages", {"to": number, "type": "text", "text": {"body": text}})
    message_id: str = response["messages"][0]["id"]
    return message_id


async def test_a_message_is_read_and_answered_before_and_after_a_restart(
    installation: Installation, webhook: Webhook
) -> None:
    await installation.start()
    await play(installation, webhook, "first: \u00fc \u4f60\u597d \U0001f44b")
    await installation.stop()
    await installation.start()
    await play(installation, webhook, "second, after a restart")
    await run_the_play_beside_the_repository(installation)
    shown = installation.list_shown()
    assert len({line.message_id for line in shown}) == len(shown)
    events = [record.event_id for record in webhook.records]
    assert len(set(events)) == len(events), "nothing was repeated, since nothing failed"


async def run_the_play_beside_the_repository(installation: Installation) -> None:
    if not PLAY.exists():
        return
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PLAY), f"http://127.0.0.1:{installation.api_port}", "--timeout", str(SECONDS)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


@pytest.mark.parametrize("database_engine", ["sqlite"])
async def test_invalid_requests_get_their_errors_and_lose_no_message(
    installation: Installation, webhook: Webhook
) -> None:
    await installation.start()
    business = await installation.business()
    await business.set_webhook(webhook.sink.url)
    await business.check_contacts([READER])
    before = await send(business, READER, "before")

    def message(**changes: Any) -> dict[str, Any]:
        return {"to": READER, "type": "text", "text": {"body": "refused"}, **changes}

    messages, settings = "/v1/messages", "/v1/settings/application"
    await refused(business, "POST", messages, b'{"to": "1555', 400)
    await refused(business, "POST", messages, b"[1, 2]", 400)
    await refused(business, "POST", messages, b"\xff\xfe", 400)
    await refused(business, "POST", messages, encode(message(text={"body": "x" * 10_000_000})), (400, 413))
    await refused(business, "POST", messages, encode(message(text={"body": "x" * 4097})), 400, 1001)
    await refused(business, "POST", messages, encode({"to": READER, "type": "text"}), 400, 1008)
    await refused(business, "POST", messages, encode(message(to=UNKNOWN)), 400, 1013)
    await refused(business, "GET", "/v1/nothing", b"", 404)
    await refused(business, "GET", messages, b"", 405)
    checked = {"blocking": "wait", "contacts": [UNKNOWN]}
    assert (await business.check_call("POST", "/v1/contacts", checked))["contacts"][0]["status"] == "invalid"
    await refused(business, "POST", messages, encode(message(to=UNKNOWN)), 400, 1013)
    for url in ("no url", "ftp://127.0.0.1/", "http://", 7):
        await refused(business, "PATCH", settings, encode({"webhooks": {"url": url}}), 400)
    for token in ("", "wrong", expired_token(installation, business.token)):
        await refused(business, "POST", messages, encode(message()), 401, authorization=f"Bearer {token}".encode())

    after = await send(business, READER, "x" * 4096)
    await webhook.wait_for(lambda records: "read" in webhook.statuses(after) and "read" in webhook.statuses(before))
    assert sorted(line.message_id for line in installation.list_shown()) == sorted([before, after])
    application = (await business.check_call("GET", settings))["settings"]["application"]
    assert application["webhooks"]["url"] == webhook.sink.url


async def refused(
    business: Business,
    method: str,
    path: str,
    body: bytes,
    status: int | tuple[int, ...],
    code: int | None = None,
    *,
    authorization: bytes | None = None,
) -> None:
    """Check that the response is an error in the API's format."""
    connection = await business.connect()
    try:
        found, raw = await connection.request(business.request(method, path, body, authorization), timeout=SECONDS)
    finally:
        connection.close()
    errors = json.loads(raw)["errors"]
    what = f"{method} {path} {body[:40]!r}: {found} {errors}"
    assert found in (status if isinstance(status, tuple) else (status,)), what
    assert errors[0]["title"], what
    assert code is None or errors[0]["code"] == code, what


def expired_token(installation: Installation, token: str) -> str:
    """Return the token with the installation's signature and an expiry one hour before its issue."""
    key = json.loads((installation.data_dir / "secrets" / "webapp.json").read_text())["jwt_key"]
    claims = jwt.decode(token, key, algorithms=["HS256"])
    return jwt.encode({**claims, "exp": claims["iat"] - 3600}, key, algorithm="HS256")


def encode(body: Any) -> bytes:
    return json.dumps(body).encode()
