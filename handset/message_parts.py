"""Parts of a message as its recipient sees them, for a terminal and for a page. Any JSON results in some parts."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from handset import composing
from handset.attachments import pointers
from handset.attachments.pointers import AttachmentPointer
from tidings.wire import media_objects
from tidings.wire.decoding import UNREADABLE

MEDIA = media_objects.KINDS
MAX_PARTS = 1_000  # parts of one message or card; further ones are dropped

# Places of a text.
HEADER, BODY, FOOTER, CAPTION, SECTION, LABEL = "header", "body", "footer", "caption", "section", "label"
# Looks of a choice.
ROW, BUTTON, REPLY, LINK, CALL, CODE, FORM, PRODUCT, CATALOGUE = (
    "row", "button", "reply", "link", "call", "code", "form", "product", "catalogue",
)  # fmt: skip
# Requests of a message that a person answers with another type.
ASKS_CONTACT, ASKS_LOCATION = "contact", "location"


@dataclasses.dataclass(frozen=True, slots=True)
class TextPart:
    """Text at one place of a message."""

    text: str
    place: str = BODY
    name: ClassVar[str] = "text"


@dataclasses.dataclass(frozen=True, slots=True)
class LocationPart:
    """Location."""

    latitude: Any  # degrees, as the sender wrote them
    longitude: Any
    words: str  # name and address; empty for none
    name: ClassVar[str] = "place"


@dataclasses.dataclass(frozen=True, slots=True)
class ContactPart:
    """Contact card."""

    person: str
    details: Sequence[str]  # numbers, addresses and the company
    name: ClassVar[str] = "contact"


@dataclasses.dataclass(frozen=True, slots=True)
class FilePart:
    """File, which may have no pointer to its content."""

    kind: str  # for example `image` or `voice`
    label: str  # name and type; its link or id without these
    size: int | None
    pointer: AttachmentPointer | None
    name: ClassVar[str] = "file"


@dataclasses.dataclass(frozen=True, slots=True)
class ChoicePart:
    """Choice that a message offers."""

    label: str
    look: str
    answer: Mapping[str, Any] | None = None  # content that choosing it sends; `None` when it sends nothing
    more: str = ""  # description, URL, number or code
    effect: str = ""  # effect on this device alone; empty when it sends a content
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # data with which a form opens
    name: ClassVar[str] = "choice"


@dataclasses.dataclass(frozen=True, slots=True)
class CardPart:
    """Card of a carousel."""

    number: int  # position among the cards, from 1
    parts: Sequence[MessagePart]
    name: ClassVar[str] = "card"


@dataclasses.dataclass(frozen=True, slots=True)
class OfferPart:
    """Limited-time offer."""

    text: str
    until: str  # end in UTC; empty for none
    name: ClassVar[str] = "offer"


@dataclasses.dataclass(frozen=True, slots=True)
class OrderPart:
    """Ordered products."""

    items: Sequence[str]  # quantity and product
    name: ClassVar[str] = "order"


@dataclasses.dataclass(frozen=True, slots=True)
class RequestPart:
    """Request for a contact card or a location."""

    wanted: str  # `ASKS_CONTACT` or `ASKS_LOCATION`
    name: ClassVar[str] = "request"


@dataclasses.dataclass(frozen=True, slots=True)
class MarkPart:
    """Named property of a message, such as `picked` or `reaction`, with its words; or a type that is not displayed."""

    label: str
    text: str = ""
    name: ClassVar[str] = "mark"


MessagePart = (
    TextPart | LocationPart | ContactPart | FilePart | ChoicePart | CardPart | OfferPart | OrderPart | RequestPart
    | MarkPart
)  # fmt: skip
Parts = Iterator[MessagePart]


def read(kind: str, raw: str) -> list[MessagePart]:
    """Return the parts of a content; none for a type that is not displayed.

    kind: type of the message
    raw: content as JSON
    """
    try:
        content = msgspec.json.decode(raw).get(kind)
    except (*UNREADABLE, AttributeError):
        content = None
    read_parts = _READERS.get(kind)
    return list(itertools.islice(read_parts(content), MAX_PARTS)) if read_parts is not None else []


def walk(parts: Sequence[MessagePart]) -> Iterator[MessagePart]:
    """Yield the parts in order, with those inside cards."""
    for part in parts:
        yield part
        if isinstance(part, CardPart):
            yield from walk(part.parts)


def choices_of(parts: Sequence[MessagePart]) -> list[ChoicePart]:
    """Return the choices in the order in which a person counts them."""
    return [part for part in walk(parts) if isinstance(part, ChoicePart)]


def files_of(parts: Sequence[MessagePart]) -> list[AttachmentPointer]:
    """Return the pointers to the files, in the order of their parts."""
    return [part.pointer for part in walk(parts) if isinstance(part, FilePart) and part.pointer is not None]


def _text_parts(text: str, place: str = BODY) -> Parts:
    if text:
        yield TextPart(text, place)


def _text(content: Any) -> Parts:
    yield from _text_parts(text_at(content, "body"))


def _location(content: Any) -> Parts:
    place = ", ".join(word for word in (text_at(content, "name"), text_at(content, "address")) if word)
    yield LocationPart(value_at(content, "latitude"), value_at(content, "longitude"), place)


def _contacts(content: Any) -> Parts:
    for card in _list(content):
        found = [text_at(phone, "phone") or text_at(phone, "wa_id") for phone in _list(value_at(card, "phones"))]
        found += [text_at(email, "email") for email in _list(value_at(card, "emails"))]
        found.append(text_at(card, "org", "company"))
        yield ContactPart(text_at(card, "name", "formatted_name") or "somebody", [word for word in found if word])


def _media(kind: str, content: Any) -> Parts:
    """Yield the name, type and size of a file, even if no pointer to it exists."""
    mime_type, size = text_at(content, "mime_type"), value_at(content, "size")
    name = pointers.name_of(kind, text_at(content, "filename"), mime_type, text_at(content, "sha256"))
    label = ", ".join(word for word in (name, mime_type) if word) or text_at(content, "link") or text_at(content, "id")
    shown = "voice" if kind == "audio" and value_at(content, "voice") is True else kind
    is_size = isinstance(size, int) and 0 <= size < 2**63
    yield FilePart(shown, label, size if is_size else None, pointers.pointer_of(kind, content))
    yield from _text_parts(text_at(content, "caption"), CAPTION)


def _interactive(content: Any) -> Parts:
    kind = text_at(content, "type")
    yield from _header(value_at(content, "header"))
    yield from _text_parts(text_at(content, "body", "text"))
    make = _ACTIONS.get(kind)
    if make is not None:
        yield from make(content, value_at(content, "action"))
    else:
        yield MarkPart(kind or "interactive")
    yield from _text_parts(text_at(content, "footer", "text"), FOOTER)


def _rows(content: Any, action: Any) -> Parts:
    yield TextPart(text_at(action, "button"), LABEL)
    for section in _list(value_at(action, "sections")):
        yield from _text_parts(text_at(section, "title"), SECTION)
        for row in _list(value_at(section, "rows")):
            id_, title, description = (text_at(row, name) for name in ("id", "title", "description"))
            yield ChoicePart(title, ROW, composing.list_reply(id_, title, description), description)


def _buttons(content: Any, action: Any) -> Parts:
    for button in _list(value_at(action, "buttons")):
        title = text_at(button, "reply", "title")
        yield ChoicePart(title, BUTTON, composing.button_reply(text_at(button, "reply", "id"), title))


def _products(content: Any, action: Any) -> Parts:
    catalog = text_at(action, "catalog_id")
    if text_at(content, "type") == "product":
        yield _product(catalog, action)
    for section in _list(value_at(action, "sections")):
        yield from (_product(catalog, item) for item in _list(value_at(section, "product_items")))


def _flow(content: Any, action: Any) -> Parts:
    parameters = value_at(action, "parameters")
    data = value_at(parameters, "flow_action_payload", "data")
    yield _form(text_at(parameters, "flow_cta"), text_at(parameters, "flow_token"), data)


def _cta_url(content: Any, action: Any) -> Parts:
    yield _link(action)


def _carousel(content: Any, action: Any) -> Parts:
    for n, card in enumerate(_list(value_at(action, "cards"))[:MAX_PARTS]):
        yield CardPart(n + 1, list(_interactive_card(card)))


def _interactive_card(card: Any) -> Parts:
    yield from _header(value_at(card, "header"))
    yield from _text_parts(text_at(card, "body", "text"))
    if text_at(card, "type") == "cta_url":
        yield _link(value_at(card, "action"))
    else:
        yield _product(text_at(card, "action", "catalog_id"), value_at(card, "action"))


def _picked(content: Any, action: Any) -> Parts:
    yield MarkPart("picked", text_at(content, text_at(content, "type"), "title"))


def _request_parts(wanted: str, content: Any, action: Any) -> Parts:
    yield RequestPart(wanted)


_ACTIONS: Mapping[str, Callable[[Any, Any], Parts]] = {
    "list": _rows,
    "button": _buttons,
    "product": _products,
    "product_list": _products,
    "flow": _flow,
    "cta_url": _cta_url,
    "carousel": _carousel,
    "request_contact_info": functools.partial(_request_parts, ASKS_CONTACT),
    "location_request_message": functools.partial(_request_parts, ASKS_LOCATION),
    "list_reply": _picked,
    "button_reply": _picked,
}


def _product(catalog: str, item: Any) -> ChoicePart:
    """Return a choice that orders one piece of a product."""
    product = text_at(item, "product_retailer_id")
    return ChoicePart(f"order {product}", PRODUCT, composing.order(catalog, {product: 1}))


def _link(action: Any) -> ChoicePart:
    """Return a choice that opens a URL."""
    url = text_at(action, "parameters", "url")
    return ChoicePart(
        text_at(action, "parameters", "display_text"), LINK, more=url, effect=f"a browser would open {url}"
    )


def _form(label: str, token: str, data: Any) -> ChoicePart:
    """Return a choice that opens a form. Choosing it returns the form empty, with its token."""
    sent = msgspec.json.encode({"flow_token": token}).decode()
    fields = data if isinstance(data, dict) else {}
    return ChoicePart(label, FORM, composing.form_reply("flow", "Sent", sent), "form", fields=fields)


def _template(content: Any) -> Parts:
    filled = value_at(content, "filled")
    yield from _filled(filled, _list(value_at(content, "components")))
    cards = [card for part in _list(value_at(content, "components")) for card in _list(value_at(part, "cards"))]
    for n, card in enumerate(_list(value_at(filled, "cards"))[:MAX_PARTS]):
        yield CardPart(n + 1, list(_filled(card, _list(value_at(_card_of(cards, n), "components")))))


def _card_of(cards: Sequence[Any], number: int) -> Any:
    """Return the card with this number as it was sent, which contains its file; `None` without one."""
    for place, card in enumerate(cards):
        named = value_at(card, "card_index")
        if (place if named is None else named) == number:
            return card
    return None


def _filled(filled: Any, sent: Sequence[Any]) -> Parts:
    """Yield the parts of a template or of one of its cards.

    sent: components of the message, which contain the files
    """
    header = value_at(filled, "header")
    kind = text_at(header, "type")
    if kind in MEDIA:
        yield from _media(kind, _file_of_header(sent, kind))
    elif kind == "location":
        yield from _location(value_at(header, kind))
    else:
        yield from _text_parts(text_at(header, "text"), HEADER)
    offer = value_at(filled, "limited_time_offer")
    if offer is not None:
        yield OfferPart(text_at(offer, "text"), _time(value_at(offer, "expiration_time_ms")))
    yield from _text_parts(text_at(filled, "body"))
    yield from _text_parts(text_at(filled, "footer"), FOOTER)
    for button in _list(value_at(filled, "buttons")):
        yield _button_of_template(button)


def _button_of_template(button: Any) -> ChoicePart:
    kind, text, code = (text_at(button, name) for name in ("type", "text", "code"))
    if kind == "quick_reply":
        return ChoicePart(text, REPLY, composing.button(text, text_at(button, "payload") or None))
    if kind == "flow":
        return _form(text, text_at(button, "flow_token"), value_at(button, "flow_action_data"))
    if kind in ("copy_code", "otp"):
        app = next((text_at(app, "package_name") for app in _list(value_at(button, "apps"))), "")
        if kind == "otp" and app:
            return ChoicePart(text_at(button, "autofill_text"), CODE, more=code, effect=f"{code} goes to {app}")
        return ChoicePart(text, CODE, more=code, effect=f"{code} is copied")
    if kind == "url":
        url = text_at(button, "url")
        return ChoicePart(text, LINK, more=url, effect=f"a browser would open {url}")
    if kind == "phone_number":
        number = text_at(button, "phone_number")
        return ChoicePart(text, CALL, more=number, effect=f"a phone would call {number}")
    return ChoicePart(text, CATALOGUE, effect="the catalogue would open")


def _time(milliseconds: Any) -> str:
    try:
        return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def _file_of_header(components: Sequence[Any], kind: str) -> Any:
    for component in components:
        if text_at(component, "type") == "header":
            for parameter in _list(value_at(component, "parameters")):
                return value_at(parameter, kind)
    return None


def _header(header: Any) -> Parts:
    kind = text_at(header, "type")
    if kind in MEDIA:
        yield from _media(kind, value_at(header, kind))
    else:
        yield from _text_parts(text_at(header, "text"), HEADER)


def _button(content: Any) -> Parts:
    yield MarkPart("picked", text_at(content, "text"))


def _reaction(content: Any) -> Parts:
    yield MarkPart("reaction", text_at(content, "emoji") or "taken back")


def _order(content: Any) -> Parts:
    items = _list(value_at(content, "product_items"))
    yield OrderPart([f"{value_at(item, 'quantity')} × {text_at(item, 'product_retailer_id')}" for item in items])
    yield from _text_parts(text_at(content, "text"))


def _system(content: Any) -> Parts:
    yield MarkPart("system", text_at(content, "body") or text_at(content, "type"))


_READERS: Mapping[str, Callable[[Any], Parts]] = {
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


def value_at(node: Any, *path: str) -> Any:
    """Return the value at a path of names; `None` where there is none."""
    for name in path:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def text_at(node: Any, *path: str) -> str:
    """Return the text at a path of names; empty where there is none."""
    found = value_at(node, *path)
    return found if isinstance(found, str) else ""


def _list(node: Any) -> Sequence[Any]:
    return node if isinstance(node, list) else ()
