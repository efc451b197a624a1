"""The console at work: first password, messages to a phone and back, a broken webhook, tabs, restarts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import Page, expect

from harness.client import PASSWORD
from harness.installation import Installation
from tests.handset.web.test_messages import MP4, OPUS, PDF
from tests.media_samples import PNG, webp_lossless
from tests.pages.browser.chromium import AWAY, Contexts
from tests.pages.browser.console_pages import address, broken_webhook, enter, log_in, rows, set_webhook, try_it
from tests.pages.browser.scene import VARIABLES, Scene
from tests.web_server import serving

ROBOT = "15550140000"
FILES = {
    "cat.png": ("image/png", PNG),
    "film.mp4": ("video/mp4", MP4),
    "voice.ogg": ("audio/ogg; codecs=opus", OPUS),
    "bill.pdf": ("application/pdf", PDF),
    "sticker.webp": ("image/webp", webp_lossless(512, 512)),
}
LONG = 600_000  # backoff after which no test waits for a retry, milliseconds


@pytest_asyncio.fixture(loop_scope="session")
async def files() -> AsyncIterator[str]:
    """URL of a server with the files that messages name by a link."""

    def of(kind: str, data: bytes) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def reply(request: web.Request) -> web.Response:
            return web.Response(body=data, headers={"Content-Type": kind})

        return reply

    app = web.Application()
    for name, (kind, data) in FILES.items():
        app.router.add_get(f"/{name}", of(kind, data))
    async with serving(app) as url:
        yield url


@pytest_asyncio.fixture(loop_scope="session")
async def broken(scene: Scene) -> AsyncIterator[str]:
    """URL of a webhook that fails. Callbacks go to the working one again after the test."""

    async with broken_webhook() as url:
        yield url
    await scene.business.check_call("PATCH", "/v1/settings/application", {"callback_backoff_delay_ms": 100})
    await scene.business.set_webhook(scene.webhook_url)


@pytest_asyncio.fixture(loop_scope="session")
async def console(handsets: Scene, contexts: Contexts) -> Page:
    """Tab with the console."""
    context, _ = await contexts.open()
    return await enter(handsets, context)


async def test_the_first_password_is_chosen_at_the_first_login(contexts: Contexts, tmp_path: Path) -> None:
    context, watch = await contexts.open()
    watch.allow("status of 40[01]")
    async with Installation(tmp_path, None, VARIABLES) as installation:
        await installation.start(["webapp"])
        page = await log_in(installation, context, "secret")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Choose a password")
        for new, repeated, words in (
            (PASSWORD, "another", "The two passwords differ."),
            ("weak", "weak", "The password was not set"),
        ):
            await page.get_by_label("New password", exact=True).fill(new)
            await page.get_by_label("New password again").fill(repeated)
            await page.get_by_role("button", name="Set password").click()
            await expect(page.get_by_role("alert")).to_contain_text(words)
        await page.get_by_label("New password", exact=True).fill(PASSWORD)
        await page.get_by_label("New password again").fill(PASSWORD)
        await page.get_by_role("button", name="Set password").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        other = await log_in(installation, (await contexts.open())[0])
        await expect(other.get_by_role("heading", level=1)).to_have_text("Overview")


async def test_each_type_that_is_tried_arrives_on_the_phone_and_its_steps_appear(
    handsets: Scene, contexts: Contexts, console: Page, files: str
) -> None:
    context, _ = await contexts.open(storage_state=handsets.session)
    phone = await context.new_page()
    number = await handsets.register(phone)
    await phone.goto(f"{handsets.chat(number)}#end")
    messages = phone.locator("#messages > .message")
    link = "Link to the file"
    tried = (
        ("text", {"Text": "Tried *here*"}, "Tried here"),
        (
            "template",
            {"Name": "hello", "Language": "en_US", "Parameters of the body, one per line": "Ada"},
            "Hello Ada",
        ),
        ("image", {link: f"{files}/cat.png", "Caption": "A cat"}, "A cat"),
        ("video", {link: f"{files}/film.mp4", "Caption": "A film"}, "A film"),
        ("audio", {link: f"{files}/voice.ogg"}, "Save"),
        ("document", {link: f"{files}/bill.pdf", "File name": "bill.pdf"}, "Save bill.pdf"),
        ("sticker", {link: f"{files}/sticker.webp"}, "Save"),
        ("location", {"Name": "Stephansplatz"}, "Stephansplatz"),
        ("contacts", {"Name": "Grace Hopper"}, "Grace Hopper"),
        ("buttons", {"Text": "Is it right?"}, "Is it right?"),
        ("list", {"Text": "Tea or coffee?"}, "Tea or coffee?"),
        ("json", {"Message without “to”": '{"type": "text", "text": {"body": "By JSON"}}'}, "By JSON"),
    )
    for count, (kind, fields, words) in enumerate(tried, 1):
        await try_it(handsets, console, kind, number, fields)
        await expect(messages).to_have_count(count)
        await expect(messages.last.locator(".bubble")).to_contain_text(words)
    steps = console.locator("#live .steps")
    for words in ("Stored by the network", "Delivered", "Read", "Callback was accepted by the webhook"):
        await expect(steps).to_contain_text(words)

    # The answer appears on the open list.
    await console.goto(f"{address(handsets.installation)}/messages?direction=received&recipient={number}")
    await expect(console.get_by_role("heading", level=1)).to_have_text("Messages")
    await phone.get_by_label("Message", exact=True).fill("Thank you")
    await phone.get_by_role("button", name="Send", exact=True).click()
    (reply,) = await handsets.inbound(number)
    row = console.get_by_role("link", name=str(reply["id"]))
    await expect(row).to_be_visible()
    await row.click()
    await expect(console.locator("#live .steps")).to_contain_text("Received")
    await expect(rows(console, "Callbacks about this message")).to_have_count(1)


async def test_a_second_click_does_not_send_a_form_again(handsets: Scene, console: Page) -> None:
    await console.goto(f"{address(handsets.installation)}/try-it")
    await console.get_by_label("To", exact=True).fill(ROBOT)
    sent = await console.evaluate(
        """() => {
          const sent = [];
          window.addEventListener("submit", event => {
            sent.push(!event.defaultPrevented);
            event.preventDefault();
          });
          for (let each = 0; each < 2; each += 1) document.querySelector("main form button").click();
          return sent;
        }"""
    )
    assert sent == [True, False]


async def test_a_broken_webhook_is_seen_mended_and_its_callback_sent_again(
    handsets: Scene, console: Page, broken: str
) -> None:
    await set_webhook(handsets, console, broken, backoff=500)
    message = await handsets.say(ROBOT, "before the webhook is mended")
    await console.goto(f"{address(handsets.installation)}/callbacks?status=failing&id={message}")
    row = rows(console, "Callbacks, newest first")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("HTTP 500")
    await row.get_by_role("link").click()
    attempts = rows(console, "Attempts to post the callback")
    await expect(attempts.first).to_be_visible()
    present = await attempts.count()
    await expect(attempts.nth(present + 1)).to_be_visible()  # as they are made, on the open page
    callback = console.url
    await console.get_by_role("button", name="Show the body and the responses").click()
    # The latest: 20 are kept, and one more takes the place of the first.
    await expect(attempts.last).to_contain_text("down for maintenance")
    await expect(console.get_by_text(f'"id": "{message}"')).to_be_visible()

    await set_webhook(handsets, console, handsets.webhook_url, backoff=500)
    await console.goto(callback)
    await expect(console.locator("#live dl")).to_contain_text("done")
    await handsets.statuses(message, "sent", "delivered", "read")
    assert handsets.seen_statuses(message).count("sent") == 1
    await console.get_by_role("button", name="Send again now").click()
    await expect(console.locator("#live")).to_contain_text("1 of 1 done")
    await expect(console.locator("#live")).to_contain_text("finished")
    await handsets.until_seen(message, "sent", 2)


async def test_callbacks_are_deleted_after_their_count_was_typed(
    handsets: Scene, contexts: Contexts, console: Page, broken: str
) -> None:
    contexts.watch.allow("status of 400")
    await set_webhook(handsets, console, broken, backoff=LONG)
    phones, _ = await contexts.open(storage_state=handsets.session)
    number = await handsets.register(await phones.new_page())
    for text in ("one", "two", "three"):
        await handsets.say(number, text)
    await console.goto(f"{address(handsets.installation)}/callbacks?status=failing&recipient={number}")
    row = rows(console, "Callbacks, newest first")
    await expect(row).to_have_count(3)
    await console.get_by_role("link", name="Delete all that match").click()
    typed = console.get_by_label("Type 3 to confirm")
    await typed.fill("4")
    await console.get_by_role("button", name="Delete 3 callbacks").click()
    await expect(console.get_by_role("alert")).to_contain_text("Type the number 3 to delete these callbacks.")
    await typed.fill("3")
    await console.get_by_role("button", name="Delete 3 callbacks").click()
    await expect(console.locator("#live")).to_contain_text("3 of 3 done")
    await expect(console.locator("#live")).to_contain_text("finished")
    await console.goto(f"{address(handsets.installation)}/callbacks/audit")
    first = rows(console, "Latest replays and deletions of callbacks").first
    await expect(first).to_contain_text("deleted")
    await expect(first.locator("td").nth(1)).to_have_text("3")


async def test_two_tabs_show_the_same_and_the_end_of_their_session(
    handsets: Scene, contexts: Contexts, console: Page
) -> None:
    contexts.watch.allow("status of 401")
    message = await handsets.say(ROBOT, "for two tabs")
    await handsets.statuses(message, "sent")
    other = await console.context.new_page()
    for tab in (console, other):
        await tab.goto(f"{address(handsets.installation)}/callbacks?id={message}&status=done")
        await expect(rows(tab, "Callbacks, newest first").first).to_be_visible()
    await console.bring_to_front()
    await console.get_by_label("Select evt_").first.check()
    await console.get_by_role("button", name="Send the selected again").click()
    await expect(console.locator("#live")).to_contain_text("finished")
    change = console.url.rpartition("/")[2]
    await other.bring_to_front()
    link = rows(other, "Latest replays and deletions").locator(f"a[href$='{change}']")
    await expect(link).to_be_visible()
    await console.get_by_role("button", name="Log out").click()
    await expect(console.get_by_label("Password")).to_be_visible()
    await other.bring_to_front()
    await expect(other.get_by_role("status")).to_have_text("The session has ended.")
    await expect(other.get_by_role("link", name="Log in")).to_be_visible()


@pytest.mark.parametrize("name", ["network", "robots", "coreapp", "webapp"])
async def test_an_open_page_goes_on_after_the_restart_of_a_process(
    handsets: Scene, contexts: Contexts, console: Page, name: str
) -> None:
    contexts.watch.allow(AWAY)
    await console.goto(f"{address(handsets.installation)}/messages?recipient={ROBOT}")
    before = await handsets.say(ROBOT, f"before the restart of {name}")
    await expect(console.get_by_role("link", name=before)).to_be_visible()
    await console.evaluate("document.body.dataset.kept = '1'")
    await handsets.process(name).kill9()
    await handsets.process(name).start()
    if name == "webapp":
        await handsets.business.log_in()
    after = await handsets.say(ROBOT, f"after the restart of {name}")
    row = console.locator("tr", has=console.get_by_role("link", name=after))
    await expect(row).to_contain_text("read", timeout=60_000)
    # It was not loaded again.
    assert await console.evaluate("document.body.dataset.kept") == "1"
    await expect(console.locator("body.stale")).to_have_count(0)
