"""Page with handsets in a browser: numbers, messages of each type, receipts, several tabs, and what goes wrong."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page, expect

from tests.handset.web.test_messages import MP4, OPUS, PDF
from tests.media_samples import PNG, webp_lossless
from tests.pages.browser import axe
from tests.pages.browser.chromium import AWAY, Contexts
from tests.pages.browser.handset_pages import HOSTILE, last, messages, open_chat, show_types, type_message
from tests.pages.browser.scene import ACCOUNT, Scene
from tidings.wire.cloud import identity, wamid

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


async def test_a_logout_ends_the_session_in_all_tabs(handsets: Scene, page: Page, contexts: Contexts) -> None:
    await page.goto(handsets.handset_url)
    await page.get_by_role("button", name="Make a link").click()
    link = await page.locator("code").inner_text()
    # This session is not the one that other tests use.
    context, watch = await contexts.open(bypass_csp=True)
    entered = await context.new_page()
    await entered.goto(link)
    await entered.get_by_role("button", name="Open the phones").click()
    await open_chat(handsets, entered)
    second = await context.new_page()
    await second.goto(handsets.handset_url)
    watch.allow("status of 403")
    await second.get_by_role("button", name="Log out").click()
    await expect(second.get_by_role("heading", name="You are logged out")).to_be_visible()
    assert await axe.violations(second) == []
    assert await context.cookies() == []
    await entered.bring_to_front()
    await expect(entered.get_by_role("region", name="Connection")).to_contain_text("The session has ended.")
    await second.goto(handsets.handset_url)
    await expect(second.get_by_text("This page opens by a link")).to_be_visible()
    await page.goto(handsets.handset_url)
    await expect(page.get_by_role("heading", name="Phones")).to_be_visible()


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
    assert await page.locator("script").count() == 4
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


# Receipts, typing, blocking, and a phone that is off.


async def test_ticks_and_typing_are_shown_as_they_change(handsets: Scene, page: Page) -> None:
    number = await open_chat(handsets, page)
    await type_message(page, "Are you there?")
    received = (await handsets.inbound(number))[0]
    state = last(page).locator(".state")
    await expect(state).to_have_attribute("title", "sent")
    await handsets.business.check_call("PUT", f"/v1/messages/{received['id']}", {"status": "read"})
    await expect(state).to_have_attribute("title", "read")
    path = f"/v25.0/{identity.derive(ACCOUNT).phone_number_id}/messages"
    indicator = {
        "messaging_product": "whatsapp",
        "status": "read",
        "message_id": wamid.encode(received["id"], number, by_recipient=True),
        "typing_indicator": {"type": "text"},
    }
    await handsets.business.check_call("POST", path, indicator)
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
