"""pywa, the Python library for the Cloud API, unchanged: it sends, receives and manages a real installation.

The library knows only `https://graph.facebook.com`, so its HTTP client gets a transport that leads there to the
installation. Everything else is the library's own: its requests, its reading of responses, and its web server with the
check of signatures.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import fastapi
import httpx
import pytest
import pytest_asyncio
import uvicorn
from pywa import errors
from pywa.client import WhatsApp
from pywa.handlers import MessageHandler, MessageStatusHandler
from pywa.types import callback, others, templates
from pywa.types.message import Message
from pywa.types.message_status import MessageStatus
from pywa.utils import CallbackURLScope

from harness import cloud_client
from harness.installation import Installation
from harness.mariadb import free_port
from tests.media_samples import PDF, PNG, SAMPLES
from tidings.wire.cloud import identity

pytestmark = [pytest.mark.whole_system, pytest.mark.asyncio(loop_scope="module")]

IDS = identity.derive(cloud_client.ACCOUNT)
READER, ECHO = "15550110001", "15550140001"
VERIFY_TOKEN = "open sesame"
PATH = "/webhook"
SECONDS = 60.0
STATUSES = {"sent", "delivered", "read"}


class Redirect(httpx.HTTPTransport):
    """Transport that sends requests for the real service to an installation."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert request.url.host in ("graph.facebook.com", "127.0.0.1")
        request.url = request.url.copy_with(scheme="http", host="127.0.0.1", port=self._port)
        return super().handle_request(request)


class Receiver:
    """Updates that the library's handlers received. They run in threads of the library."""

    def __init__(self) -> None:
        self.statuses: dict[str, set[str]] = collections.defaultdict(set)
        self.trackers: dict[str, str | None] = {}
        self.messages: list[Message] = []
        self._changed = threading.Condition()

    def take_status(self, _: WhatsApp, status: MessageStatus) -> None:
        with self._changed:
            self.statuses[status.id].add(str(status.status.value).lower())
            self.trackers[status.id] = status.tracker
            self._changed.notify_all()

    def take_message(self, _: WhatsApp, message: Message) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def forget(self) -> None:
        """Forget what was received so far."""
        with self._changed:
            self.statuses.clear()
            self.trackers.clear()
            self.messages.clear()

    async def until(self, holds: Callable[[], bool]) -> None:
        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(holds, SECONDS)

        assert await asyncio.to_thread(wait), (self.statuses, self.messages)


@contextlib.asynccontextmanager
async def served(app: fastapi.FastAPI, port: int) -> AsyncIterator[None]:
    """Serve the library's web application."""
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", lifespan="off"))
    running = asyncio.create_task(server.serve())
    try:
        yield
    finally:
        server.should_exit = True
        await running


class Business:
    """Business whose program uses the library."""

    def __init__(self, wa: WhatsApp, received: Receiver, webhook: str, picture: str) -> None:
        """picture: URL of a file to link to"""
        self.wa = wa
        self.received = received
        self.webhook = webhook
        self.picture = picture

    async def call(self, work: Callable[..., Any], *arguments: Any, **fields: Any) -> Any:
        """Call a blocking method of the library."""
        return await asyncio.to_thread(work, *arguments, **fields)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Business]:
    """Business whose library has registered its callback, with the WABA, and verified it; for all tests of this
    module."""
    # This release of the library reads `contacts` of each status, and the user's id in it.
    variables = {
        "TIDINGS_CLOUD_API": "1",
        "TIDINGS_CLOUD_BSUID": "1",
        "TIDINGS_ROBOTS_PER_KIND": "2",
        "TIDINGS_MESSAGES_RATE": "0",
    }
    async with Installation(tmp_path_factory.mktemp("pywa"), None, variables) as installation:
        await installation.start()
        token = (await installation.business()).token
        secret = await cloud_client.app_secret(installation.common)
        port, app, received = free_port(), fastapi.FastAPI(), Receiver()
        webhook, picture = f"http://127.0.0.1:{port}{PATH}", f"http://127.0.0.1:{port}/a.png"
        app.add_api_route("/a.png", lambda: fastapi.Response(PNG, media_type="image/png"))
        async with served(app, port):
            with httpx.Client(transport=Redirect(installation.api_port), timeout=30.0) as session:
                wa = WhatsApp(
                    phone_id=IDS.phone_number_id,
                    token=token,
                    session=session,
                    server=app,
                    webhook_endpoint=PATH,
                    verify_token=VERIFY_TOKEN,
                    validate_updates=True,
                    waba_id=IDS.waba_id,
                    business_portfolio_id=IDS.business_id,
                    callback_url=webhook.removesuffix(PATH),
                    callback_url_scope=CallbackURLScope.WABA,
                    webhook_challenge_delay=1,
                    app_id=int(IDS.app_id),
                    app_secret=secret,
                )
                wa.add_handlers(
                    MessageStatusHandler(received.take_status),
                    MessageHandler(received.take_message),
                )
                found = Business(wa, received, webhook, picture)
                await until_registered(found)
                yield found


@pytest.fixture
def business(running: Business) -> Business:
    """`running`, whose library has received nothing yet."""
    running.received.forget()
    return running


async def until_registered(business: Business) -> None:
    """Wait until the library, which does so a second after its creation, has registered its callback."""
    async with asyncio.timeout(20):
        while True:
            number = await business.call(business.wa.get_business_phone_number)
            if business.webhook in str(number.webhook_configuration):
                return
            await asyncio.sleep(0.1)


def sends(business: Business) -> Mapping[str, Callable[[], Any]]:
    """Return a call for each kind of message that the library can send to a recipient."""
    wa = business.wa
    ogg = SAMPLES["audio/ogg; codecs=opus"]
    cards = [
        callback.ImageCarouselCard(
            image=business.picture,
            body=f"Card {n}",
            buttons=callback.URLButton("Open", f"https://shop.example/{n}"),
        )
        for n in range(2)
    ]
    contact = others.Contact(
        name=others.Contact.Name(formatted_name="Ana B", first_name="Ana"),
        phones=[others.Contact.Phone(phone="+15550110009", type="CELL")],
        emails=[others.Contact.Email(email="ana@shop.example", type="WORK")],
    )
    sections = [callback.Section("Today", rows=[callback.SectionRow("Soup", "soup", "of the day")])]
    return {
        "text": lambda: wa.send_message(READER, "Hello *Ana*", tracker="order 7", preview_url=False),
        "number": lambda: wa.send_message(int(READER), "to a number"),
        "buttons": lambda: wa.send_message(
            READER, "Soup?", header="Lunch", footer="Today only", buttons=[callback.Button("Yes", "y")]
        ),
        "list": lambda: wa.send_message(READER, "Choose", buttons=callback.SectionList("Menu", sections)),
        "url": lambda: wa.send_message(READER, "Shop", buttons=callback.URLButton("Open", "https://shop.example")),
        "image": lambda: wa.send_image(READER, PNG, caption="A picture", mime_type="image/png"),
        "image by link": lambda: wa.send_image(READER, business.picture),
        "image buttons": lambda: wa.send_image(
            READER, PNG, caption="Buy?", mime_type="image/png", buttons=[callback.Button("Yes", "y")]
        ),
        "video": lambda: wa.send_video(READER, SAMPLES["video/mp4"], mime_type="video/mp4"),
        "document": lambda: wa.send_document(READER, PDF, filename="bill.pdf", mime_type="application/pdf"),
        "audio": lambda: wa.send_audio(READER, SAMPLES["audio/mpeg"], mime_type="audio/mpeg"),
        "voice": lambda: wa.send_voice(READER, ogg, mime_type="audio/ogg"),
        "sticker": lambda: wa.send_sticker(READER, SAMPLES["image/webp"], mime_type="image/webp"),
        "location": lambda: wa.send_location(READER, 48.2, 16.4, name="Shop", address="Main Street 1"),
        "location request": lambda: wa.request_location(READER, "Where are you?"),
        "contact request": lambda: wa.request_contact_info(READER, "Who are you?"),
        "contact": lambda: wa.send_contact(READER, contact),
        "catalog": lambda: wa.send_catalog(READER, "Our shop", thumbnail_product_sku="sku-1"),
        "product": lambda: wa.send_product(READER, "catalog-1", "sku-1", body="Soup", footer="Hot"),
        "products": lambda: wa.send_products(
            READER, "catalog-1", [others.ProductsSection("Soups", ["sku-1"])], title="Lunch", body="Choose"
        ),
        "carousel": lambda: wa.send_carousel(READER, body="Our cards", cards=cards),
    }


async def test_each_kind_of_message_reaches_its_recipient_and_its_statuses_the_library(business: Business) -> None:
    sent = {kind: (await business.call(send)).id for kind, send in sends(business).items()}
    assert len(set(sent.values())) == len(sent)
    found = business.received
    await found.until(lambda: all(found.statuses[message_id] >= STATUSES for message_id in sent.values()))
    assert found.trackers[sent["text"]] == "order 7"


async def test_a_reply_is_received_marked_quoted_and_reacted_to(business: Business) -> None:
    wa, found = business.wa, business.received
    sent = await business.call(wa.send_message, ECHO, "Grüße \U0001f642 / @")
    await found.until(lambda: bool(found.messages))
    [reply] = found.messages
    assert (reply.text, reply.from_user.wa_id) == ("Grüße \U0001f642 / @", ECHO)
    assert (reply.metadata.phone_number_id, reply.type) == (IDS.phone_number_id, others.MessageType.TEXT)
    assert (await business.call(wa.mark_message_as_read, reply.id)).success
    assert (await business.call(wa.indicate_typing, reply.id)).success
    own_reply = await business.call(wa.send_message, ECHO, "Thanks", reply_to_message_id=reply.id)
    reaction = await business.call(wa.send_reaction, ECHO, "\U0001f44d", reply.id)
    removed = await business.call(wa.remove_reaction, ECHO, reply.id)
    wanted = (sent.id, own_reply.id, reaction.id, removed.id)
    await found.until(lambda: all("sent" in found.statuses[one] for one in wanted))


async def test_errors_are_the_library_s_own_classes(business: Business) -> None:
    wa = business.wa
    with pytest.raises(errors.WhatsAppError) as long:
        await business.call(wa.send_message, READER, "x" * 4097)
    assert (long.value.code, long.value.details) == (100, "text.body: has 4097 characters, the limit is 4096")
    with pytest.raises(errors.InvalidParameter):
        await business.call(wa.send_reaction, READER, "\U0001f44d", "wamid.nonsense")
    with pytest.raises(errors.TemplateNotExists):
        await business.call(wa.send_template, READER, "missing", templates.TemplateLanguage.ENGLISH_US)
    with pytest.raises(errors.WhatsAppError):
        await business.call(wa.get_media_url, "1000000000000000000")


async def test_files_are_uploaded_described_downloaded_and_deleted(business: Business, tmp_path: Path) -> None:
    wa = business.wa
    media = await business.call(wa.upload_media, PDF, mime_type="application/pdf", filename="bill.pdf")
    described = await business.call(wa.get_media_url, media.id)
    assert (described.mime_type, described.file_size) == ("application/pdf", len(PDF))
    assert await business.call(wa.get_media_bytes, described.url) == PDF
    path = await business.call(wa.download_media, url=described.url, path=tmp_path, filename="copy.pdf")
    assert path.read_bytes() == PDF
    sent = await business.call(wa.send_document, READER, media.id, filename="bill.pdf")
    await business.received.until(lambda: business.received.statuses[sent.id] >= STATUSES)
    assert (await business.call(wa.delete_media, media.id)).success
    with pytest.raises(errors.WhatsAppError):
        await business.call(wa.get_media_url, media.id)


async def test_templates_are_created_listed_sent_and_deleted(business: Business) -> None:
    wa = business.wa
    body = templates.BodyText("Hello {{name}}, {{count}} parcels.", name="Ana", count=2)
    template = templates.Template(
        name="parcels",
        language=templates.TemplateLanguage.ENGLISH_US,
        category=templates.TemplateCategory.UTILITY,
        parameter_format=templates.ParamFormat.NAMED,
        components=[
            templates.HeaderText("News"),
            body,
            templates.FooterText(text="Bye"),
            templates.Buttons(buttons=[templates.QuickReplyButton(text="Thanks")]),
        ],
    )
    created = await business.call(wa.create_template, template)
    assert created.category == templates.TemplateCategory.UTILITY
    shown = await business.call(wa.get_template, created.id)
    assert (shown.name, shown.status) == ("parcels", templates.TemplateStatus.APPROVED)
    listed = await business.call(wa.get_templates, name="parcels")
    assert [one.id for one in listed] == [created.id]
    sent = await business.call(
        wa.send_template,
        READER,
        "parcels",
        templates.TemplateLanguage.ENGLISH_US,
        [body.params(name="Eva", count=3), templates.QuickReplyButton.params(callback_data="ok", index=0)],
    )
    await business.received.until(lambda: business.received.statuses[sent.id] >= STATUSES)
    # Not `update_template`: it reads an id, a name and a category, which recorded responses to a change do not have.
    assert (await business.call(wa.delete_template, "parcels")).success
    assert len(await business.call(wa.get_templates, name="parcels")) == 0


async def test_number_account_profile_and_registration_are_managed(business: Business) -> None:
    wa = business.wa
    number = await business.call(wa.get_business_phone_number)
    assert (number.id, number.display_phone_number) == (IDS.phone_number_id, "+1 555-000-0000")
    assert [one.id for one in await business.call(wa.get_business_phone_numbers)] == [IDS.phone_number_id]
    assert (await business.call(wa.get_business_account)).id == IDS.waba_id
    assert [one.id for one in await business.call(wa.get_owned_business_accounts)] == [IDS.waba_id]
    changed = await business.call(
        wa.update_business_profile,
        about="Open 9/5 \U0001f642",
        email="shop@shop.example",
        industry=others.Industry.RETAIL,
        websites=["https://shop.example/"],
    )
    assert changed.success
    profile = await business.call(wa.get_business_profile)
    assert (profile.about, profile.email) == ("Open 9/5 \U0001f642", "shop@shop.example")
    assert profile.industry == others.Industry.RETAIL
    assert list(profile.websites) == ["https://shop.example/"]
    assert (await business.call(wa.register_phone_number, "246810")).success


async def test_callbacks_are_set_and_removed_in_each_scope_and_forged_updates_refused(business: Business) -> None:
    wa, found = business.wa, business.received
    assert (await business.call(wa.override_phone_callback_url, business.webhook, VERIFY_TOKEN)).success
    assert (await business.call(wa.delete_waba_callback_url)).success
    by_number = await business.call(wa.send_message, READER, "callback of the number")
    await found.until(lambda: found.statuses[by_number.id] >= STATUSES)
    assert (await business.call(wa.delete_phone_callback_url)).success
    registered = await business.call(
        wa.set_app_callback_url, int(IDS.app_id), wa.token, business.webhook, VERIFY_TOKEN, ["messages"]
    )
    assert registered.success
    by_app = await business.call(wa.send_message, READER, "callback of the app")
    await found.until(lambda: found.statuses[by_app.id] >= STATUSES)
    with pytest.raises(errors.WhatsAppError):
        await business.call(wa.override_phone_callback_url, business.webhook, "another token")
    async with httpx.AsyncClient() as http:
        forged = await http.post(business.webhook, content=b"{}", headers={"X-Hub-Signature-256": "sha256=" + "0" * 64})
    assert forged.status_code == 403
