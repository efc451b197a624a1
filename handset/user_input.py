"""Contents composed from what a person has entered, after it is checked. A terminal and a page share these rules."""

from __future__ import annotations

import json
from collections.abc import Mapping

from handset import composing
from handset.composing import Content
from tidings.wire import addresses

MAX_EMOJI = 16  # characters of a reaction


class InvalidInput(ValueError):
    """The input cannot be sent. The text says what is wrong."""


def text(body: str) -> Content:
    """Compose a text. Raises `InvalidInput` for an empty one and for one that is too long."""
    if not body:
        raise InvalidInput("a message has at least one character")
    if len(body) > composing.MAX_TEXT:
        raise InvalidInput(f"at most {composing.MAX_TEXT:,} characters go into one message")
    return composing.text(body)


def location(latitude: str, longitude: str, name: str = "", address: str = "") -> Content:
    """Compose a location from degrees. Raises `InvalidInput`."""
    try:
        point = float(latitude), float(longitude)
    except ValueError:
        point = 999.0, 999.0
    if not (-90 <= point[0] <= 90 and -180 <= point[1] <= 180):
        raise InvalidInput("a location has a latitude from -90 to 90 and a longitude from -180 to 180")
    return composing.location(*point, name, address)


def contact(name: str, phone: str) -> Content:
    """Compose a contact with one number. Raises `InvalidInput`."""
    if not name or not addresses.is_wa_id(phone.removeprefix("+")):
        raise InvalidInput("a contact has a name and a phone number, such as +15550100001")
    return composing.contact(name, phone)


def order(catalog: str, quantities: Mapping[str, int], words: str = "") -> Content:
    """Compose an order. Raises `InvalidInput`."""
    if not catalog or not quantities or min(quantities.values()) < 1:
        raise InvalidInput("an order names a catalogue and at least one product")
    return composing.order(catalog, quantities, words)


def reaction(message_id: str, emoji: str) -> Content:
    """Compose a reaction; without an emoji it removes one. Raises `InvalidInput`."""
    if len(emoji) > MAX_EMOJI:
        raise InvalidInput("a reaction is one emoji")
    return composing.reaction(message_id, emoji)


def about_product(body: str, message_id: str, sender: str, *, catalog: str, product: str) -> Content:
    """Compose a question about a product. Raises `InvalidInput`."""
    if not catalog or not product:
        raise InvalidInput("a question names a catalogue and a product")
    return composing.about_product(text(body), message_id, sender, catalog, product)


def from_advertisement(url: str, body: str) -> Content:
    """Compose the first message after an advertisement. Raises `InvalidInput`."""
    if not url.startswith(("https://", "http://")):
        raise InvalidInput("an advertisement has a URL, such as https://example.com/ad")
    return composing.referred(text(body), url)


def form(response_json: str) -> Content:
    """Compose a completed form. Raises `InvalidInput`."""
    try:
        if not isinstance(json.loads(response_json), dict):
            raise ValueError
    except (ValueError, RecursionError):
        raise InvalidInput('a form is a JSON object, such as {"name": "Ada"}') from None
    return composing.form_reply("flow", "Sent", response_json)


def new_number(typed: str) -> Content:
    """Compose the notice of a new number. Raises `InvalidInput`."""
    digits = typed.replace(" ", "").removeprefix("+")
    if not addresses.is_number(digits):
        raise InvalidInput("a new number has 7 to 15 digits, such as +15550100002")
    return composing.changed_number(digits, f"My number is now +{digits}")
