"""Contents from the form of a chat: one function for each type that a person sends."""

from __future__ import annotations

import asyncio
import collections
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from starlette.datastructures import UploadFile

from handset import composing, errors, user_input
from handset.attachments import pointers, transfer
from handset.composing import Content
from handset.user_input import InvalidInput
from handset.web.phones import OpenPhone
from handset.web.site import HandsetRequest, whole_number
from tidings.storage.handset.chats import ChatItemRow

MAX_QUANTITY = 999


async def compose(page: HandsetRequest, phone: OpenPhone, chat: str, answered: ChatItemRow | None) -> Content:
    """Return the content of a form. Raises `InvalidInput` and `ClientError`.

    answered: message that it answers; `None` for none
    """
    upload = page.upload("file")
    if upload is not None:
        content = await _file(page, phone, upload)
    else:
        make = _KINDS.get(page.field("kind") or "text")
        if make is None:
            raise InvalidInput("this page does not send that type")
        content = make(page, chat, answered)
    if answered is None or "context" in content:
        return content
    return composing.answering(content, answered.id, answered.author)


async def _file(page: HandsetRequest, phone: OpenPhone, upload: UploadFile) -> Content:
    """Upload a file to the network. Its copy on this disk is deleted."""
    name = pointers.name_of("file", upload.filename or "", "", "") or "file"
    async with page.site.uploads:
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="upload-", dir=page.site.directory))
        try:
            path = folder / name
            await asyncio.to_thread(_write, path, upload.file)
            return await transfer.upload(
                page.site.api, phone.own.device, path, caption=page.field("text"), kind=page.field("as")
            )
        except OSError as error:
            raise errors.CannotKeep(f"the file does not fit on this machine: {error.strerror or error}") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, True)


def _write(path: Path, source: IO[bytes]) -> None:
    with path.open("wb") as file:
        shutil.copyfileobj(source, file)


def _text(page: HandsetRequest, chat: str, answered: ChatItemRow | None) -> Content:
    return user_input.text(page.field("text"))


def _forwarded(page: HandsetRequest, chat: str, answered: ChatItemRow | None) -> Content:
    return composing.forwarded(user_input.text(page.field("text")))


def _location(page: HandsetRequest, chat: str, answered: ChatItemRow | None) -> Content:
    return user_input.location(*(page.field(name) for name in ("latitude", "longitude", "name", "address")))


def _contact(page: HandsetRequest, chat: str, answered: ChatItemRow | None) -> Content:
    return user_input.contact(page.field("name"), "".join(page.field("phone").split()))


def _order(page: HandsetRequest, chat: str, answered: ChatItemRow | None) -> Content:
    quantity = min(whole_number(page.field("quantity") or "1"), MAX_QUANTITY)
    products = collections.Counter(page.field("products").split())
    quantities = {product: count * quantity for product, count in products.items()}
    return user_input.order(page.field("catalog"), quantities, page.field("text"))


def _product(page: HandsetRequest, chat: str, answered: ChatItemRow | None) -> Content:
    message_id, author = (answered.id, answered.author) if answered is not None else ("", chat)
    return user_input.about_product(
        page.field("text"), message_id, author, catalog=page.field("catalog"), product=page.field("product")
    )


def _advertisement(page: HandsetRequest, chat: str, answered: ChatItemRow | None) -> Content:
    return user_input.from_advertisement(page.field("url"), page.field("text"))


def _form(page: HandsetRequest, chat: str, answered: ChatItemRow | None) -> Content:
    return user_input.form(page.field("response"))


def _new_number(page: HandsetRequest, chat: str, answered: ChatItemRow | None) -> Content:
    return user_input.new_number(page.field("new_number"))


def _unknown(page: HandsetRequest, chat: str, answered: ChatItemRow | None) -> Content:
    return composing.unknown()


def _ephemeral(page: HandsetRequest, chat: str, answered: ChatItemRow | None) -> Content:
    return composing.ephemeral()


_KINDS: Mapping[str, Callable[[HandsetRequest, str, ChatItemRow | None], Content]] = {
    "text": _text,
    "forwarded": _forwarded,
    "location": _location,
    "contact": _contact,
    "order": _order,
    "product": _product,
    "advertisement": _advertisement,
    "form": _form,
    "number": _new_number,
    "unknown": _unknown,
    "ephemeral": _ephemeral,
}
