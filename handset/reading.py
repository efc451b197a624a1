"""What a message looks like to a person: lines of text, and the choices that it offers. Any JSON is shown somehow."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from handset import composing, pointers
from tidings.wire.decoding import UNREADABLE

MEDIA = pointers.KINDS
MAX_LINES = 200


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """One that can be picked; answer: the content that picking it sends."""

    label: str
    answer: Mapping[str, Any]


@dataclasses.dataclass(slots=True)
class Reading:
    """The lines in order, and the choices, which the lines number from 1."""

    lines: list[str] = dataclasses.field(default_factory=list)
    choices: list[Choice] = dataclasses.field(default_factory=list)

    def say(self, *words: str) -> None:
        line = " ".join(word for word in words if word)
        if line and len(self.lines) < MAX_LINES:
            self.lines += line.split("\n")

    def offer(self, label: str, answer: Mapping[str, Any], more: str = "") -> None:
        self.choices.append(Choice(label, answer))
        self.say(f"  {len(self.choices)}. {label}", f"({more})" if more else "")


def read(kind: str, raw: str) -> Reading:
    """A content by its type and its JSON."""
    reading = Reading()
    try:
        content = msgspec.json.decode(raw).get(kind)
    except (*UNREADABLE, AttributeError):
        content = None
    show = _SHOW.get(kind)
    if show is not None:
        show(reading, content)
    if not reading.lines:
        reading.say(f"[{kind}]")
    return reading


def answered(raw: str) -> str:
    """The id of the message that a content, by its JSON, answers; empty for none."""
    try:
        found = _at(msgspec.json.decode(raw), "context")
    except UNREADABLE:
        return ""
    return _words(found, "id")


def describe(kind: str, raw: str) -> str:
    """The same in one text."""
    return "\n".join(read(kind, raw).lines)


def _text(reading: Reading, content: Any) -> None:
    reading.say(_words(content, "body"))


def _location(reading: Reading, content: Any) -> None:
    place = ", ".join(word for word in (_words(content, "name"), _words(content, "address")) if word)
    point = f"{_at(content, 'latitude')}, {_at(content, 'longitude')}"
    reading.say("[location]", place, f"({point})" if place else point)


def _contacts(reading: Reading, content: Any) -> None:
    for card in _list(content):
        found = [_words(card, "name", "formatted_name") or "somebody"]
        found += [_words(phone, "phone") or _words(phone, "wa_id") for phone in _list(_at(card, "phones"))]
        found += [_words(email, "email") for email in _list(_at(card, "emails"))]
        found.append(_words(card, "org", "company"))
        reading.say("[contact]", ", ".join(word for word in found if word))


def _media(kind: str, reading: Reading, content: Any) -> None:
    """Its name, type and size; of a file that no pointer leads to, whatever it is called."""
    mime_type, size = _words(content, "mime_type"), _at(content, "size")
    name = pointers.name_of(kind, _words(content, "filename"), mime_type, _words(content, "sha256"))
    told = ", ".join(word for word in (name, mime_type) if word) or _words(content, "link") or _words(content, "id")
    reading.say(f"[{kind}]", told, f"({bytes_of(size)})" if isinstance(size, int) else "")
    reading.say(_words(content, "caption"))


def _interactive(reading: Reading, content: Any) -> None:
    kind = _words(content, "type")
    _header(reading, _at(content, "header"))
    reading.say(_words(content, "body", "text"))
    action = _at(content, "action")
    if kind == "list":
        reading.say(f"[{_words(action, 'button')}]")
        for section in _list(_at(action, "sections")):
            reading.say(_words(section, "title"))
            for row in _list(_at(section, "rows")):
                words = [_words(row, name) for name in ("id", "title", "description")]
                reading.offer(words[1], composing.list_reply(*words), words[2])
    elif kind == "button":
        for button in _list(_at(action, "buttons")):
            title = _words(button, "reply", "title")
            reading.offer(title, composing.button_reply(_words(button, "reply", "id"), title))
    elif kind in ("product", "product_list"):
        single = [action] if kind == "product" else []
        items = [item for section in _list(_at(action, "sections")) for item in _list(_at(section, "product_items"))]
        catalog = _words(action, "catalog_id")
        for item in [*single, *items]:
            product = _words(item, "product_retailer_id")
            reading.offer(f"order {product}", composing.order(catalog, {product: 1}))
    elif kind == "flow":
        reading.say(f"[form: {_words(action, 'parameters', 'flow_cta')}]")
    elif kind == "location_request_message":
        reading.say("[asks for a location: /location LATITUDE LONGITUDE]")
    elif kind in ("list_reply", "button_reply"):
        reading.say("[picked]", _words(content, kind, "title"))
    else:
        reading.say(f"[{kind or 'interactive'}]")
    reading.say(_words(content, "footer", "text"))


def _template(reading: Reading, content: Any) -> None:
    filled = _at(content, "filled")
    header = _at(filled, "header")
    kind = _words(header, "type")
    if kind in MEDIA:
        _media(kind, reading, _file_of_header(content, kind))
    else:
        reading.say(_words(header, "text"))
    reading.say(_words(filled, "body"))
    reading.say(_words(filled, "footer"))
    for button in _list(_at(filled, "buttons")):
        text = _words(button, "text")
        if _words(button, "type") == "quick_reply":
            reading.offer(text, composing.button(text, _words(button, "payload") or None))
        else:
            target = [_words(button, name) for name in ("url", "phone_number", "code")]
            reading.say(f"  [{text}]", *target)


def _file_of_header(content: Any, kind: str) -> Any:
    for component in _list(_at(content, "components")):
        if _words(component, "type") == "header":
            for parameter in _list(_at(component, "parameters")):
                return _at(parameter, kind)
    return None


def _header(reading: Reading, header: Any) -> None:
    kind = _words(header, "type")
    if kind in MEDIA:
        _media(kind, reading, _at(header, kind))
    else:
        reading.say(_words(header, "text"))


def _button(reading: Reading, content: Any) -> None:
    reading.say("[picked]", _words(content, "text"))


def _reaction(reading: Reading, content: Any) -> None:
    reading.say("[reaction]", _words(content, "emoji") or "taken back")


def _order(reading: Reading, content: Any) -> None:
    items = [
        f"{_at(item, 'quantity')} × {_words(item, 'product_retailer_id')}"
        for item in _list(_at(content, "product_items"))
    ]
    reading.say("[order]", ", ".join(items))
    reading.say(_words(content, "text"))


def _system(reading: Reading, content: Any) -> None:
    reading.say("[system]", _words(content, "body") or _words(content, "type"))


_SHOW: Mapping[str, Callable[[Reading, Any], None]] = {
    "text": _text,
    "location": _location,
    "contacts": _contacts,
    "interactive": _interactive,
    "template": _template,
    "hsm": _template,
    "button": _button,
    "reaction": _reaction,
    "order": _order,
    "system": _system,
    **{kind: functools.partial(_media, kind) for kind in MEDIA},
}


def _at(node: Any, *path: str) -> Any:
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _words(node: Any, *path: str) -> str:
    found = _at(node, *path)
    return found if isinstance(found, str) else ""


def _list(node: Any) -> Sequence[Any]:
    return node if isinstance(node, list) else ()


def bytes_of(size: float) -> str:
    """A size for people."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000 or unit == "MB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return ""
