"""Messages as lines of text with the choices that they offer. Any JSON results in some text."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from handset import composing
from handset.attachments import pointers
from tidings.wire import media_objects
from tidings.wire.decoding import UNREADABLE

MEDIA = media_objects.KINDS
MAX_LINES = 200


@dataclasses.dataclass(frozen=True, slots=True)
class ReplyChoice:
    """Choice that a message offers."""

    label: str  # text to show
    answer: Mapping[str, Any] | None = None  # content that choosing it sends; `None` when it sends nothing
    effect: str = ""  # effect on this device alone; empty when it sends a content


@dataclasses.dataclass(slots=True)
class MessageText:
    """Text of a message: its lines in order, and its choices, which the lines number from 1."""

    lines: list[str] = dataclasses.field(default_factory=list)
    choices: list[ReplyChoice] = dataclasses.field(default_factory=list)

    def say(self, *words: str) -> None:
        line = " ".join(word for word in words if word)
        if line and len(self.lines) < MAX_LINES:
            self.lines += line.split("\n")

    def offer(self, label: str, answer: Mapping[str, Any] | None, more: str = "", effect: str = "") -> None:
        self.choices.append(ReplyChoice(label, answer, effect))
        self.say(f"  {len(self.choices)}. {label}", f"({more})" if more else "")


def read(kind: str, raw: str) -> MessageText:
    """Return the text of a content.

    kind: type of the message
    raw: content as JSON
    """
    reading = MessageText()
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
    """Return the id of the message that a content replies to; empty for none.

    raw: content as JSON
    """
    try:
        found = _at(msgspec.json.decode(raw), "context")
    except UNREADABLE:
        return ""
    return _words(found, "id")


def describe(kind: str, raw: str) -> str:
    """Return the text of a content as one string."""
    return "\n".join(read(kind, raw).lines)


def _text(reading: MessageText, content: Any) -> None:
    reading.say(_words(content, "body"))


def _location(reading: MessageText, content: Any) -> None:
    place = ", ".join(word for word in (_words(content, "name"), _words(content, "address")) if word)
    point = f"{_at(content, 'latitude')}, {_at(content, 'longitude')}"
    reading.say("[location]", place, f"({point})" if place else point)


def _contacts(reading: MessageText, content: Any) -> None:
    for card in _list(content):
        found = [_words(card, "name", "formatted_name") or "somebody"]
        found += [_words(phone, "phone") or _words(phone, "wa_id") for phone in _list(_at(card, "phones"))]
        found += [_words(email, "email") for email in _list(_at(card, "emails"))]
        found.append(_words(card, "org", "company"))
        reading.say("[contact]", ", ".join(word for word in found if word))


def _media(kind: str, reading: MessageText, content: Any) -> None:
    """Add the name, type and size of a file, even if no pointer to it exists."""
    mime_type, size = _words(content, "mime_type"), _at(content, "size")
    name = pointers.name_of(kind, _words(content, "filename"), mime_type, _words(content, "sha256"))
    label = ", ".join(word for word in (name, mime_type) if word) or _words(content, "link") or _words(content, "id")
    shown = "voice" if kind == "audio" and _at(content, "voice") is True else kind
    reading.say(f"[{shown}]", label, f"({bytes_of(size)})" if isinstance(size, int) else "")
    reading.say(_words(content, "caption"))


def _interactive(reading: MessageText, content: Any) -> None:
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
            _product(reading, catalog, item)
    elif kind == "flow":
        parameters = _at(action, "parameters")
        _form(reading, _words(parameters, "flow_cta"), _words(parameters, "flow_token"))
    elif kind == "cta_url":
        _link(reading, action)
    elif kind == "carousel":
        for n, card in enumerate(_list(_at(action, "cards"))):
            reading.say(f"[card {n + 1}]")
            _header(reading, _at(card, "header"))
            reading.say(_words(card, "body", "text"))
            if _words(card, "type") == "cta_url":
                _link(reading, _at(card, "action"))
            else:
                _product(reading, _words(card, "action", "catalog_id"), _at(card, "action"))
    elif kind == "request_contact_info":
        reading.say("[asks for your contact details: /contact NAME NUMBER]")
    elif kind == "location_request_message":
        reading.say("[asks for a location: /location LATITUDE LONGITUDE]")
    elif kind in ("list_reply", "button_reply"):
        reading.say("[picked]", _words(content, kind, "title"))
    else:
        reading.say(f"[{kind or 'interactive'}]")
    reading.say(_words(content, "footer", "text"))


def _product(reading: MessageText, catalog: str, item: Any) -> None:
    """Add a choice that orders one piece of a product."""
    product = _words(item, "product_retailer_id")
    reading.offer(f"order {product}", composing.order(catalog, {product: 1}))


def _link(reading: MessageText, action: Any) -> None:
    """Add a choice that opens a URL."""
    url = _words(action, "parameters", "url")
    reading.offer(_words(action, "parameters", "display_text"), None, url, f"a browser would open {url}")


def _form(reading: MessageText, label: str, token: str) -> None:
    """Add a choice that opens a form. Choosing it returns the form empty, with its token."""
    sent = msgspec.json.encode({"flow_token": token}).decode()
    reading.offer(label, composing.form_reply("flow", "Sent", sent), "form")


def _template(reading: MessageText, content: Any) -> None:
    filled = _at(content, "filled")
    _filled(reading, filled, _list(_at(content, "components")))
    cards = [card for part in _list(_at(content, "components")) for card in _list(_at(part, "cards"))]
    for n, card in enumerate(_list(_at(filled, "cards"))):
        reading.say(f"[card {n + 1}]")
        _filled(reading, card, _list(_at(_card_of(cards, n), "components")))


def _card_of(cards: Sequence[Any], number: int) -> Any:
    """Return the card with this number as it was sent, which contains its file; `None` without one."""
    for place, card in enumerate(cards):
        named = _at(card, "card_index")
        if (place if named is None else named) == number:
            return card
    return None


def _filled(reading: MessageText, filled: Any, sent: Sequence[Any]) -> None:
    """Add a template or one of its cards.

    sent: components of the message, which contain the files
    """
    header = _at(filled, "header")
    kind = _words(header, "type")
    if kind in MEDIA:
        _media(kind, reading, _file_of_header(sent, kind))
    elif kind == "location":
        _location(reading, _at(header, kind))
    else:
        reading.say(_words(header, "text"))
    offer = _at(filled, "limited_time_offer")
    if offer is not None:
        until = _time(_at(offer, "expiration_time_ms"))
        reading.say("[offer]", _words(offer, "text"), f"(until {until})" if until else "")
    reading.say(_words(filled, "body"))
    reading.say(_words(filled, "footer"))
    for button in _list(_at(filled, "buttons")):
        _offer_button(reading, button)


def _offer_button(reading: MessageText, button: Any) -> None:
    kind, text, code = (_words(button, name) for name in ("type", "text", "code"))
    if kind == "quick_reply":
        reading.offer(text, composing.button(text, _words(button, "payload") or None))
    elif kind == "flow":
        _form(reading, text, _words(button, "flow_token"))
    elif kind in ("copy_code", "otp"):
        app = next((_words(app, "package_name") for app in _list(_at(button, "apps"))), "")
        if kind == "otp" and app:
            reading.offer(_words(button, "autofill_text"), None, code, f"{code} goes to {app}")
        else:
            reading.offer(text, None, code, f"{code} is copied")
    elif kind == "url":
        url = _words(button, "url")
        reading.offer(text, None, url, f"a browser would open {url}")
    elif kind == "phone_number":
        number = _words(button, "phone_number")
        reading.offer(text, None, number, f"a phone would call {number}")
    else:
        reading.offer(text, None, effect="the catalogue would open")


def _time(milliseconds: Any) -> str:
    try:
        return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def _file_of_header(components: Sequence[Any], kind: str) -> Any:
    for component in components:
        if _words(component, "type") == "header":
            for parameter in _list(_at(component, "parameters")):
                return _at(parameter, kind)
    return None


def _header(reading: MessageText, header: Any) -> None:
    kind = _words(header, "type")
    if kind in MEDIA:
        _media(kind, reading, _at(header, kind))
    else:
        reading.say(_words(header, "text"))


def _button(reading: MessageText, content: Any) -> None:
    reading.say("[picked]", _words(content, "text"))


def _reaction(reading: MessageText, content: Any) -> None:
    reading.say("[reaction]", _words(content, "emoji") or "taken back")


def _order(reading: MessageText, content: Any) -> None:
    items = [
        f"{_at(item, 'quantity')} × {_words(item, 'product_retailer_id')}"
        for item in _list(_at(content, "product_items"))
    ]
    reading.say("[order]", ", ".join(items))
    reading.say(_words(content, "text"))


def _system(reading: MessageText, content: Any) -> None:
    reading.say("[system]", _words(content, "body") or _words(content, "type"))


_SHOW: Mapping[str, Callable[[MessageText, Any], None]] = {
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
    """Return a size in a readable unit."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000 or unit == "MB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return ""
