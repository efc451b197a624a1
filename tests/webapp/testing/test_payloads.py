"""200 hostile texts through every string field, parameter and path of the calls for tests: no 5xx, always the API's
format.

`make fuzz` puts all texts into each place, `make test` an eighth, which differs from place to place.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.webapp import string_locations
from tests.webapp.conftest import Serve, Served
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.payloads import share
from tests.webapp.string_locations import put
from tests.webapp.test_payloads import check_serves, send
from tidings.wire import recipients

RECIPIENT = "/tidings/recipients/15550110000"
WAMID = "wamid.HBgLMTU1NTAxMTAwMDEVAgARGBI0"
QUOTED = {"context": {"message_id": "a", "from": "15550000000"}, "profile": {"name": "Ann"}, "to": "15550000000"}
MESSAGES: tuple[dict[str, Any], ...] = (
    {"type": "text", "text": {"body": "Hello"}, **QUOTED, "referral": {"source_url": "https://example.com"}},
    {"type": "location", "location": {"name": "a", "address": "b", "url": "c", "latitude": 1, "longitude": 2}},
    {
        "type": "interactive",
        "interactive": {"type": "list_reply", "list_reply": {"id": "a", "title": "b", "description": "c"}},
    },
    {"type": "button", "button": {"payload": "a", "text": "b"}},
    {"type": "order", "order": {"catalog_id": "a", "text": "b", "product_items": [{"product_retailer_id": "c"}]}},
    {"type": "reaction", "reaction": {"message_id": WAMID, "emoji": "x"}},
    {"type": "system", "system": {"body": "a", "type": "customer_changed_number", "new_wa_id": "b"}},
    {"type": "deleted", "deleted": {"id": "a"}},
    {"type": "contacts", "contacts": [{"name": {"formatted_name": "a"}, "phones": [{"phone": "b"}]}]},
    {"type": "document", "document": {"data": "aGVsbG8=", "mime_type": "a", "filename": "b", "caption": "c"}},
)
BODIES: tuple[tuple[str, dict[str, Any]], ...] = (
    *((f"{RECIPIENT}/messages", message) for message in MESSAGES),
    ("/tidings/faults", {"target": "messages", "times": "1", "every": "0", "http": "500", "code": "1", "x": "y"}),
    ("/tidings/faults", {"target": "media", "retry_after_s": "1"}),
    ("/tidings/webhooks", {"field": "account_update", "value": {"event": "a", "b": [{"c": "d"}]}, "x": "y"}),
)
PATHS = (
    *(("GET", path) for path in ("/tidings/{}", "/tidings/recipients/{}/shown", "/tidings/recipients/{}")),
    ("POST", "/tidings/recipients/{}/messages"),
    ("POST", RECIPIENT + "/{}"),
    ("DELETE", "/tidings/faults/{}"),
)


async def _respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    recipients.decode_call(await reader.readline())
    writer.write(recipients.encode(recipients.RecipientDone(id="a")) + b"\n")
    await writer.drain()
    writer.close()


@pytest.fixture
async def served(serve: Serve, coreapp: FakeCoreapp) -> AsyncIterator[Served]:
    """Webapp in test mode, with robots that accept each well-formed call."""
    found = await serve(cloud_api=True, testing=True)
    await found.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    directory = found.settings.data_dir
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    robots = await asyncio.start_unix_server(
        _respond, recipients.address_of(directory, descriptor), limit=recipients.MAX_LINE
    )
    yield found
    robots.close()
    os.close(descriptor)


async def test_no_text_breaks_a_string_field(served: Served, is_long: bool) -> None:
    places = [(path, good, location) for path, good in BODIES for location in string_locations.in_body(good)]
    assert (await served.http.post(f"{RECIPIENT}/messages", json=MESSAGES[0])).status_code == 201
    for number, (path, good, location) in enumerate(places):
        for text in share(number, is_long):
            await send(served, "POST", path, json=put(good, location, text))
            # 100 faults are the limit, and the next calls shall meet none.
            if path == "/tidings/faults":
                await send(served, "DELETE", path)
    await check_serves(served)


async def test_no_text_breaks_a_parameter_or_a_path(served: Served, is_long: bool) -> None:
    for number, name in enumerate(("after", "limit", "x")):
        for text in share(number, is_long):
            await send(served, "GET", f"{RECIPIENT}/shown", params={name: text})
    for number, (method, path) in enumerate(PATHS):
        for text in share(number, is_long):
            body = MESSAGES[0] if method == "POST" else None
            await send(served, method, path.format(quote(text, safe="")), json=body)
    await check_serves(served)
