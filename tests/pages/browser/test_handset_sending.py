"""Page with handsets in a browser: what a phone sends, and that it sends it once."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page, Route, expect

from tests.media_samples import PNG
from tests.pages.browser.handset_pages import last, messages, open_chat, show_types, type_message
from tests.pages.browser.scene import ACCOUNT, Scene


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


async def test_a_form_that_loads_no_page_does_not_hold_up_another(handsets: Scene, page: Page) -> None:
    number = await handsets.register(page)
    await page.goto(f"{handsets.handset_url}/{number}/settings")

    async def leave(route: Route) -> None:
        await route.fulfill(status=204)

    await page.route("**/settings", leave)
    async with page.expect_response("**/settings") as response:
        await page.get_by_role("button", name="Save").click()
    assert (await response.value).status == 204
    await page.get_by_role("button", name="Close this phone").click()
    await expect(page.get_by_role("button", name=f"Open +{number}")).to_be_visible()


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
