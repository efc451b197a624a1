"""Contents that a recipient can send: one pure function for each type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Content = dict[str, Any]

MAX_TEXT = 4096  # maximum characters of a text; a longer one is not passed to a business


def text(body: str) -> Content:
    return _of("text", {"body": body})


def location(latitude: float, longitude: float, name: str = "", address: str = "") -> Content:
    return _of("location", {"latitude": latitude, "longitude": longitude} | _given(name=name, address=address))


def contacts(cards: Sequence[Mapping[str, Any]]) -> Content:
    """Compose contacts in the format of the API. Each card has at least a `name` with a `formatted_name`."""
    return _of("contacts", list(cards))


def contact(name: str, phone: str) -> Content:
    """Compose a contact with one phone number."""
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
    """Compose the answers to a flow's form."""
    reply = {"name": name, "body": body, "response_json": response_json}
    return _of("interactive", {"type": "nfm_reply", "nfm_reply": reply})


def button(label: str, payload: str | None) -> Content:
    """Compose the reply of a template's quick-reply button."""
    return _of("button", {"text": label, "payload": payload})


def order(catalog_id: str, quantities: Mapping[str, int], text: str = "", price: float = 1.0) -> Content:
    """Compose an order.

    quantities: number of items by the product's retailer id
    price: of each item, in EUR
    """
    items = [
        {"product_retailer_id": product, "quantity": quantity, "item_price": price, "currency": "EUR"}
        for product, quantity in quantities.items()
    ]
    return _of("order", {"catalog_id": catalog_id, "product_items": items} | _given(text=text))


def reaction(message_id: str, emoji: str) -> Content:
    """Compose a reaction. An empty emoji removes the reaction."""
    return _of("reaction", {"message_id": message_id, "emoji": emoji})


def changed_number(new_number: str, body: str = "") -> Content:
    """Compose a notice to the business that the recipient's number has changed."""
    return _of("system", {"type": "user_changed_number", "new_wa_id": new_number} | _given(body=body))


def deleted(message_id: str) -> Content:
    """Compose the withdrawal of a message that this number sent earlier."""
    return _of("deleted", {"id": message_id})


def unknown() -> Content:
    """Compose a message of a type that the business's side does not know."""
    return _of("poll", {"question": "Soup or pasta?", "options": ["Soup", "Pasta"]})


def ephemeral() -> Content:
    """Compose a disappearing message. The business learns only that there was one."""
    return {"type": "ephemeral"}


# Kinds of media that may have a caption.
CAPTIONED = ("image", "video", "document")


def medium(kind: str, pointer: Mapping[str, Any], caption: str = "", filename: str = "") -> Content:
    """Compose a message with a file, given by the pointer that `handset.attachments.transfer` creates."""
    return _of(kind, dict(pointer) | _given(caption=caption, filename=filename))


def answering(content: Content, message_id: str, sender: str) -> Content:
    """Return the content as a reply to a message of `sender`."""
    return content | {"context": {"id": message_id, "from": sender}}


def about_product(content: Content, message_id: str, sender: str, catalog_id: str, product_id: str) -> Content:
    """Return the content as a question about a product. `message_id` is empty when it replies to no message."""
    product = {"catalog_id": catalog_id, "product_retailer_id": product_id}
    answered = {"id": message_id, "from": sender} if message_id else {}
    return content | {"context": answered | {"referred_product": product}}


def forwarded(content: Content, *, often: bool = False) -> Content:
    """Return the content as a forwarded message."""
    return content | {"context": {"forwarded": True} | ({"frequently_forwarded": True} if often else {})}


def referred(content: Content, source_url: str, headline: str = "", body: str = "") -> Content:
    """Return the content as the first message of a recipient who came from an advertisement."""
    referral = {"source_url": source_url, "source_type": "ad", "source_id": "1"} | _given(headline=headline, body=body)
    return content | {"referral": referral}


def _of(kind: str, content: Any) -> Content:
    return {"type": kind, kind: content}


def _given(**fields: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}
