"""`python -m tests.pages.browser.pictures DIRECTORY`: draws the pictures of the documents, from a real run.

Each picture is drawn in light and in dark, as WebP of at most 100 KB.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import math
import struct
import sys
import tempfile
import zlib
from pathlib import Path

from playwright.async_api import Page, expect

from tests.pages.browser import console_pages
from tests.pages.browser import scene as scenes
from tests.pages.browser.chromium import Contexts, chromium
from tests.pages.browser.scene import ACCOUNT, Scene

LIMIT = 100_000  # bytes of a picture
QUALITY = 80  # of WebP, of 100
WIDTH = 1040  # of the window, pixels
NUMBER = "15550190001"
ROBOT = "15550140000"
TRAFFIC_SECONDS = 180  # duration of the messages that the overview shows


def sunset(width: int = 480, height: int = 240) -> bytes:
    """Return a PNG of a sun over water."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        down = y / height
        for x in range(width):
            is_sun = (x - width * 0.6) ** 2 + (y - height * 0.5) ** 2 < 1600 and down < 0.6
            sea = down >= 0.6
            red, green, blue = (255, 214, 102) if is_sun else (250 - 60 * down, 150 - 60 * down, 110 + 60 * down)
            rows += bytes((int(red * (0.45 if sea else 1)), int(green * (0.6 if sea else 1)), int(blue)))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


async def draw(page: Page, target: Path, height: int = 720) -> None:
    """Draw what the page shows, in both colour schemes: `<target>-light.webp` and `<target>-dark.webp`.

    height: height of the window, pixels
    """
    await page.set_viewport_size({"width": WIDTH, "height": height})
    session = await page.context.new_cdp_session(page)
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        await page.mouse.move(0, 0)
        drawn = await session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
        data = base64.b64decode(drawn["data"])
        if len(data) > LIMIT:
            sys.exit(f"{target}-{scheme}.webp would have {len(data)} bytes; {LIMIT} is the limit")
        path = target.with_name(f"{target.name}-{scheme}.webp")
        await asyncio.to_thread(path.write_bytes, data)
        print(f"{path}: {len(data)} bytes")


async def draw_handset(scene: Scene, page: Page, directory: Path) -> None:
    """Draw a chat with messages of several types, with a second chat beside it."""
    number = await scene.register(page, number=NUMBER)
    await page.goto(f"{scene.handset_url}/{number}/chats/15550140000#end")
    await page.get_by_label("Message", exact=True).fill("Are you an echo?")
    await page.keyboard.press("Enter")
    await expect(page.locator("#messages > .message")).to_have_count(2)
    await page.goto(f"{scene.handset_url}/{number}/chats/{ACCOUNT}#end")
    messages = page.locator("#messages > .message")
    picture = await scene.upload(sunset(), "image/png")
    await scene.send(number, {"type": "image", "image": {"id": picture, "caption": "*Today:* soup by the sea"}})
    await expect(messages).to_have_count(1)
    await page.get_by_label("Message", exact=True).fill("Lovely. A table for two at eight?")
    await page.keyboard.press("Enter")
    await expect(messages).to_have_count(2)
    (question,) = await scene.inbound(number)
    await scene.business.check_call("PUT", f"/v1/messages/{question['id']}", {"status": "read"})
    await scene.example(number, "interactive", "buttons")
    await expect(messages).to_have_count(3)
    await messages.last.get_by_role("button", name="Yes").click()
    await expect(messages).to_have_count(4)
    await expect(messages.last.locator(".state")).to_have_attribute("title", "sent")
    await scene.example(number, "template", "order")
    await expect(messages).to_have_count(5)
    await page.evaluate("document.activeElement.blur()")
    await draw(page, directory / "handset")


async def draw_console(scene: Scene, page: Page, directory: Path) -> None:
    """Draw Try it after a message, a message whose callback fails, that callback with its attempts, and the overview
    after `TRAFFIC_SECONDS` of messages.
    """
    console = console_pages.address(scene.installation)
    await page.goto(console)
    begun = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        traffic = group.create_task(keep_sending(scene))
        await console_pages.try_it(scene, page, "text", ROBOT, {"Text": "A table for two at eight?"})
        await expect(page.locator("#live .steps")).to_contain_text("Callback was accepted by the webhook")
        await draw(page, directory / "console-try-it", 1180)
        async with console_pages.broken_webhook() as url:
            await console_pages.set_webhook(scene, page, url, backoff=4_000)
            message = await scene.say(ROBOT, "Your table is ready.")
            await page.goto(f"{console}/callbacks?status=failing&id={message}")
            await console_pages.rows(page, "Callbacks, newest first").get_by_role("link").click()
            attempts = console_pages.rows(page, "Attempts to post the callback")
            await expect(attempts.nth(2)).to_be_visible()
            await page.get_by_role("button", name="Show the body and the responses").click()
            # The latest: 20 are kept, and one more takes the place of the first.
            await expect(attempts.last).to_contain_text("down for maintenance")
            await draw(page, directory / "console-callback", 960)
            await page.goto(f"{console}/messages/{message}")
            await expect(page.locator("#live .steps")).to_contain_text("Read")
            await draw(page, directory / "console-message", 860)
        await console_pages.set_webhook(scene, page, scene.webhook_url, backoff=100)
        await page.goto(console)
        await asyncio.sleep(begun + TRAFFIC_SECONDS - asyncio.get_running_loop().time())
        await draw(page, directory / "console-overview")
        traffic.cancel()


async def keep_sending(scene: Scene) -> None:
    """Send messages to a robot, more and fewer of them in turn."""
    for number in itertools.count():
        await scene.say(ROBOT, f"Table {number}")
        await asyncio.sleep(0.2 + 0.15 * math.sin(number / 40))


async def run(directory: Path) -> None:
    await asyncio.to_thread(directory.mkdir, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tidings-pictures-") as folder:
        async with chromium() as browser, scenes.running(Path(folder), browser) as scene:
            contexts = Contexts(browser)
            context, _ = await contexts.open(storage_state=scene.session, viewport={"width": WIDTH, "height": 720})
            await draw_handset(scene, await context.new_page(), directory)
            context, _ = await contexts.open(viewport={"width": WIDTH, "height": 720})
            await draw_console(scene, await console_pages.enter(scene, context), directory)
            if problems := await contexts.close():
                sys.exit("\n".join(problems))


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
