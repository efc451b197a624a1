"""Display of each type of message to a person, and the replies that a person can give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coreapp.webhook import bodies, inbound
from handset import composing, message_parts, reading
from handset.terminal import commands
from handset.terminal.commands import Thread
from tests.coreapp import webhook_schemas
from tidings.wire import content

DATA = Path(__file__).parents[1] / "data" / "api" / "messages"


def sent(file: str, case: str) -> tuple[str, str]:
    """Return (type, JSON) of a message as the business's API sends it."""
    found = json.loads((DATA / f"{file}.json").read_text())["good"][case]["content"]
    return found["type"], json.dumps(found)


def of(kind: str, inside: Any) -> tuple[str, str]:
    return kind, json.dumps({"type": kind, kind: inside})


def form_reply(token: str) -> dict[str, Any]:
    sent = json.dumps({"flow_token": token}, separators=(",", ":"))
    return {"type": "nfm_reply", "nfm_reply": {"name": "flow", "body": "Sent", "response_json": sent}}


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        (sent("location", "full"), ["[location] Stephansplatz, 1010 Wien (48.2082, 16.3738)"]),
        (sent("location", "bare"), ["[location] 0.0, -180.0"]),
        (
            sent("contacts", "full"),
            ["[contact] Ada Lovelace, +1 555 011 0001, ada@example.com, Analytical Engines"],
        ),
        (
            sent("interactive", "list"),
            [
                "Menu",
                "What would you like?",
                "[Choose]",
                "Warm",
                "  1. Soup (of the day)",
                "  2. Pasta",
                "Cold",
                "  3. Salad",
                "Served until 22:00",
            ],
        ),
        (sent("interactive", "buttons"), ["Is that right?", "  1. Yes", "  2. No"]),
        (
            sent("interactive", "buttons with a picture"),
            ["[image] https://example.com/a.png", "Is that right?", "  1. Yes", "  2. No", "thanks"],
        ),
        (sent("interactive", "product list"), ["Ours", "Look", "  1. order p1", "  2. order p2"]),
        (sent("interactive", "flow"), ["Form", "Fill it in", "  1. Open (form)"]),
        (
            sent("template", "order"),
            [
                "Order 42",
                "Hello Ada, your order of € 5.00 comes on Monday.",
                "Reply STOP to stop",
                "  1. Thanks",
                "  2. Track (https://example.com/42/track)",
                "  3. Call us (+15550000000)",
                "  4. Copy code (SAVE5)",
            ],
        ),
        (
            sent("template", "copy code"),
            [
                "*123456* is your verification code. For your security, do not share this code.",
                "This code expires in 10 minutes.",
                "  1. Copy code (123456)",
            ],
        ),
        (sent("template", "one tap"), ["*123456* is your verification code.", "  1. Fill in (123456)"]),
        (
            sent("template", "place"),
            ["[location] Stephansplatz, 1010 Wien (48.2082, 16.3738)", "Here we are", "  1. Thanks"],
        ),
        (sent("template", "form"), ["Fill it in", "  1. Open (form)"]),
        (
            sent("template", "cards"),
            [
                "Two for Ada",
                "[card 1]",
                "[image] 00000000-0000-4000-8000-000000000001",
                "Red at noon",
                "  1. Take",
                "  2. See (https://example.com/red)",
                "[card 2]",
                "[image] https://example.com/a.png",
                "Blue",
                "  3. Take",
                "  4. See (https://example.com/blue)",
            ],
        ),
        (
            sent("template", "offer"),
            [
                "[offer] Today alone (until 2026-11-21 04:00 UTC)",
                "Soup for Ada",
                "  1. Copy code (SAVE5)",
                "  2. Buy (https://example.com/soup)",
            ],
        ),
        (sent("template", "offer that does not end"), ["[offer] Always", "Soup"]),
        (sent("template", "catalogue"), ["Look", "  1. View"]),
        (sent("template", "picture"), ["[image] https://example.com/a.png", "See above"]),
        (sent("hsm", "one"), ["Hello Ada"]),
        (
            of("document", {"blob": "b", "filename": "bill.pdf", "size": 123_456, "mime_type": "application/pdf"}),
            ["[document] bill.pdf, application/pdf (123.5 kB)"],
        ),
        (
            of("image", {"mime_type": "image/png", "size": 12, "caption": "A cat"}),
            ["[image] image/png (12 bytes)", "A cat"],
        ),
        (
            of("image", {"mime_type": "image/png", "size": 12_345, "sha256": "9F86D081" + "0" * 56}),
            ["[image] image-9f86d081.png, image/png (12.3 kB)"],
        ),
        (of("sticker", {"mime_type": "image/webp", "sha256": "x"}), ["[sticker] sticker-x.webp, image/webp"]),
        (of("audio", {"id": "5c1e"}), ["[audio] 5c1e"]),
        (of("reaction", {"message_id": "x", "emoji": "👍"}), ["[reaction] 👍"]),
        (of("poll", {}), ["[poll]"]),
        (("text", "no JSON"), ["[text]"]),
    ],
)
def test_a_message_is_displayed_as_readable_lines(message: tuple[str, str], lines: list[str]) -> None:
    assert reading.read(*message).lines == lines


@pytest.mark.parametrize(
    ("message", "picked", "answer"),
    [
        (
            sent("interactive", "list"),
            "1",
            {"type": "list_reply", "list_reply": {"id": "soup", "title": "Soup", "description": "of the day"}},
        ),
        (
            sent("interactive", "one section without a title"),
            "1",
            {"type": "list_reply", "list_reply": {"id": "0", "title": "None"}},
        ),
        (sent("interactive", "buttons"), "2", {"type": "button_reply", "button_reply": {"id": "1", "title": "No"}}),
        (sent("template", "order"), "1", {"text": "Thanks", "payload": "YES-42"}),
        (sent("template", "cards"), "3", {"text": "Take", "payload": "BLUE"}),
        (
            sent("template", "form"),
            "1",
            form_reply("t-1"),
        ),
        (
            sent("interactive", "flow"),
            "1",
            form_reply("t"),
        ),
    ],
)
def test_a_selected_choice_reaches_the_business_as_the_recorded_answer(
    message: tuple[str, str], picked: str, answer: Any
) -> None:
    thread = Thread(choices=reading.read(*message).choices, offered="gBEG1", newest="gBEG2")
    made = commands.compose(f"/pick {picked}", "15550000000", thread)
    understood = inbound.read(content.encode(made, "Ada"))
    assert json.loads(content.encode({"content": understood.content}))["content"] == answer
    assert understood.name == "Ada"
    assert understood.context == inbound.Context("gBEG1", "15550000000")


@pytest.mark.parametrize(
    ("name", "picked", "told"),
    [
        ("copy code", "1", "123456 is copied"),
        ("one tap", "1", "123456 goes to com.example.app"),
        ("zero tap", "1", "123456 goes to com.example.app"),
        ("order", "2", "a browser would open https://example.com/42/track"),
        ("order", "3", "a phone would call +15550000000"),
        ("order", "4", "SAVE5 is copied"),
        ("cards", "4", "a browser would open https://example.com/blue"),
        ("catalogue", "1", "the catalogue would open"),
    ],
)
def test_a_button_that_sends_nothing_reports_its_effect(name: str, picked: str, told: str) -> None:
    thread = Thread(choices=reading.read(*sent("template", name)).choices, offered="gBEG1", newest="gBEG2")
    with pytest.raises(commands.NothingToSend) as done:
        commands.compose(f"/pick {picked}", "15550000000", thread)
    assert str(done.value) == told


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("/location 48.2082 16.3738 Stephansplatz 1", "location"),
        ("/location 48.2082, 16.3738", "location"),
        ("/contact Ada Lovelace +15550100001", "contacts"),
        ("/react 👍", "reaction"),
        ("/react", "reaction"),
        ("/order c1 p1 p2 p1", "order"),
        ("/delete", "deleted"),
        ("/reply yes, please", "text"),
        ("/forward look", "text"),
        ("/about c1 p1 In red?", "text"),
        ("/ad https://example.com/ad Tell me more", "text"),
        ('/form {"name": "Ada"}', "interactive"),
        ("/number +1 555 011 0002", "system"),
        ("/unknown", "unknown"),
    ],
)
def test_the_business_reads_the_content_of_every_command(line: str, kind: str) -> None:
    made = commands.compose(line, "15550000000", Thread(newest="gBEG1", sent="ABGG1"))
    assert inbound.read(content.encode(made)).kind == kind


def test_reply_forward_about_and_ad_commands_reach_the_webhook() -> None:
    def entry(line: str) -> dict[str, Any]:
        made = commands.compose(line, "15550000000", Thread(newest="gBEG1"))
        body = json.loads(bodies.inbound("ABGG1", "15550110001", 1, inbound.read(content.encode(made))))
        webhook_schemas.check(body)
        found: dict[str, Any] = body["messages"][0]
        return found

    answered = {"id": "gBEG1", "from": "15550000000"}
    assert entry("/reply yes")["context"] == answered
    assert entry("/forward look")["context"] == {"forwarded": True}
    product = {"catalog_id": "c1", "product_retailer_id": "p1"}
    assert entry("/about c1 p1 In red?")["context"] == {**answered, "referred_product": product}
    assert entry("/about c1 p1 In red?")["text"] == {"body": "In red?"}
    assert entry("/ad https://example.com/ad Hi")["referral"]["source_url"] == "https://example.com/ad"


@pytest.mark.parametrize(
    "made",
    [
        composing.text("x"),
        composing.form_reply("flow", "Sent", "{}"),
        composing.changed_number("15550110002", "moved"),
        composing.button("x", None),
        composing.order("c", {"p": 2}, "please"),
    ],
)
def test_the_business_reads_the_content_that_the_library_builds(made: composing.Content) -> None:
    assert inbound.read(content.encode(made)).kind == made["type"]


@pytest.mark.parametrize(
    "line",
    [
        "/pick",
        "/pick 1",
        "/pick x",
        "/location",
        "/location here",
        "/location 91 0",
        "/location nan nan",
        "/react x",
        "/contact Ada",
        "/order c1",
        "/delete",
        "/reply yes",
        "/forward",
        "/about c1 p1",
        "/ad Tell me more",
        "/ad https://example.com/ad",
        "/form [1]",
        "/form {",
        "/number five",
    ],
)
def test_an_invalid_command_reports_its_usage(line: str) -> None:
    with pytest.raises(commands.CommandUsageError, match=r"Use /|There is no|No message has|You have sent no"):
        commands.compose(line, "1", Thread())
    with pytest.raises(commands.CommandUsageError, match="from 1 to 1"):
        commands.compose("/pick 2", "1", Thread(choices=[reading.ReplyChoice("x", {})]))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "body", "text", "action", "rows"]), inner),
)


@given(st.sampled_from([*message_parts._READERS, "null", "x"]), _JSON)
def test_any_content_yields_lines_to_show(kind: str, inside: Any) -> None:
    assert reading.read(*of(kind, inside)).lines
