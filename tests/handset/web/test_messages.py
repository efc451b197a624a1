"""Messages on the page: each type as it is shown, from a message that a business sent over a real network."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from handset import composing
from handset.attachments import transfer
from tests.handset.business import Recorder
from tests.handset.scripted import BUSINESS
from tests.handset.web.conftest import ADA, CHAT, Browser, Page
from tests.pages import document
from tidings.client.http import NetworkApi

DATA = Path(__file__).parents[2] / "data" / "api" / "messages"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
JPEG = b"\xff\xd8\xff\xe0" + bytes(2000)
OPUS = b"OggS" + bytes(22) + b"\x01\x13OpusHead" + bytes(2000)
MP4 = b"\x00\x00\x00\x18ftypisom" + bytes(2000)
PDF = b"%PDF-1.7\n" + bytes(2000)
HTML = b"<!DOCTYPE html><script>alert(1)</script>"


def example(file: str, case: str) -> dict[str, Any]:
    """Return a content as the business's API sends it."""
    found: dict[str, Any] = json.loads((DATA / f"{file}.json").read_text())["good"][case]["content"]
    return found


async def with_file(shop: Recorder, folder: Path, name: str, data: bytes, **how: Any) -> dict[str, Any]:
    """Upload a file as the business, and return the message that points to it."""
    assert shop.fleet is not None
    (folder / name).write_bytes(data)
    async with NetworkApi(shop.http_url) as api:
        return await transfer.upload(api, shop.fleet.devices[BUSINESS], folder / name, **how)


async def test_a_message_is_shown_with_its_receipts_and_a_reply_arrives(browser: Browser, shop: Recorder) -> None:
    message = await shop.send(ADA, "Hello *Ada*")
    listed = await browser.until(f"/handset/{ADA}", r"Hello \*Ada\*")
    assert listed.root.one("span", class_="badge").text == "1 unread"
    await shop.until(lambda: shop.events(message) == ["delivered"])
    page = await browser.get(CHAT)
    assert page.last.one("div", class_="text").one("b").text == "Ada"
    await shop.until(lambda: shop.events(message) == ["delivered", "read"])
    answered = await browser.write(CHAT, "hello back")
    assert answered.last.one("div", class_="text").text == "hello back"
    await shop.until(lambda: [m.text for m in shop.messages] == ["hello back"])
    assert json.loads(shop.messages[0].raw or "{}").get("profile", {"name": "Ada"}) == {"name": "Ada"}
    await browser.until(CHAT, "✓ ?sent")
    assert not (await browser.get(f"/handset/{ADA}")).root.all("span", class_="badge")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (example("location", "full"), "Stephansplatz, 1010 Wien 48.2082, 16.3738"),
        (example("location", "bare"), "0.0, -180.0"),
        (example("contacts", "full"), "Ada Lovelace +1 555 011 0001 ada@example.com Analytical Engines"),
        (
            example("interactive", "list"),
            "Menu What would you like? Served until 22:00 Choose Warm Soup of the day Pasta Cold Salad",
        ),
        (example("interactive", "buttons with a picture"), "Is that right? thanks Yes No"),
        (example("interactive", "product list"), "Ours Look order p1 order p2"),
        (example("interactive", "flow"), "Form Fill it in Open opens a form"),
        (example("interactive", "location request"), "Where are you? Send your location"),
        (example("interactive", "catalogue"), "All we have catalog_message"),
        (
            example("template", "order"),
            "Order 42 Hello Ada, your order of € 5.00 comes on Monday. Reply STOP to stop"
            " Thanks Track https://example.com/42/track Call us +15550000000 Copy code SAVE5",
        ),
        (
            example("template", "copy code"),
            "123456 is your verification code. For your security, do not share this code."
            " This code expires in 10 minutes. Copy code 123456",
        ),
        (example("template", "one tap"), "123456 is your verification code. Fill in 123456"),
        (example("template", "place"), "Stephansplatz, 1010 Wien 48.2082, 16.3738 Here we are Thanks"),
        (example("template", "offer"), "Today alone until 2026-11-21 04:00 UTC Soup for Ada Copy code SAVE5 Buy"),
        (example("template", "cards"), "Two for Ada"),
        (example("template", "cards"), "Red at noon Take See https://example.com/red"),
        (example("template", "cards"), "Blue Take See https://example.com/blue"),
        (example("template", "catalogue"), "Look View"),
        (example("hsm", "one"), "Hello Ada"),
        (composing.order("c", {"p1": 2}, "please"), "Order 2 × p1 please"),
        (composing.button("Thanks", "P"), "Chosen Thanks"),
        (composing.list_reply("a", "Soup"), "Chosen Soup"),
        (composing.changed_number("15550110002", "moved"), "Notice moved"),
        (composing.forwarded(composing.text("look")), "Forwarded look"),
        (composing.about_product(composing.text("In red?"), "", "", "c1", "p1"), "About the product p1 In red?"),
        (composing.unknown(), "Poll"),
        (composing.ephemeral(), "Disappearing message"),
        ({"type": "hologram", "hologram": {}}, "This phone does not display messages of the type “hologram”."),
    ],
)
async def test_each_type_is_shown(browser: Browser, shop: Recorder, content: dict[str, Any], words: str) -> None:
    assert shop.fleet is not None
    sent = await shop.fleet.send_content(BUSINESS, ADA, content)
    await shop.until(lambda: "delivered" in shop.events(sent))
    page = await browser.until(CHAT, "Options for")
    assert words in page.last.one("div", class_="bubble").text
    assert document.faults(page.response.text) == []


async def test_quotes_reactions_and_withdrawn_messages_are_shown(browser: Browser, shop: Recorder) -> None:
    assert shop.fleet is not None
    send = shop.fleet.send_content
    first = await send(BUSINESS, ADA, composing.text("Soup or pasta?"))
    await send(BUSINESS, ADA, composing.answering(composing.text("Both?"), first, BUSINESS))
    await send(BUSINESS, ADA, composing.answering(composing.text("Well?"), "gBEG-unseen", BUSINESS))
    await send(BUSINESS, ADA, composing.reaction(first, "👍"))
    gone = await send(BUSINESS, ADA, composing.text("secret"))
    await send(BUSINESS, ADA, composing.deleted(gone))
    page = await browser.until(CHAT, "This message was deleted")
    soup, both, well, deleted = page.messages
    assert soup.one("p", class_="reactions").text == f"👍 by +{BUSINESS}"
    assert both.one("blockquote").text == f"+{BUSINESS} Soup or pasta?"
    assert both.one("blockquote").one("a").get("href") == f"#{soup.get('id')}"
    assert well.one("blockquote").text == "An earlier message gBEG-unseen"
    assert (deleted.one("p", class_="gone").text, "secret" in page.response.text) == (
        "This message was deleted.",
        False,
    )
    await send(BUSINESS, ADA, composing.reaction(first, ""))
    await send(BUSINESS, ADA, composing.text("the end"))
    page = await browser.until(CHAT, "the end")
    assert not page.root.all("p", class_="reactions")


async def test_nobody_withdraws_the_message_of_another(browser: Browser, shop: Recorder) -> None:
    assert shop.fleet is not None
    await browser.write(CHAT, "mine")
    await shop.until(lambda: len(shop.messages) == 1)
    await shop.fleet.send_content(BUSINESS, ADA, composing.deleted(shop.messages[0].id))
    await shop.send(ADA, "the end")
    page = await browser.until(CHAT, "the end")
    assert page.messages[0].one("div", class_="text").text == "mine"


@pytest.mark.parametrize(
    ("name", "data", "how", "element", "served"),
    [
        ("cat.png", PNG, {"caption": "A cat"}, "img", "image/png"),
        ("photo.jpg", JPEG, {}, "img", "image/jpeg"),
        ("film.mp4", MP4, {}, "video", "video/mp4"),
        ("note.ogg", OPUS, {}, "audio", "audio/ogg; codecs=opus"),
        ("note.ogg", OPUS, {"kind": "voice"}, "audio", "audio/ogg; codecs=opus"),
        ("bill.pdf", PDF, {}, "", "application/octet-stream"),
        ("page.html", HTML, {}, "", "application/octet-stream"),
    ],
)
async def test_a_file_is_shown_and_served_but_never_as_a_document(
    browser: Browser, shop: Recorder, tmp_path: Path, *, name: str, data: bytes, how: Any, element: str, served: str
) -> None:
    page = await show_file(browser, shop, await with_file(shop, tmp_path, name, data, **how))
    figure = page.last.one("figure")
    link = figure.one("a").get("href")
    if element:
        assert figure.one(element).get("src") == link
    else:
        assert not figure.all("img") + figure.all("video") + figure.all("audio")
    response = await browser.client.get(link)
    assert (response.status_code, response.content) == (200, data)
    assert response.headers["content-type"] == served
    assert response.headers["content-disposition"].startswith("attachment; filename=")
    assert response.headers["content-security-policy"] == "sandbox; default-src 'none'; frame-ancestors 'none'"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert (await browser.client.get(f"{link}9")).status_code == 404


async def show_file(browser: Browser, shop: Recorder, content: Mapping[str, Any]) -> Page:
    assert shop.fleet is not None
    await shop.fleet.send_content(BUSINESS, ADA, content)
    return await browser.until(CHAT, "Save ")


async def test_a_file_that_is_not_of_its_type_is_served_as_bytes(
    browser: Browser, shop: Recorder, tmp_path: Path
) -> None:
    made = await with_file(shop, tmp_path, "page.html", HTML)
    pointer = {**made["document"], "mime_type": "image/png"}
    page = await show_file(browser, shop, {"type": "image", "image": pointer})
    response = await browser.client.get(page.last.one("figure").one("a").get("href"))
    assert response.headers["content-type"] == "application/octet-stream"


async def test_files_inside_buttons_templates_and_cards_are_served(
    browser: Browser, shop: Recorder, tmp_path: Path
) -> None:
    one = (await with_file(shop, tmp_path, "one.png", PNG))["image"]
    two = (await with_file(shop, tmp_path, "two.jpg", JPEG))["image"]
    cards = [
        {
            "card_index": n,
            "type": "cta_url",
            "header": {"type": "image", "image": pointer},
            "body": {"text": f"card {n}"},
            "action": {"name": "cta_url", "parameters": {"display_text": "Go", "url": "https://example.com"}},
        }
        for n, pointer in enumerate((one, two))
    ]
    carousel = {"type": "carousel", "body": {"text": "Look"}, "action": {"cards": cards}}
    page = await show_file(browser, shop, {"type": "interactive", "interactive": carousel})
    sources = [image.get("src") for image in page.last.all("img")]
    assert [(await browser.client.get(source)).content for source in sources] == [PNG, JPEG]


async def test_a_long_chat_has_pages(browser: Browser, shop: Recorder) -> None:
    for n in range(70):
        await shop.send(ADA, f"message {n}.")
    page = await browser.until(CHAT, r"message 69\.")
    assert [m.one("div", class_="text").text for m in page.messages] == [f"message {n}." for n in range(40, 70)]
    older = page.root.one("p", class_="older").one("a").get("href")
    page = await browser.get(older)
    assert [m.one("div", class_="text").text for m in page.messages] == [f"message {n}." for n in range(10, 40)]
    assert not page.root.one("ol", id="messages").get("hx-get")
    page = await browser.get(page.root.all("p", class_="older")[0].one("a").get("href"))
    assert [m.one("div", class_="text").text for m in page.messages] == [f"message {n}." for n in range(10)]


CANARY = "<img src=x onerror=alert(1)>\"'&{{7001*7001}}</textarea></script>"


def tainted(value: Any, path: str = "") -> Any:
    """Return a content with the canary in each text, apart from those that select how it is read."""
    kept = {"type", "blob", "key", "digest", "sha256", "id", "message_id", "look", "name", "sub_type", "code"}
    if isinstance(value, dict):
        return {k: v if k in kept and isinstance(v, str) else tainted(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [tainted(each, path) for each in value]
    return CANARY if isinstance(value, str) else value


@pytest.mark.parametrize(
    "make",
    [
        lambda: composing.text(CANARY),
        lambda: tainted(example("location", "full")),
        lambda: tainted(example("contacts", "full")),
        lambda: tainted(example("interactive", "list")),
        lambda: tainted(example("interactive", "buttons")),
        lambda: tainted(example("interactive", "flow")),
        lambda: tainted(example("interactive", "product list")),
        lambda: tainted(example("template", "order")),
        lambda: tainted(example("template", "one tap")),
        lambda: tainted(example("template", "cards")),
        lambda: tainted(example("template", "offer")),
        lambda: {"type": "document", "document": {"filename": CANARY, "mime_type": CANARY, "caption": CANARY}},
        lambda: {"type": "image", "image": {"link": CANARY, "caption": CANARY}},
        lambda: tainted(composing.order("c", {"p": 1}, "x")),
        lambda: composing.button(CANARY, None),
        lambda: composing.changed_number("15550110002", CANARY),
        lambda: composing.answering(composing.text("x"), CANARY, CANARY),
        lambda: composing.about_product(composing.text("x"), CANARY, CANARY, CANARY, CANARY),
        lambda: composing.referred(composing.text("x"), CANARY),
        lambda: {"type": CANARY[:16], CANARY[:16]: CANARY},
    ],
)
async def test_a_canary_in_each_field_is_escaped(
    browser: Browser, shop: Recorder, make: Callable[[], dict[str, Any]]
) -> None:
    assert shop.fleet is not None
    sent = await shop.fleet.send_content(BUSINESS, ADA, make())
    await shop.until(lambda: "delivered" in shop.events(sent))
    pages = [await browser.until(CHAT, "Options for")]
    paths = [
        f"/handset/{ADA}",
        *(a.get("href") for a in pages[0].last.all("a") if a.get("href").startswith("/handset")),
    ]
    pages += [await browser.get(path) for path in paths if "/files/" not in path]
    for page in pages:
        assert document.faults(page.response.text) == [], page.url
        assert "<img src=x" not in page.response.text
        assert "49014001" not in page.text


@pytest.mark.parametrize(
    "text",
    [
        "\u202egnp.exe\u202c",
        "\u2067\u2066\u202e\u202d" * 50,
        "😀" * 4096,
        "\u200b\u200c\u200d\ufeff" * 500,
        "a" * 4096,
        "e" + "\u0301" * 2000,
        "\x00\x07\x1b[31m",
        "*" * 4096,
        "_" * 2000 + "*a" * 1000,
        "https://" + "a" * 3000 + ".example/\u202ex",
        "```" * 1000,
        "> " * 1000,
        "1. x\n" * 800,
    ],
)
async def test_hostile_text_renders_harmlessly(browser: Browser, shop: Recorder, text: str) -> None:
    await shop.send(ADA, text)
    page = await browser.until(CHAT, "Options for")
    assert document.faults(page.response.text) == []
    listed = page.root.one("ul", class_="chats")
    assert not {"\u202e", "\u2067", "\u202d", "\u2066"} & set(listed.text)
    for element in page.last.one("div", class_="text").walk():
        if element.tag in ("p", "li", "blockquote", "pre"):
            assert element.get("dir") == "auto"
    assert "\x1b" not in page.response.text
    assert "\x00" not in page.response.text
