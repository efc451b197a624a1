"""Media objects in contents: each is found under the name of its field, and nothing else changes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coreapp.media import pointers
from coreapp.media.pointers import MediaContent, MediaSource
from tidings.media import kinds
from tidings.wire.media_objects import FilePointer

POINTER = FilePointer("b1", b"k" * 64, b"d" * 32, 5, "image/png", "ab" * 32, filename="own.png")
AS_JSON = {
    "blob": "b1",
    "key": base64.b64encode(b"k" * 64).decode(),
    "digest": base64.b64encode(b"d" * 32).decode(),
    "size": 5,
    "mime_type": "image/png",
    "sha256": "ab" * 32,
}
LINK = {"link": "https://example.com/a", "provider": {"name": "files"}, "caption": "c"}


def encode(content: Any) -> bytes:
    return json.dumps(content).encode()


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_each_media_type_has_its_object(kind: str) -> None:
    by_id, by_link = (
        MediaContent(encode({"type": kind, kind: {"id": "x"}})),
        MediaContent(encode({"type": kind, kind: LINK})),
    )
    assert by_id.sources() == {kind: MediaSource(id="x")}
    assert by_link.sources() == {kind: MediaSource(link="https://example.com/a", provider="files", kind=kind)}
    by_link.point(kind, POINTER)
    own = {"filename": "own.png"} if kind == "document" else {}
    assert json.loads(by_link.encoded()) == {"type": kind, kind: AS_JSON | {"caption": "c"} | own}
    assert not pointers.has_sources(by_link.encoded())


def test_headers_of_templates_and_interactive_messages_are_named_by_their_path() -> None:
    components: list[dict[str, Any]] = [
        {"type": "body", "parameters": [{"type": "text", "text": "x"}]},
        {"type": "header", "parameters": [{"type": "video", "video": {"id": "v"}}]},
        {"type": "button", "sub_type": "url", "index": 0},
    ]
    template = {"type": "template", "template": {"name": "t", "components": components, "filled": {"body": "x"}}}
    assert MediaContent(encode(template)).sources() == {
        "template.components[1].parameters[0].video": MediaSource(id="v")
    }
    cards = [{"card_index": n, "components": [components[1] | {"type": "header"}]} for n in (1, 0)]
    carousel = {"name": "t", "components": [{"type": "carousel", "cards": cards}], "filled": {"body": "x"}}
    assert list(MediaContent(encode({"type": "template", "template": carousel})).sources()) == [
        f"template.components[0].cards[{n}].components[0].parameters[0].video" for n in (0, 1)
    ]
    header = {"type": "document", "document": {"id": "d"}}
    message = {"type": "interactive", "interactive": {"type": "button", "header": header, "body": {"text": "x"}}}
    content = MediaContent(encode(message))
    assert content.sources() == {"interactive.header.document": MediaSource(id="d")}
    content.point("interactive.header.document", POINTER)
    header["document"] = AS_JSON | {"filename": "own.png"}
    assert json.loads(content.encoded()) == message


@pytest.mark.parametrize(
    "content",
    [
        {"type": "text", "text": {"body": '{"type":"image","image":{"id":"x"}}'}},
        {"type": "location", "location": {"latitude": 1, "longitude": 2}},
        {"type": "interactive", "interactive": {"type": "list", "header": {"type": "text", "text": "x"}}},
        {"type": "template", "template": {"name": "t", "components": None}},
        {"type": "image", "image": AS_JSON},
        {"type": "image"},
        {},
    ],
)
def test_contents_without_media_are_unchanged(content: dict[str, Any]) -> None:
    assert not pointers.has_sources(encode(content))
    assert json.loads(MediaContent(encode(content)).encoded()) == content


@given(st.binary() | st.recursive(st.none() | st.booleans() | st.text(), lambda x: st.lists(x)).map(encode))
def test_has_sources_never_raises(content: bytes) -> None:
    assert pointers.has_sources(content) is False


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["image", "type", "id", "template"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "image", "id", "link", "template", "components", "parameters", "interactive", "header"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["type", "image", "template", "interactive"]), anything))
def test_contents_of_any_shape_can_be_pointed(content: dict[str, Any]) -> None:
    parsed = MediaContent(encode(content))
    for path in list(parsed.sources()):
        parsed.point(path, POINTER)
    assert not pointers.has_sources(parsed.encoded())
