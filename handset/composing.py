"""The contents that a recipient can send: one function for each, all pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Content = dict[str, Any]

MAX_TEXT = 4096  # characters of a text; a business is not shown one that is longer


def text(body: str) -> Content:
    return _of("text", {"body": body})


def location(latitude: float, longitude: float, name: str = "", address: str = "") -> Content:
    return _of("location", {"latitude": latitude, "longitude": longitude} | _given(name=name, address=address))


def contacts(cards: Sequence[Mapping[str, Any]]) -> Content:
    """Cards as in the API: each has at least a `name` with a `formatted_name`."""
    return _of("contacts", list(cards))


def contact(name: str, phone: str) -> Content:
    """One person with one phone number."""
    digits = "".join(character for character in phone if character in "0123456789")
    first = name.split(" ", 1)[0]
    card = {"name": {"formatted_name": name, "first_name": first}, "phones": [{"phone": phone, "wa_id": digits}]}
    return contacts([card])


def list_reply(row_id: str, title: str, description: str = "") -> Content:
    reply = {"id": row_id, "title": title} | _given(description=description)
    return _of("interactive", {"type": "list_reply", "list_reply": reply})


def button_reply(button_id: str, title: str) -> Content:
    return _of("interactive", {"type": "button_reply", "button_reply": {"id": button_id, "title": title}})


def form_reply(name: str, body: str, response_json: str) -> Content:
    """What was filled into a flow."""
    reply = {"name": name, "body": body, "response_json": response_json}
    return _of("interactive", {"type": "nfm_reply", "nfm_reply": reply})


def button(label: str, payload: str | None) -> Content:
    """A quick reply of a template."""
    return _of("button", {"text": label, "payload": payload})


def order(catalog_id: str, quantities: Mapping[str, int], text: str = "", price: float = 1.0) -> Content:
    """quantities: by the product's retailer id; price: of each, in EUR."""
    items = [
        {"product_retailer_id": product, "quantity": quantity, "item_price": price, "currency": "EUR"}
        for product, quantity in quantities.items()
    ]
    return _of("order", {"catalog_id": catalog_id, "product_items": items} | _given(text=text))


def reaction(message_id: str, emoji: str) -> Content:
    """An empty emoji takes the reaction back."""
    return _of("reaction", {"message_id": message_id, "emoji": emoji})


def changed_number(new_number: str, body: str = "") -> Content:
    """Tells the business another number to write to."""
    return _of("system", {"type": "user_changed_number", "new_wa_id": new_number} | _given(body=body))


def deleted(message_id: str) -> Content:
    """Withdraws an earlier message of ours."""
    return _of("deleted", {"id": message_id})


def unknown() -> Content:
    """A type that the business's side does not know."""
    return _of("poll", {"question": "Soup or pasta?", "options": ["Soup", "Pasta"]})


def ephemeral() -> Content:
    """A message that disappears: the business learns only that it was there."""
    return {"type": "ephemeral"}


# Kinds of media that may have one.
CAPTIONED = ("image", "video", "document")


def medium(kind: str, pointer: Mapping[str, Any], caption: str = "", filename: str = "") -> Content:
    """A file, by the pointer that `handset.media` makes."""
    return _of(kind, dict(pointer) | _given(caption=caption, filename=filename))


def answering(content: Content, message_id: str, sender: str) -> Content:
    """The content as an answer to a message, whose sender is named with it."""
    return content | {"context": {"id": message_id, "from": sender}}


def about_product(content: Content, message_id: str, sender: str, catalog_id: str, product_id: str) -> Content:
    """The content as a question about a product; message_id may be empty when it answers no message."""
    product = {"catalog_id": catalog_id, "product_retailer_id": product_id}
    answered = {"id": message_id, "from": sender} if message_id else {}
    return content | {"context": answered | {"referred_product": product}}


def forwarded(content: Content, *, often: bool = False) -> Content:
    """The content as one that came from somebody else."""
    return content | {"context": {"forwarded": True} | ({"frequently_forwarded": True} if often else {})}


def referred(content: Content, source_url: str, headline: str = "", body: str = "") -> Content:
    """The content as the first message of one who came by an advertisement."""
    referral = {"source_url": source_url, "source_type": "ad", "source_id": "1"} | _given(headline=headline, body=body)
    return content | {"referral": referral}


def _of(kind: str, content: Any) -> Content:
    return {"type": kind, kind: content}


def _given(**fields: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}
