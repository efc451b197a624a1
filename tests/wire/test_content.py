"""Contents have one form: the business reads what a device writes, and the other way round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coreapp.media.pointers import MediaContent
from coreapp.webhook import inbound
from handset import composing
from handset.attachments import pointers
from tidings.media import kinds
from tidings.wire import content, media_objects
from tidings.wire.media_objects import FilePointer, Pointer

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent.parent / "data/wire/contents.json").read_text())
GROUP = "15550000000-1767225600"
FILE = FilePointer("rWz0p5s", b"k" * 64, b"d" * 32, 36, "image/png", "ab" * 32)
COMPOSED = {
    "text": composing.text("Hello"),
    "ephemeral": composing.ephemeral(),
    "location": composing.location(52.5, 13.25, "Café", "Street 1"),
    "contacts": composing.contact("Ada Lovelace", "+15550100001"),
    "list_reply": composing.list_reply("r1", "Soup", "hot"),
    "button_reply": composing.button_reply("b1", "Yes"),
    "nfm_reply": composing.form_reply("flow", "Sent", '{"name":"Ada"}'),
    "button": composing.button("Yes", None),
    "order": composing.order("c1", {"p1": 2}, "please", 1.5),
    "reaction": composing.reaction("gBEG1", "👍"),
    "system": composing.changed_number("15550100002", "moved"),
    "deleted": composing.deleted("gBEG1"),
    "unknown": composing.unknown(),
    "answer": composing.answering(composing.text("Yes"), "gBEG1", "15550000000"),
    "question about a product": composing.about_product(
        composing.text("How much?"), "gBEG1", "15550000000", "c1", "p1"
    ),
    "forwarded": composing.forwarded(composing.text("Look"), often=True),
    "referred": composing.referred(composing.text("Hi"), "https://example.com/ad", "Soup", "hot"),
}
WRITTEN = {
    **{name: content.encode(made) for name, made in COMPOSED.items()},
    **{
        kind: content.encode(
            composing.medium(
                kind,
                msgspec.to_builtins(FILE),
                "c" if kind in composing.CAPTIONED else "",
                "a.png" if kind == "document" else "",
            )
        )
        for kind in media_objects.KINDS
    },
    "null": content.NULL_CONTENT,
    "named": content.encode(composing.text("Hi"), "Ada"),
    "sender_key": content.encode_sender_key(GROUP, b"\x33distribution"),
    "sender_key_request": content.encode_sender_key_request(GROUP),
}


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def as_read(message: inbound.Inbound) -> dict[str, Any]:
    """Return the known fields of a message."""
    beside = ("name", "context", "referral", "error", "pointer")
    known = {name: found for name in beside if (found := getattr(message, name))}
    read: dict[str, Any] = json.loads(msgspec.json.encode({"kind": message.kind, "content": message.content, **known}))
    return read


@pytest.mark.parametrize("name", RECORDED)
def test_content_is_encoded_as_recorded_and_read_by_the_business(name: str) -> None:
    assert WRITTEN[name] == text(RECORDED[name]["content"])
    assert as_read(inbound.read(WRITTEN[name])) == RECORDED[name]["read"]


@pytest.mark.parametrize("name", RECORDED)
def test_a_device_reads_every_content_type_and_its_context(name: str) -> None:
    recorded = RECORDED[name]["content"]
    read = content.decode(text(recorded | {"new": [1]}))
    assert (read.type, read.context) == (recorded["type"], recorded.get("context"))
    assert (read.text.body if read.text else None) == recorded.get("text", {}).get("body")


def test_a_device_reads_sender_keys_and_sender_key_requests() -> None:
    given = content.decode_about_keys(text(RECORDED["sender_key"]["content"]))
    assert given == content.SenderKey(GROUP, b"\x33distribution")
    requested = content.decode_about_keys(text(RECORDED["sender_key_request"]["content"]))
    assert requested == content.SenderKeyRequest(GROUP)


@pytest.mark.parametrize(
    "made",
    [
        content.encode_sender_key("15550000000", b""),
        content.encode_sender_key_request("nowhere"),
        *(b"", b"[]", b"{}", b'{"type":"text","text":{"body":"x"}}', b'{"type":"sender_key"}'),
        b'{"type":"sender_key","sender_key":{"group":"15550000000-1767225600","distribution":"%"}}',
        pytest.param(b'{"type":"sender_key","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="nested"),
    ],
)
def test_anything_but_a_sender_key_or_a_request_for_one_is_unreadable(made: bytes) -> None:
    with pytest.raises(content.UnreadableContent):
        content.decode_about_keys(made)


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_a_device_finds_the_pointer_that_the_business_writes(kind: str) -> None:
    message = MediaContent(text({"type": kind, kind: {"id": "m1", "caption": "c"}}))
    message.point(kind, msgspec.structs.replace(FILE, filename="a.png"))
    named = "a.png" if kind == "document" else None
    found = pointers.find(kind, message.encoded().decode())
    assert found == [
        pointers.AttachmentPointer(**msgspec.structs.asdict(FILE) | {"caption": "c", "filename": named}, kind=kind)
    ]
    assert pointers.content_of(found[0]) == json.loads(message.encoded())


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        *(("blob", wrong) for wrong in ("", "a/b", "x" * 65, 5)),
        *(("key", wrong) for wrong in ("", "QUFB", "%", None)),
        *(("digest", wrong) for wrong in ("", "QUFB", 7)),
        *(("size", wrong) for wrong in (-1, 100 * 2**20 + 1, "36")),
    ],
)
def test_an_invalid_pointer_is_rejected_by_device_and_business(field: str, wrong: Any) -> None:
    recorded = RECORDED["image"]["content"]["image"] | {field: wrong}
    assert pointers.find("image", text({"type": "image", "image": recorded}).decode()) == []
    read = inbound.read(text({"type": "image", "image": recorded}))
    assert read.pointer is None
    assert read.error == (
        400,
        f"the message does not state the location of its file: `{field}` is missing or invalid",
    )


def test_the_file_size_limit_is_shared_and_pointers_do_not_print_their_key() -> None:
    assert media_objects.MAX_FILE == kinds.MAX_SIZE
    assert repr(FILE) == "FilePointer(rWz0p5s, 36 bytes)"
    assert repr(Pointer("b", b"k" * 64, b"d" * 32, 5)) == "Pointer(b, 5 bytes)"
