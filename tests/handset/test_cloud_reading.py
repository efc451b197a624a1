"""Display of the message types that only the Cloud API sends."""

from __future__ import annotations

import json
from typing import Any

from handset import reading


def read(kind: str, inside: Any) -> reading.MessageText:
    return reading.read(kind, json.dumps({"type": kind, kind: inside}))


def link(text: str, url: str) -> dict[str, Any]:
    return {"name": "cta_url", "parameters": {"display_text": text, "url": url}}


def test_a_link_is_a_choice_that_opens_a_browser() -> None:
    action = link("Go", "https://example.com")
    shown = read("interactive", {"type": "cta_url", "body": {"text": "Look"}, "action": action})
    assert shown.lines == ["Look", "  1. Go (https://example.com)"]
    assert shown.choices[0].answer is None
    assert shown.choices[0].effect == "a browser would open https://example.com"


def test_a_carousel_shows_each_card_with_its_choice() -> None:
    image = {"type": "image", "image": {"link": "https://example.com/a.png"}}
    product = {"catalog_id": "c", "product_retailer_id": "p"}
    cards = [
        {"card_index": 0, "type": "cta_url", "header": image, "action": link("Go", "https://example.com")},
        {"card_index": 1, "type": "product", "body": {"text": "Soup"}, "action": product},
    ]
    shown = read("interactive", {"type": "carousel", "body": {"text": "Look"}, "action": {"cards": cards}})
    assert shown.lines == [
        "Look",
        "[card 1]",
        "[image] https://example.com/a.png",
        "  1. Go (https://example.com)",
        "[card 2]",
        "Soup",
        "  2. order p",
    ]
    answer = shown.choices[1].answer
    assert answer is not None
    assert answer["order"]["product_items"][0]["product_retailer_id"] == "p"


def test_a_request_for_contact_details_names_the_command() -> None:
    action = {"name": "request_contact_info"}
    shown = read("interactive", {"type": "request_contact_info", "body": {"text": "Who?"}, "action": action})
    assert shown.lines == ["Who?", "[asks for your contact details: /contact NAME NUMBER]"]


def test_a_sound_that_is_a_voice_message_is_shown_as_one() -> None:
    assert read("audio", {"link": "https://example.com/a.ogg", "voice": True}).lines == [
        "[voice] https://example.com/a.ogg"
    ]
    assert read("audio", {"link": "https://example.com/a.ogg"}).lines == ["[audio] https://example.com/a.ogg"]


def test_a_reaction_and_its_removal_are_shown() -> None:
    assert read("reaction", {"message_id": "x", "emoji": "👍"}).lines == ["[reaction] 👍"]
    assert read("reaction", {"message_id": "x", "emoji": ""}).lines == ["[reaction] taken back"]
