"""Extreme contents from recipients and callers: no database refuses a row or a query because of them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.coreapp import media_scene as scene
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.receiving.test_events import with_session
from tests.coreapp.receiving.test_hostile_peers import acknowledged
from tidings.wire import core
from tidings.wire import device as frames

NUMBER = "15550110001"
GROUP = "15550110001-1700000000"
WIDE = "\U0001f600"  # four bytes in UTF-8

# Message ids that an envelope may refer to, as the network lets them through.
STRANGE = [
    "ü" * 64,
    WIDE * 64,
    "\0" * 64,
    "'",
    "\\",
    "%",
    " ",
    "",
    "a ",
    "\ud7ff\ue000\uffff",
    "~1",
    "x~99999",
    "\x7f" * 64,
]
SHA256 = "0" * 64


def file(kind: str, **more: Any) -> dict[str, Any]:
    pointer = {
        "blob": "b" * 64,
        "key": base64.b64encode(bytes(64)).decode(),
        "digest": base64.b64encode(bytes(32)).decode(),
        "size": 100 * 1024 * 1024,
    }
    return {"type": kind, kind: {"mime_type": "image/png", "sha256": SHA256, **pointer, **more}}


CONTENTS: list[Any] = [
    {"type": "text", "text": {"body": WIDE * 4_096}, "profile": {"name": WIDE * 10_000}},
    {"type": "text", "text": {"body": "\0"}, "profile": {"name": "\0\ud7ff\uffff"}},
    {"type": WIDE * 64},
    {"type": "\0"},
    {"type": "x" * 10_000, "x" * 10_000: {}},
    {"type": "sender_key_request", "sender_key_request": {"group": "!" * 64}},
    {"type": "sender_key", "sender_key": {"group": "!" * 64, "distribution": "AAAA"}},
    {"type": "deleted", "deleted": {"id": "~" * 64}},
    {"type": "deleted", "deleted": {"id": "~" * 63 + "\n"}},
    {"type": "reaction", "reaction": {"message_id": "~" * 64, "emoji": "\U0001f468" * 32}},
    {"type": "system", "system": {"type": "user_changed_number", "new_wa_id": "9" * 20 + "\n", "body": WIDE * 1_024}},
    {"type": "order", "order": {"catalog_id": WIDE * 100, "product_items": [], "text": "\0" * 1_024}},
    {"type": "button", "button": {"text": WIDE * 25, "payload": WIDE * 15_000}},
    {"type": "location", "location": {"latitude": -90, "longitude": 1e-300, "name": WIDE * 1_024}},
    file("document", filename=WIDE * 10_000, mime_type="a/" + "b" * 127 + "; c=" + '"' + "d" * 120 + '"'),
    file("document", filename="a." + WIDE * 254, mime_type=WIDE * 255),
    file("document", filename="\0" * 255, mime_type="\0"),
    file("sticker", filename="../" * 100, mime_type="", metadata={"emojis": [WIDE * 64] * 20}),
    file("image", caption=WIDE * 1_024, size=2**63),
    file("voice", size=-1),
]


@pytest.mark.parametrize("group", ["", GROUP])
async def test_impossible_message_ids_are_ignored(world: World, group: str) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    kinds = (frames.DELIVERED, frames.READ, frames.RETRY, frames.EXPIRED)
    for kind in kinds:
        world.network.deliver(NUMBER, kind, id=kind, refs=STRANGE, group=group)
    await acknowledged(world, *kinds)
    assert not running.shard.context.journal.broken.done()


@pytest.mark.parametrize("kind", [frames.DELIVERED, frames.READ, frames.RETRY, frames.MESSAGE])
async def test_the_id_of_a_message_with_a_blank_behind_it_does_not_end_the_shard(world: World, kind: str) -> None:
    running, _, message = await with_session(world)
    await world.sink.signals.until(lambda: world.sink.statuses_of(message) == ["sent"])
    journal = running.shard.context.journal
    world.network.deliver(NUMBER, kind, id="blank", body=b"\0", refs=[f"{message} "])
    await acknowledged(world, "blank")
    assert not journal.broken.done()


@pytest.mark.parametrize("kind", [frames.PREKEY, frames.MESSAGE, frames.GROUP, frames.GROUP_CHANGED, frames.IDENTITY])
async def test_an_envelope_with_impossible_ids_is_acknowledged(world: World, kind: str) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    for number, ref in enumerate(STRANGE):
        world.network.deliver(
            NUMBER, kind, id=f"{number}".rjust(64, "!"), body=b"\0", refs=[ref], trace="~" * 64, group=GROUP
        )
    await acknowledged(world, *(f"{number}".rjust(64, "!") for number in range(len(STRANGE))))
    assert not running.shard.context.journal.broken.done()


async def test_extreme_contents_are_stored_and_posted(world: World) -> None:
    (phone,) = world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    names = [f"{number}".rjust(64, "~") for number in range(len(CONTENTS))]
    for name, content in zip(names, CONTENTS, strict=True):
        kind, body = phone.write(json.dumps(content).encode(), world.network.business_bundle())
        world.network.deliver(NUMBER, kind, id=name, body=body, trace="x" * 64, timestamp=2**63 - 1)
    await acknowledged(world, *names)
    assert not running.shard.context.journal.broken.done()


async def test_files_with_extreme_names_and_types_are_stored(world: World) -> None:
    (phone,) = world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    contents = [content for content in CONTENTS if content["type"] == "document"]
    for number, content in enumerate(contents):
        pointer = world.network.blobs.put(scene.PNG, "image/png")
        said = content["document"]
        sent = {**pointer, "mime_type": said["mime_type"], "filename": said["filename"]}
        kind, body = phone.write(
            json.dumps({"type": "document", "document": sent}).encode(), world.network.business_bundle()
        )
        world.network.deliver(NUMBER, kind, id=f"file-{number}", body=body)
    await world.sink.signals.until(lambda: len(world.sink.taken()) >= len(contents))
    told = [post.body["messages"][0]["document"] for post in world.sink.taken()]
    assert [document["status"] for document in told] == ["downloaded"] * len(contents)
    assert not running.shard.context.journal.broken.done()


async def test_impossible_media_ids_fail_only_their_messages(world: World) -> None:
    phones = world.add_phones(NUMBER)
    inbox = scene.Inbox(world, *phones)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    for strange in ("ü", WIDE * 300, "\0", "a "):
        sent = await scene.send_image(running, NUMBER, strange)
        error = await scene.failure(world, sent.id)
        assert (error["code"], error["details"]) == (1006, f"image.id: there is no media {strange}")
    await running.client.send(NUMBER, "after")
    await inbox.until(1)


@pytest.mark.parametrize("strange", ["ü", WIDE * 300, "\0", "a "])
async def test_requests_with_impossible_ids_are_refused(world: World, strange: str) -> None:
    running = await world.start()
    await world.connected(running)
    call = running.client.call
    for response in (
        await call(lambda n: core.MarkRead(n, BUSINESS, strange)),
        # The Webapp accepts only digits in a number, at most 20.
        await call(lambda n: core.GetIdentity(n, BUSINESS, "9" * 20)),
        await call(lambda n: core.AcknowledgeIdentity(n, BUSINESS, "9" * 20, strange)),
        await call(lambda n: core.AcceptMessage(n, BUSINESS, strange, "text", b"{}", recipient_type="group")),
        await call(lambda n: core.AcceptMessage(n, BUSINESS, "9" * 20, "text", b"{}")),
    ):
        assert isinstance(response, core.Refused), response
    assert not running.shard.context.journal.broken.done()
