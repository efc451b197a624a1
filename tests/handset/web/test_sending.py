"""Messages that a person sends from the page reach the business, in the form in which the webhook gets them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coreapp.webhook import bodies, inbound
from handset import composing
from handset.attachments import pointers
from tests.coreapp import webhook_schemas
from tests.handset.business import Recorder
from tests.handset.scripted import BUSINESS
from tests.handset.web.conftest import ADA, BOB, CHAT, Browser, Page, register
from tests.handset.web.test_messages import JPEG, OPUS, PDF, PNG, example
from tests.pages import document
from tests.pages.document import Element
from tidings.wire import content


def posted(shop: Recorder, number: int = 0) -> dict[str, Any]:
    """Return the message that the webhook gets for a message of the handset."""
    message = shop.messages[number]
    raw = message.raw.encode() or content.encode_text(message.text)
    body = json.loads(bodies.inbound(message.id, message.peer, 1_700_000_000, inbound.read(raw)))
    webhook_schemas.check(body)
    found: dict[str, Any] = body["messages"][0]
    return found


def form_of(page: Page, kind: str) -> Element:
    """Return the form for a type."""
    return next(form for form in page.root.all("form") if form.all("input", name="kind", value=kind))


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (
            "location",
            {"latitude": "48.2082", "longitude": "16.3738", "name": "Dom", "address": "Wien"},
            {"location": {"latitude": 48.2082, "longitude": 16.3738, "name": "Dom", "address": "Wien"}},
        ),
        (
            "contact",
            {"name": "Ada Lovelace", "phone": "+1 555 010 0001"},
            {
                "contacts": [
                    {
                        "name": {"formatted_name": "Ada Lovelace", "first_name": "Ada"},
                        "phones": [{"phone": "+15550100001", "wa_id": "15550100001"}],
                    }
                ]
            },
        ),
        (
            "order",
            {"catalog": "c1", "products": "p1 p2 p1", "quantity": "2", "text": "please"},
            {
                "order": {
                    "catalog_id": "c1",
                    "product_items": [
                        {"product_retailer_id": "p1", "quantity": 4, "item_price": 1.0, "currency": "EUR"},
                        {"product_retailer_id": "p2", "quantity": 2, "item_price": 1.0, "currency": "EUR"},
                    ],
                    "text": "please",
                }
            },
        ),
        (
            "product",
            {"catalog": "c1", "product": "p1", "text": "In red?"},
            {
                "text": {"body": "In red?"},
                "context": {"referred_product": {"catalog_id": "c1", "product_retailer_id": "p1"}},
            },
        ),
        ("forwarded", {"text": "look"}, {"text": {"body": "look"}, "context": {"forwarded": True}}),
        (
            "form",
            {"response": '{"name": "Ada"}'},
            {
                "interactive": {
                    "type": "nfm_reply",
                    "nfm_reply": {"name": "flow", "body": "Sent", "response_json": '{"name": "Ada"}'},
                }
            },
        ),
        ("number", {"new_number": "+1 555 010 0009"}, {"type": "system"}),
    ],
)
async def test_each_type_of_the_form_reaches_the_webhook(
    browser: Browser, shop: Recorder, kind: str, values: dict[str, str], expected: dict[str, Any]
) -> None:
    page = await browser.get(f"{CHAT}/more")
    sent = await browser.send(page, form_of(page, kind), values)
    assert sent.url.endswith(f"{CHAT}#end"), sent.text
    await shop.until(lambda: len(shop.messages) == 1)
    found = posted(shop)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(("kind", "type_"), [("ephemeral", "ephemeral"), ("unknown", "unknown")])
async def test_types_without_words_reach_the_webhook(browser: Browser, shop: Recorder, kind: str, type_: str) -> None:
    page = await browser.get(f"{CHAT}/more")
    (button,) = page.root.all("button", value=kind)
    await browser.press(page, button)
    await shop.until(lambda: len(shop.messages) == 1)
    assert posted(shop)["type"] == type_


@pytest.mark.parametrize(
    ("name", "data", "fields", "type_", "filename"),
    [
        ("cat.png", PNG, {"text": "A cat"}, "image", ""),
        ("photo.jpg", JPEG, {"as": "document"}, "document", "photo.jpg"),
        ("note.ogg", OPUS, {}, "audio", ""),
        ("note.ogg", OPUS, {"as": "voice"}, "voice", ""),
        ("../../bill.pdf", PDF, {"text": "Yours"}, "document", "bill.pdf"),
    ],
)
async def test_a_file_reaches_the_webhook(
    browser: Browser, shop: Recorder, *, name: str, data: bytes, fields: dict[str, str], type_: str, filename: str
) -> None:
    page = await browser.get(CHAT)
    form = page.root.one("form", id="composer")
    sent = await browser.send(page, form, fields, files={"file": (name, data)})
    assert sent.url.endswith("#end"), sent.text
    await shop.until(lambda: len(shop.messages) == 1)
    message = shop.messages[0]
    assert (posted(shop)["type"], posted(shop)[type_].get("caption", "")) == (type_, fields.get("text", ""))
    (pointer,) = pointers.find(message.type, message.raw)
    assert (pointer.size, pointer.filename or "") == (len(data), filename)
    link = sent.last.one("figure").one("a").get("href")
    assert (await browser.client.get(link)).content == data


@pytest.mark.parametrize(
    ("content_", "label", "expected"),
    [
        (
            example("interactive", "list"),
            "Pasta",
            {"interactive": {"type": "list_reply", "list_reply": {"id": "pasta", "title": "Pasta"}}},
        ),
        (
            example("interactive", "buttons"),
            "No",
            {"interactive": {"type": "button_reply", "button_reply": {"id": "1", "title": "No"}}},
        ),
        (example("template", "order"), "Thanks", {"button": {"text": "Thanks", "payload": "YES-42"}}),
        (example("interactive", "product list"), "order p2", {"type": "order"}),
    ],
)
async def test_a_tapped_choice_reaches_the_webhook(
    browser: Browser, shop: Recorder, content_: dict[str, Any], label: str, expected: dict[str, Any]
) -> None:
    assert shop.fleet is not None
    offered = await shop.fleet.send_content(BUSINESS, ADA, content_)
    page = await browser.until(CHAT, "Options for")
    (button,) = [each for each in page.last.all("button", class_="choice") if each.text.startswith(label)]
    await browser.press(page, button)
    await shop.until(lambda: len(shop.messages) == 1)
    found = posted(shop)
    assert {name: found[name] for name in expected} == expected
    assert found["context"] == {"id": offered, "from": BUSINESS}


async def test_the_second_card_of_a_template_is_tapped(browser: Browser, shop: Recorder) -> None:
    assert shop.fleet is not None
    await shop.fleet.send_content(BUSINESS, ADA, example("template", "cards"))
    page = await browser.until(CHAT, "Options for")
    card = page.last.all("div", class_="card")[1]
    await browser.press(page, card.all("button", class_="choice")[0])
    await shop.until(lambda: len(shop.messages) == 1)
    assert posted(shop)["button"] == {"text": "Take", "payload": "BLUE"}


@pytest.mark.parametrize(
    ("case", "label", "effect"),
    [
        ("copy code", "Copy code", "123456 is copied."),
        ("one tap", "Fill in", "123456 goes to com.example.app."),
        ("order", "Call us", "A phone would call +15550000000."),
        ("catalogue", "View", "The catalogue would open."),
    ],
)
async def test_a_button_that_sends_nothing_shows_its_effect(
    browser: Browser, shop: Recorder, case: str, label: str, effect: str
) -> None:
    assert shop.fleet is not None
    await shop.fleet.send_content(BUSINESS, ADA, example("template", case))
    page = await browser.until(CHAT, "Options for")
    (button,) = [each for each in page.last.all("button", class_="choice") if each.text.startswith(label)]
    done = await browser.press(page, button)
    assert done.root.one("form", id="composer").all("p", class_="note")[0].text == effect
    assert shop.messages == []


async def test_a_link_of_a_button_opens_apart_from_the_page(browser: Browser, shop: Recorder) -> None:
    assert shop.fleet is not None
    await shop.fleet.send_content(BUSINESS, ADA, example("template", "order"))
    page = await browser.until(CHAT, "Options for")
    link = page.last.one("a", class_="choice")
    assert (link.get("href"), link.get("rel")) == ("https://example.com/42/track", "noopener noreferrer")


async def test_a_form_opens_with_its_data_and_its_answers_reach_the_webhook(browser: Browser, shop: Recorder) -> None:
    assert shop.fleet is not None
    await shop.fleet.send_content(BUSINESS, ADA, example("template", "form"))
    page = await browser.until(CHAT, "Options for")
    form_page = await browser.get(page.last.one("a", class_="choice").get("href"))
    assert document.faults(form_page.response.text) == []
    form = form_page.root.all("form")[-1]
    assert form.one("input", name="field name").get("value") == "Ada"
    await browser.send(form_page, form, {"field name": "Grace", "name 0": "colour", "value 0": "red"})
    await shop.until(lambda: len(shop.messages) == 1)
    reply = posted(shop)["interactive"]["nfm_reply"]
    assert json.loads(reply["response_json"]) == {"flow_token": "t-1", "name": "Grace", "colour": "red"}


async def test_reactions_replies_and_withdrawals_reach_the_webhook(browser: Browser, shop: Recorder) -> None:
    first = await shop.send(ADA, "Soup?")
    page = await browser.until(CHAT, "Options for")
    thumbs = page.last.all("button", name="do")[0]
    page = await browser.press(page, thumbs)
    assert page.last.one("p", class_="reactions").text == "👍 by You"
    await shop.until(lambda: len(shop.messages) == 1)
    assert posted(shop)["reaction"] == {"message_id": first, "emoji": "👍"}

    (remove,) = [each for each in page.last.all("button") if each.text == "Remove the reaction"]
    page = await browser.press(page, remove)
    await shop.until(lambda: len(shop.messages) == 2)
    assert posted(shop, 1)["reaction"]["emoji"] == ""
    assert not page.last.all("p", class_="reactions")

    (answer,) = [each for each in page.last.all("a") if each.text == "Answer"]
    page = await browser.get(answer.get("href"))
    assert page.root.one("div", class_="answering").text.startswith(f"Answer to +{BUSINESS}")
    page = await browser.send(page, page.root.one("form", id="composer"), {"text": "Yes"})
    await shop.until(lambda: len(shop.messages) == 3)
    assert posted(shop, 2)["context"] == {"id": first, "from": BUSINESS}
    assert page.last.one("blockquote").text == f"+{BUSINESS} Soup?"

    (delete,) = [each for each in page.last.all("button") if each.text == "Delete for everyone"]
    page = await browser.press(page, delete)
    assert page.last.one("p", class_="gone").text == "You deleted this message."
    await shop.until(lambda: len(shop.messages) == 4)
    assert inbound.read(shop.messages[3].raw.encode()).content.id == shop.messages[2].id


async def test_a_message_is_forwarded_to_another_number_with_its_file(browser: Browser, shop: Recorder) -> None:
    assert shop.fleet is not None
    await register(browser, BOB)
    page = await browser.get(CHAT)
    form = page.root.one("form", id="composer")
    page = await browser.send(page, form, {"text": "A cat"}, files={"file": ("cat.png", PNG)})
    (forward,) = [each for each in page.last.all("a") if each.text == "Forward"]
    page = await browser.get(forward.get("href"))
    assert document.faults(page.response.text) == []
    page = await browser.send(page, page.root.all("form")[0], {"to": f"+{BOB}"})
    assert f"/chats/{BOB}" in page.url
    shown = await browser.until(f"/handset/{BOB}/chats/{ADA}", "Forwarded")
    assert shown.last.one("div", class_="caption").text == "A cat"
    link = shown.last.one("figure").one("a").get("href")
    assert (await browser.client.get(link)).content == PNG
    await shop.until(lambda: len(shop.messages) == 1)


async def test_ticks_follow_a_message_between_two_numbers(browser: Browser) -> None:
    await register(browser, BOB)
    await browser.write(f"/handset/{ADA}/chats/{BOB}", "hello Bob")
    page = await browser.until(f"/handset/{ADA}/chats/{BOB}", "delivered")
    assert page.last.one("span", class_="state").get("title") == "delivered"
    await browser.until(f"/handset/{BOB}/chats/{ADA}", "hello Bob")
    page = await browser.until(f"/handset/{ADA}/chats/{BOB}", "✓✓ ?read")
    assert page.last.one("span", class_="state").get("title") == "read"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"text": ""}, "Not sent: a message has at least one character."),
        ({"text": "x" * 4097}, "Not sent: at most 4,096 characters go into one message."),
        ({"kind": "location", "latitude": "91", "longitude": "0"}, "Not sent: a location has a latitude from -90"),
        ({"kind": "contact", "name": "Ada"}, "Not sent: a contact has a name and a phone number"),
        ({"kind": "order", "catalog": "c"}, "Not sent: an order names a catalogue"),
        ({"kind": "form", "response": "["}, "Not sent: a form is a JSON object"),
        ({"kind": "nonsense"}, "Not sent: this page does not send that type."),
    ],
)
async def test_a_form_that_cannot_be_sent_is_shown_again_with_the_reason(
    browser: Browser, shop: Recorder, values: dict[str, str], said: str
) -> None:
    page = await browser.get(CHAT)
    page = await browser.send(page, page.root.one("form", id="composer"), values)
    assert page.status == 422
    assert page.root.one("p", id="problem").text.startswith(said)
    assert page.root.one("textarea").text == values.get("text", "")
    assert document.faults(page.response.text) == []
    assert shop.messages == []


async def test_a_number_that_does_not_exist_is_named(browser: Browser) -> None:
    page = await browser.write(f"/handset/{ADA}/chats/15559999999", "anybody?")
    assert (page.status, page.root.one("p", id="problem").text) == (422, "Not sent: +15559999999 is not registered.")


async def test_an_empty_file_is_refused(browser: Browser) -> None:
    page = await browser.get(CHAT)
    page = await browser.send(page, page.root.one("form", id="composer"), {}, files={"file": ("nothing.txt", b"")})
    assert (page.status, page.root.one("p", id="problem").text) == (422, "Not sent: nothing.txt is empty.")


async def test_a_group_is_joined_written_to_and_left(browser: Browser) -> None:
    await register(browser, BOB)
    page = await browser.get(f"/handset/{ADA}/new")
    assert document.faults(page.response.text) == []
    page = await browser.send(page, page.root.all("form")[2], {"subject": "Lunch <b>"})
    group = page.url.partition("/chats/")[2].partition("#")[0]
    info = await browser.get(f"/handset/{ADA}/chats/{group}/info")
    code = info.root.all("code")[-1].text
    page = await browser.get(f"/handset/{BOB}/new")
    page = await browser.send(page, page.root.all("form")[1], {"code": f"https://example.org/{code}"})
    assert page.root.one("h2").text == "Lunch <b>"
    await browser.until(f"/handset/{ADA}/chats/{group}", rf"\+{BOB} joined")
    await browser.write(f"/handset/{ADA}/chats/{group}", "Soup today")
    page = await browser.until(f"/handset/{BOB}/chats/{group}", "Soup today")
    assert page.last.one("p", class_="author").text == f"+{ADA}"
    page = await browser.until(f"/handset/{ADA}/chats/{group}", f"read by .{BOB}")
    info = await browser.get(f"/handset/{BOB}/chats/{group}/info")
    assert f"+{ADA}, admin" in info.text
    await browser.press(info, info.root.one("button", value="leave"))
    await browser.until(f"/handset/{ADA}/chats/{group}", rf"\+{BOB} left")


async def test_the_content_of_an_own_message_keeps_its_origin(browser: Browser, shop: Recorder) -> None:
    page = await browser.get(f"{CHAT}/more")
    form = form_of(page, "advertisement")
    page = await browser.send(page, form, {"url": "https://example.com/ad", "text": "Hi"})
    assert page.last.one("p", class_="origin").text == "After the advertisement https://example.com/ad"
    page = await browser.get(f"{CHAT}/more")
    page = await browser.send(page, form_of(page, "forwarded"), {"text": "look"})
    assert page.last.one("p", class_="origin").text == "Forwarded"
    assert composing.forwarded(composing.text("look"))["context"] == {"forwarded": True}
