"""Page with handsets in a browser: numbers, messages of each type, answers, receipts, and what goes wrong."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.handset.web.test_messages import MP4, OPUS, PDF
from tests.media_samples import PNG, webp_lossless
from tests.pages.browser import axe
from tests.pages.browser.chromium import AWAY, FOCUS, Contexts
from tests.pages.browser.pictures import sunset
from tests.pages.browser.scene import ACCOUNT, Scene
from tidings.wire.cloud import identity, wamid

HOSTILE = "<script>alert(1)</script> \u202eevil\u202c " + "😀" * 60 + " zero\u200bwidth <img src=x onerror=alert(2)>"


def messages(page: Page) -> Locator:
    return page.locator("#messages > .message")


def last(page: Page) -> Locator:
    return messages(page).last


async def open_chat(handsets: Scene, page: Page, **how: Any) -> str:
    """Register a number, and show its chat with the business. Returns the number."""
    number = await handsets.register(page, **how)
    await page.goto(f"{handsets.chat(number)}#end")
    await expect(page.get_by_text("No messages yet")).to_be_visible()
    return number


async def type_message(page: Page, text: str) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.get_by_role("button", name="Send", exact=True).click()


async def show_types(page: Page) -> None:
    """Open the page with the forms of other types."""
    await page.locator("details.attach > summary").click()
    await page.get_by_role("link", name="Location, contact, order and other types").click()


# Numbers.


async def test_numbers_are_registered_closed_opened_and_used_side_by_side(handsets: Scene, page: Page) -> None:
    first = await handsets.register(page)
    second = await handsets.register(page, name="Bob")
    await expect(page.get_by_role("navigation", name="Open phones").get_by_role("link", name=first)).to_be_visible()
    await handsets.say(first, "for the first")
    await page.get_by_role("link", name="All phones").click()
    row = page.get_by_role("listitem").filter(has_text=first)
    await row.get_by_role("link").click()
    await expect(page.get_by_role("link", name="for the first")).to_contain_text("1 unread")
    await page.get_by_role("link", name="for the first").click()
    await expect(last(page)).to_contain_text("for the first")
    await page.get_by_role("link", name="All phones").click()
    await page.get_by_role("button", name=f"Close +{first}").click()
    await page.get_by_role("button", name=f"Open +{first}").click()
    await expect(page.get_by_role("heading", name=f"+{first}")).to_be_visible()
    await expect(page.get_by_role("link", name="for the first")).not_to_contain_text("unread")
    assert second != first


async def test_a_number_that_is_none_is_refused_in_words(handsets: Scene, page: Page, contexts: Contexts) -> None:
    contexts.watch.allow("status of 422")
    await page.goto(handsets.handset_url)
    await page.get_by_label("Phone number").fill("12")
    await page.get_by_role("button", name="Register").click()
    await expect(page.get_by_role("alert")).to_have_text("A phone number has 7 to 15 digits, such as +15550100001.")
    await expect(page.get_by_label("Phone number")).to_have_value("12")


async def test_the_number_is_changed_and_the_business_is_told(handsets: Scene, page: Page) -> None:
    number = await open_chat(handsets, page)
    await type_message(page, "hello")
    await handsets.inbound(number)
    await page.goto(f"{handsets.handset_url}/{number}/settings")
    other = handsets.new_number()
    await page.get_by_label("New number").fill(f"+{other}")
    await page.get_by_role("button", name="Change to this number").click()
    await expect(page.get_by_role("heading", name=f"+{other}")).to_be_visible()
    notice = (await handsets.inbound(number, 2))[1]
    assert (notice["type"], notice["system"]["new_wa_id"]) == ("system", other)


# Messages of each type, as they arrive on an open page.

EXAMPLES = (
    ("location", "full", "Stephansplatz, 1010 Wien 48.2082, 16.3738"),
    ("contacts", "full", "Ada Lovelace +1 555 011 0001 ada@example.com Analytical Engines"),
    ("interactive", "list", "Menu What would you like? Served until 22:00 Choose"),
    ("interactive", "buttons", "Yes No"),
    ("interactive", "product list", "Ours Look order p1 order p2"),
    ("interactive", "catalogue", "All we have catalog_message"),
    ("interactive", "flow", "Form Fill it in Openopens a form"),
    ("interactive", "location request", "Where are you? Send your location"),
    ("template", "order", "Order 42 Hello Ada, your order of € 5.00 comes on Monday. Reply STOP to stop"),
    ("template", "copy code", "123456 is your verification code."),
    ("template", "one tap", "123456 is your verification code. Fill in123456"),
    ("template", "place", "Stephansplatz, 1010 Wien 48.2082, 16.3738 Here we are Thanks"),
    ("template", "offer", "Soup for Ada Copy codeSAVE5 Buy"),
    ("template", "cards", "Two for Ada"),
    ("hsm", "one", "Hello Ada"),
)


async def test_each_type_from_the_api_appears_on_the_open_page(handsets: Scene, contexts: Contexts) -> None:
    context, _ = await contexts.open(storage_state=handsets.session, bypass_csp=True)
    page = await context.new_page()
    number = await open_chat(handsets, page)
    await handsets.say(number, "Hello *Ada*, _welcome_ ~back~ to `Tidings`\nhttps://example.com/path")
    await expect(last(page).locator("b")).to_have_text("Ada")
    await expect(last(page).get_by_role("link", name="https://example.com/path")).to_be_visible()
    for count, (file, case, words) in enumerate(EXAMPLES, 2):
        await handsets.example(number, file, case)
        await expect(messages(page)).to_have_count(count)
        await expect(last(page).locator(".bubble")).to_contain_text(words)
    await expect(page.locator("#said")).to_contain_text("Hello Ada")
    picture = {"id": handsets.picture}
    for body, words in (
        ({"type": "image", "image": {**picture, "caption": "A *cat*"}}, "A cat"),
        ({"type": "audio", "audio": {"id": await handsets.upload(OPUS, "audio/ogg; codecs=opus")}}, "Save"),
        ({"type": "video", "video": {"id": await handsets.upload(MP4, "video/mp4"), "caption": "A film"}}, "A film"),
        ({"type": "sticker", "sticker": {"id": await handsets.upload(webp_lossless(512, 512), "image/webp")}}, "Save"),
        (
            {
                "type": "document",
                "document": {"id": await handsets.upload(PDF, "application/pdf"), "filename": "bill.pdf"},
            },
            "Save bill.pdf",
        ),
    ):
        count = await messages(page).count()
        await handsets.send(number, body)
        await expect(messages(page)).to_have_count(min(count + 1, 30))
        await expect(last(page).locator(".bubble")).to_contain_text(words)
    image = page.locator("figure.image img").last
    assert await image.evaluate("each => each.decode().then(() => each.naturalWidth)") == 1
    async with page.expect_download() as started:
        await page.get_by_role("link", name="Save bill.pdf").click()
    download = await started.value
    assert download.suggested_filename == "bill.pdf"
    assert await asyncio.to_thread((await download.path()).read_bytes) == PDF
    await handsets.say(number, HOSTILE)
    await expect(last(page)).to_contain_text("<script>alert(1)</script>")
    assert await page.locator("script").count() == 3
    assert await axe.violations(page) == []


async def test_groups_are_created_written_to_and_left(handsets: Scene, page: Page) -> None:
    first = await handsets.register(page)
    await page.get_by_role("link", name="New chat or group").click()
    await page.get_by_label("Subject").fill("Lunch")
    await page.get_by_role("button", name="Create").click()
    await page.get_by_role("link", name="About the group, and encryption").click()
    code = await page.get_by_text("Others join with the code").locator("code").inner_text()
    second = await handsets.register(page, name="Bob")
    await page.get_by_role("link", name="New chat or group").click()
    await page.get_by_label("Code, or a link").fill(code)
    await page.get_by_role("button", name="Join").click()
    await expect(page.get_by_role("heading", name="Lunch")).to_be_visible()
    await type_message(page, "Soup?")
    await expect(last(page).locator(".state")).to_contain_text("delivered")
    await page.get_by_role("navigation", name="Open phones").get_by_role("link", name=first).click()
    await page.get_by_role("link", name="Lunch").click()
    await expect(last(page)).to_contain_text(f"+{second}")
    await expect(last(page)).to_contain_text("Soup?")
    await page.get_by_role("link", name="About the group, and encryption").click()
    await page.get_by_role("button", name="Leave the group").click()
    await expect(page.get_by_text("Choose a chat, or start one.")).to_be_visible()


async def test_an_opened_chat_stays_at_its_end_while_pictures_load(handsets: Scene, page: Page) -> None:
    number = await handsets.register(page)
    picture = await handsets.upload(sunset(), "image/png")
    for _ in range(3):
        await handsets.send(number, {"type": "image", "image": {"id": picture}})
    await handsets.statuses(await handsets.say(number, "the end"), "delivered")
    is_loading = asyncio.Event()

    async def load(route: Route) -> None:
        await is_loading.wait()
        await route.continue_()

    await page.route("**/files/**", load)
    await page.goto(f"{handsets.chat(number)}#end", wait_until="domcontentloaded")
    await expect(last(page)).to_be_in_viewport(ratio=1)
    is_loading.set()
    for each in await page.locator("figure.image img").all():
        await each.evaluate("each => { each.loading = 'eager'; return each.decode(); }")
    await expect(last(page)).to_be_in_viewport(ratio=1)
    # A reader of earlier messages stays there.
    scroll = page.locator(".scroll")
    await scroll.evaluate("each => { each.scrollTop = 0; }")
    await handsets.say(number, "one more")
    await expect(messages(page)).to_have_count(5)
    assert await scroll.evaluate("each => each.scrollTop") == 0


@pytest.mark.parametrize("width", [320, 720, 1024, 1280])
async def test_the_options_of_wide_messages_are_within_the_window(
    handsets: Scene, contexts: Contexts, width: int
) -> None:
    context, _ = await contexts.open(storage_state=handsets.session, viewport={"width": width, "height": 800})
    page = await context.new_page()
    number = await open_chat(handsets, page)
    for each in ("short", "wide " * 60):
        await handsets.say(number, each)
        await expect(last(page)).to_contain_text(each.strip())
        await type_message(page, each)
        await expect(page.locator("#messages > .message.own").last).to_contain_text(each.strip())
    await expect(messages(page)).to_have_count(4)
    for message in await messages(page).all():
        await message.locator(".menu > summary").click()
        for control in await message.locator(".panel > a, .panel button").all():
            await expect(control).to_be_in_viewport(ratio=0.99)
        await page.keyboard.press("Escape")


async def test_a_long_name_leaves_the_time_of_a_chat_on_one_line(handsets: Scene, page: Page) -> None:
    await handsets.register(page)
    await page.get_by_role("link", name="New chat or group").click()
    await page.get_by_label("Subject").fill("Deliveries for the north of the city and for all of its suburbs")
    await page.get_by_role("button", name="Create").click()
    time = page.locator(".chats small")
    await expect(time).to_have_text(re.compile(r"\d\d:\d\d"))
    box = await time.bounding_box()
    assert box is not None
    assert box["height"] < 30


# Answers.


async def test_a_key_held_down_and_a_double_click_send_once(handsets: Scene, page: Page) -> None:
    number = await open_chat(handsets, page)
    field = page.get_by_label("Message", exact=True)
    await field.fill("by a key")
    for _ in range(4):
        await page.keyboard.down("Enter")
    await page.keyboard.up("Enter")
    await expect(field).to_have_value("")
    await field.fill("by clicks")
    await page.get_by_role("button", name="Send", exact=True).dblclick()
    await expect(field).to_have_value("")
    await type_message(page, "the last")
    await expect(last(page)).to_contain_text("the last")
    await expect(messages(page)).to_have_count(3)
    assert [each["text"]["body"] for each in await handsets.inbound(number, 3)] == ["by a key", "by clicks", "the last"]


async def test_answers_of_each_type_reach_the_webhook(handsets: Scene, page: Page) -> None:
    number = await open_chat(handsets, page)
    count = 0

    async def arrives(kind: str) -> Any:
        nonlocal count
        count += 1
        found = (await handsets.inbound(number, count))[-1]
        assert found["type"] == kind, found
        return found

    field = page.get_by_label("Message", exact=True)
    await field.fill("typed *here*")
    await field.press("Enter")
    assert (await arrives("text"))["text"]["body"] == "typed *here*"
    await expect(last(page).locator("b")).to_have_text("here")
    await expect(field).to_be_focused()

    await page.locator("details.attach > summary").click()
    files = [{"name": "cat.png", "mimeType": "image/png", "buffer": PNG}]
    await page.get_by_label("File", exact=True).set_input_files(files)
    await expect(page.get_by_text("cat.png goes out with the next message.").first).to_be_visible()
    # The dialogue is opened again, and cancelled.
    await page.get_by_label("File", exact=True).set_input_files([])
    await expect(page.locator("#dropped")).to_be_hidden()
    await page.get_by_label("File", exact=True).set_input_files(files)
    await type_message(page, "A cat")
    assert (await arrives("image"))["image"]["caption"] == "A cat"
    await expect(last(page).get_by_role("img", name="Picture")).to_be_visible()

    await page.locator("#main").evaluate(
        """main => {
          const data = new DataTransfer();
          const content = [new TextEncoder().encode("%PDF-1.7\\n")];
          const type = "application/pdf";
          for (const name of ["bill.pdf", "second.pdf"]) data.items.add(new File(content, name, {type}));
          main.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
        }"""
    )
    await expect(page.get_by_text("bill.pdf goes out with the next message.").first).to_be_visible()
    await page.get_by_role("button", name="Send", exact=True).click()
    assert (await arrives("document"))["document"]["filename"] == "bill.pdf"

    for heading, fields, kind in (
        (
            "Send the location",
            {"Latitude": "48.2", "Longitude": "16.4", "Address (may stay empty)": "Wien"},
            "location",
        ),
        ("Send the contact", {}, "contacts"),
        ("Send the order", {"Catalogue": "c1", "Products, separated by spaces": "p1 p2"}, "order"),
        ("Ask", {"Catalogue": "c1", "Product": "p1", "Question": "In red?"}, "text"),
        ("Send the message", {"URL of the advertisement": "https://example.com/ad", "Message": "Hi"}, "text"),
        ("Send it as forwarded", {"Text": "look"}, "text"),
        ("Send the form", {"JSON object": '{"name": "Ada"}'}, "interactive"),
        ("Send the notice", {"New number": "+15550699999"}, "system"),
        ("Send a disappearing message", {}, "ephemeral"),
        ("Send a type that nobody knows", {}, "unknown"),
    ):
        await show_types(page)
        form = page.locator("form").filter(has=page.get_by_role("button", name=heading, exact=True))
        for label, value in fields.items():
            await form.get_by_label(label, exact=True).fill(value)
        await form.get_by_role("button", name=heading, exact=True).click()
        await arrives(kind)
        await expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()

    await last(page).locator(".menu > summary").click()
    await last(page).get_by_role("button", name="Delete for everyone").click()
    await expect(last(page)).to_contain_text("You deleted this message.")


async def test_choices_reactions_answers_and_forwards_reach_their_recipients(handsets: Scene, page: Page) -> None:
    number = await open_chat(handsets, page)

    buttons = await handsets.example(number, "interactive", "buttons")
    await last(page).get_by_role("button", name="No").click()
    picked = (await handsets.inbound(number))[-1]
    assert (picked["interactive"]["button_reply"]["title"], picked["context"]["id"]) == ("No", buttons)

    await handsets.example(number, "interactive", "list")
    await last(page).locator(".rows > summary").click()
    await last(page).get_by_role("button", name="Pasta").click()
    picked = (await handsets.inbound(number, 2))[-1]
    assert picked["interactive"]["list_reply"] == {"id": "pasta", "title": "Pasta"}

    await handsets.example(number, "template", "order")
    await last(page).get_by_role("button", name="Thanks").click()
    assert (await handsets.inbound(number, 3))[-1]["button"] == {"text": "Thanks", "payload": "YES-42"}

    await handsets.example(number, "interactive", "flow")
    await last(page).get_by_role("link", name="Open opens a form").click()
    await page.get_by_label("Name", exact=True).first.fill("meal")
    await page.get_by_label("Value", exact=True).first.fill("soup")
    await page.get_by_role("button", name="Send the form").click()
    reply = (await handsets.inbound(number, 4))[-1]["interactive"]["nfm_reply"]
    assert '"meal": "soup"' in reply["response_json"]

    await handsets.example(number, "interactive", "location request")
    await last(page).get_by_role("link", name="Send your location").click()
    await page.get_by_label("Latitude").fill("48.2")
    await page.get_by_label("Longitude").fill("16.4")
    await page.get_by_role("button", name="Send the location").click()
    assert (await handsets.inbound(number, 5))[-1]["location"]["latitude"] == 48.2

    said = await handsets.say(number, "Soup or pasta?")
    await expect(last(page)).to_contain_text("Soup or pasta?")
    await last(page).locator(".menu > summary").click()
    await last(page).get_by_role("button", name="👍").click()
    reaction = (await handsets.inbound(number, 6))[-1]["reaction"]
    assert reaction == {"message_id": said, "emoji": "👍"}
    await expect(last(page).locator(".reactions")).to_contain_text("👍 by You")
    await last(page).locator(".menu > summary").click()
    await last(page).get_by_role("link", name="Answer").click()
    await type_message(page, "Both")
    answer = (await handsets.inbound(number, 7))[-1]
    assert (answer["text"]["body"], answer["context"]["id"]) == ("Both", said)
    await expect(last(page).get_by_role("blockquote")).to_contain_text("Soup or pasta?")
    await last(page).locator(".menu > summary").click()
    await last(page).get_by_role("link", name="Forward").click()
    await page.get_by_role("button", name=f"+{ACCOUNT}").click()
    assert (await handsets.inbound(number, 8))[-1]["context"]["forwarded"] is True
    await expect(last(page)).to_contain_text("Forwarded")


# Receipts, typing, blocking, and a phone that is off.


async def test_ticks_and_typing_are_shown_as_they_change(handsets: Scene, page: Page) -> None:
    number = await open_chat(handsets, page)
    await type_message(page, "Are you there?")
    received = (await handsets.inbound(number))[0]
    state = last(page).locator(".state")
    await expect(state).to_have_attribute("title", "sent")
    await handsets.business.must("PUT", f"/v1/messages/{received['id']}", {"status": "read"})
    await expect(state).to_have_attribute("title", "read")
    path = f"/v25.0/{identity.derive(ACCOUNT).phone_number_id}/messages"
    indicator = {
        "messaging_product": "whatsapp",
        "status": "read",
        "message_id": wamid.encode(received["id"], number, by_recipient=True),
        "typing_indicator": {"type": "text"},
    }
    await handsets.business.must("POST", path, indicator)
    await expect(page.locator("#messages").get_by_text("is typing")).to_be_visible()
    await handsets.say(number, "Yes")
    await expect(last(page)).to_contain_text("Yes")
    await expect(page.locator("#messages").get_by_text("is typing")).to_have_count(0)


async def test_a_phone_that_does_not_read_sends_read_by_a_button(handsets: Scene, page: Page) -> None:
    number = await handsets.register(page)
    await page.goto(f"{handsets.handset_url}/{number}/settings")
    await page.get_by_label("Opening a chat sends “read”").uncheck()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    await page.goto(f"{handsets.chat(number)}#end")
    message = await handsets.say(number, "unread")
    await expect(last(page)).to_contain_text("unread")
    await handsets.statuses(message, "delivered")
    assert "read" not in handsets.seen_statuses(message)
    await page.get_by_role("button", name="Send “read” for 1 message").click()
    await handsets.statuses(message, "read")
    await expect(page.get_by_role("button", name="Send “read”")).to_have_count(0)


async def test_a_blocked_business_does_not_reach_the_phone(handsets: Scene, page: Page) -> None:
    number = await open_chat(handsets, page)
    first = await handsets.say(number, "before")
    await expect(last(page)).to_contain_text("before")
    await handsets.statuses(first, "read")
    await page.get_by_role("link", name="Safety number, and blocking").click()
    assert re.fullmatch(r"(\d{5} ){11}\d{5}", await page.locator(".safety code").inner_text())
    await page.get_by_role("button", name=f"Block +{ACCOUNT}").click()
    await expect(page.get_by_text("This number is blocked")).to_be_visible()
    blocked = await handsets.say(number, "blocked")
    await handsets.webhook.until(
        lambda body: any(each["id"] == blocked and each["status"] == "failed" for each in body.get("statuses", ()))
    )
    await page.get_by_role("button", name=f"Unblock +{ACCOUNT}").click()
    await page.goto(f"{handsets.chat(number)}#end")
    await handsets.say(number, "after")
    await expect(last(page)).to_contain_text("after")
    await expect(messages(page)).to_have_count(2)


async def test_a_phone_that_is_off_gets_and_sends_its_messages_later(handsets: Scene, page: Page) -> None:
    number = await open_chat(handsets, page)
    await handsets.say(number, "before")
    await expect(last(page)).to_contain_text("before")
    await page.goto(f"{handsets.handset_url}/{number}/settings")
    await page.get_by_label("The phone is switched on").uncheck()
    await page.get_by_role("button", name="Save").click()
    await page.goto(f"{handsets.chat(number)}#end")
    await expect(page.get_by_text("The phone is switched off.")).to_be_visible()
    message = await handsets.say(number, "waits")
    await handsets.statuses(message, "sent")
    await type_message(page, "waits too")
    await expect(last(page).locator(".state")).to_have_attribute("title", "waiting to be sent")
    assert handsets.seen_statuses(message) == ["sent"]
    await page.get_by_role("link", name="Switch it on").click()
    await page.get_by_label("The phone is switched on").check()
    await page.get_by_role("button", name="Save").click()
    await page.goto(f"{handsets.chat(number)}#end")
    await expect(messages(page)).to_have_count(3)
    assert (await handsets.inbound(number))[0]["text"]["body"] == "waits too"
    await handsets.statuses(message, "delivered", "read")


# Several tabs, restarts, and a browser without scripts.


async def test_two_tabs_show_the_same(handsets: Scene, page: Page) -> None:
    number = await open_chat(handsets, page)
    other = await page.context.new_page()
    await other.goto(f"{handsets.chat(number)}#end")
    await type_message(page, "from the first tab")
    await expect(last(other)).to_contain_text("from the first tab")
    await handsets.say(number, "for both")
    for tab in (page, other):
        await tab.bring_to_front()
        await expect(last(tab)).to_contain_text("for both")


@pytest.mark.parametrize("name", ["handset", "network", "coreapp", "webapp"])
async def test_an_open_page_goes_on_after_the_restart_of_a_process(
    handsets: Scene, page: Page, contexts: Contexts, name: str
) -> None:
    number = await open_chat(handsets, page)
    await handsets.say(number, "before")
    await expect(last(page)).to_contain_text("before")
    contexts.watch.allow(AWAY)
    await page.get_by_label("Message", exact=True).fill("half a sentence")
    await handsets.process(name).kill9()
    await handsets.process(name).start()
    if name == "webapp":
        await handsets.business.log_in()
    await handsets.say(number, "after")
    await expect(last(page)).to_contain_text("after", timeout=60_000)
    # It was not loaded again.
    await expect(page.get_by_label("Message", exact=True)).to_have_value("half a sentence")
    await page.get_by_role("button", name="Send", exact=True).click()
    assert (await handsets.inbound(number))[0]["text"]["body"] == "half a sentence"


async def test_without_scripts_everything_is_read_and_sent(handsets: Scene, contexts: Contexts) -> None:
    context, _ = await contexts.open(storage_state=handsets.session, java_script_enabled=False)
    page = await context.new_page()
    number = await open_chat(handsets, page)
    message = await handsets.example(number, "interactive", "buttons")
    await handsets.statuses(message, "delivered")
    await page.reload()
    await last(page).get_by_role("button", name="Yes").click()
    assert (await handsets.inbound(number))[0]["interactive"]["button_reply"]["title"] == "Yes"
    await page.get_by_label("Message", exact=True).fill("sent without scripts")
    await page.get_by_role("button", name="Send", exact=True).click()
    assert (await handsets.inbound(number, 2))[1]["text"]["body"] == "sent without scripts"
    await page.locator("details.attach > summary").click()
    files = [{"name": "cat.png", "mimeType": "image/png", "buffer": PNG}]
    await page.get_by_label("File", exact=True).set_input_files(files)
    await page.get_by_role("button", name="Send", exact=True).click()
    assert (await handsets.inbound(number, 3))[2]["type"] == "image"
    await show_types(page)
    await page.get_by_label("Latitude").fill("48.2")
    await page.get_by_label("Longitude").fill("16.4")
    await page.get_by_role("button", name="Send the location").click()
    assert (await handsets.inbound(number, 4))[3]["type"] == "location"
    await last(page).locator(".menu > summary").click()
    await last(page).get_by_role("button", name="❤️").click()
    assert (await handsets.inbound(number, 5))[4]["type"] == "reaction"


# Accessibility.

PATHS = (
    "",
    "/{number}",
    "/{number}/settings",
    "/{number}/new",
    "{chat}",
    "{chat}?answer=1",
    "{chat}/more",
    "{chat}/info",
)


def urls(handsets: Scene, number: str) -> list[str]:
    """Return the URLs of the pages of a number."""
    chat = f"/{number}/chats/{ACCOUNT}"
    return [f"{handsets.handset_url}{path.format(number=number, chat=chat)}" for path in (*PATHS, "{chat}/forward/1")]


async def filled_chat(handsets: Scene, page: Page) -> str:
    """Register a number whose chat has several types of messages. Returns the number."""
    number = await open_chat(handsets, page)
    await handsets.send(number, {"type": "image", "image": {"id": handsets.picture, "caption": "A *cat*"}})
    for file, case in (("interactive", "list"), ("template", "cards"), ("template", "order"), ("location", "full")):
        await handsets.example(number, file, case)
    await handsets.say(number, HOSTILE + "x" * 300)
    await expect(messages(page)).to_have_count(6)
    await last(page).locator(".menu > summary").click()
    await last(page).get_by_role("button", name="👍").click()
    await type_message(page, "An answer")
    await expect(messages(page)).to_have_count(7)
    return number


async def test_axe_finds_nothing_on_any_page(handsets: Scene, contexts: Contexts) -> None:
    context, watch = await contexts.open(storage_state=handsets.session, bypass_csp=True)
    page = await context.new_page()
    number = await filled_chat(handsets, page)
    for url in urls(handsets, number):
        await page.goto(url)
        assert await axe.violations(page) == [], url
    watch.allow("status of (403|404)")
    await page.goto(f"{handsets.handset_url}/nowhere/at/all")
    assert await axe.violations(page) == []
    await page.goto(f"{handsets.handset_url}/{number}/chats/{ACCOUNT}")
    await last(page).locator(".menu > summary").click()
    await expect(last(page).locator(".panel")).to_be_visible()
    assert await axe.violations(page) == []
    await page.locator("details.attach > summary").click()
    await expect(page.get_by_label("File", exact=True)).to_be_visible()
    assert await axe.violations(page) == []
    await page.goto(handsets.handset_url)
    await page.get_by_role("button", name="Make a link").click()
    assert await axe.violations(page) == []
    link = await page.locator("code").inner_text()
    unauthenticated, watch = await contexts.open(bypass_csp=True)
    watch.allow("status of 403")
    page = await unauthenticated.new_page()
    for url in (link, handsets.handset_url):
        await page.goto(url)
        assert await axe.violations(page) == [], url


@pytest.mark.parametrize("width", [320, 1280])
async def test_no_page_scrolls_sideways(handsets: Scene, contexts: Contexts, width: int) -> None:
    """320 px are also a page of 1280 px at 400 %, whose height is then 256 px."""
    context, _ = await contexts.open(
        storage_state=handsets.session, viewport={"width": width, "height": width * 4 // 5}
    )
    page = await context.new_page()
    number = await filled_chat(handsets, page)
    for url in urls(handsets, number):
        await page.goto(url)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, url
        cut = await page.evaluate(
            """() => [...document.querySelectorAll("a, button, input, textarea, select, summary, h1, h2, h3, p, label")]
              .filter(each => !each.closest(".cards, .numbers, .hidden-words, .skip, .attach:not([open]) .panel")
                && each.checkVisibility({visibilityProperty: true})
                && !each.matches(".hidden-words, .hidden-words *, .skip"))
              .filter(each => each.getBoundingClientRect().right > innerWidth + 1)
              .map(each => each.outerHTML.slice(0, 120))"""
        )
        assert cut == [], url


async def test_the_keyboard_alone_is_enough_and_the_focus_is_visible(handsets: Scene, page: Page) -> None:
    number = await filled_chat(handsets, page)
    await page.goto(f"{handsets.handset_url}/{number}")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#main")).to_be_focused()
    for url in urls(handsets, number):
        await page.goto(url)
        await page.locator("body").evaluate("() => document.activeElement.blur()")
        seen: list[str] = []
        for _ in range(60):
            await page.keyboard.press("Tab")
            focus = await page.evaluate(FOCUS)
            if not focus["name"] or await page.evaluate("document.activeElement === document.body"):
                break
            assert focus["outline"], (url, focus)
            assert focus["shown"], (url, focus)
            seen.append(focus["name"])
        assert len(seen) > 4, url
    await page.goto(f"{handsets.chat(number)}#end")
    await expect(page.get_by_label("Message", exact=True)).to_be_focused()
    await page.keyboard.type("by the keyboard")
    await page.keyboard.press("Enter")
    await expect(last(page)).to_contain_text("by the keyboard")
    # The menu of the last message is before the field, after the area that scrolls.
    await last(page).locator("summary").focus()
    await page.keyboard.press("Enter")
    await expect(last(page).get_by_role("button", name="Delete for everyone")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(last(page).get_by_role("button", name="Delete for everyone")).to_be_hidden()
    await expect(last(page).locator("summary")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(last(page).locator(".reactions")).to_contain_text("👍")
