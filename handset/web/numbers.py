"""Numbers of the page: which are open, which are known, and registration of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from handset import own_number
from handset.web import strings
from handset.web.site import HandsetRequest, sentence
from tidings.client.errors import (
    ClientError,
    LockedNumber,
    NetworkRefusal,
    NumberOfBusiness,
    TooSoon,
    Unauthorized,
    WrongCode,
    WrongPin,
)
from tidings.storage.handset import chats


async def show(page: HandsetRequest) -> Response:
    return await _show(page, {})


async def register(page: HandsetRequest) -> Response:
    """Open the phone of a number. It is registered first if it must be: by the registration key, or by a code."""
    number = own_number.digits_of(page.field("number"))
    if not number:
        return await _show(page, {"problem": strings.NOT_A_NUMBER, "number": page.field("number")}, 422)
    code = "".join(page.field("code").split()).replace("-", "")
    try:
        await page.book.open(number, code=code, pin=page.field("pin"), name=page.field("name")[:128])
    except ClientError as error:
        return await _ask_for_proof(page, number, error)
    return page.redirect(f"/{number}")


async def register_again(page: HandsetRequest) -> Response:
    number = page.phone().number
    try:
        await page.book.register_again(number)
    except ClientError as error:
        return await _ask_for_proof(page, number, error)
    return page.redirect(f"/{number}")


async def close(page: HandsetRequest) -> Response:
    await page.book.close(page.path("number"))
    return page.redirect("")


async def _ask_for_proof(page: HandsetRequest, number: str, error: ClientError) -> Response:
    """Show what is wrong, and ask for a code or a PIN where one is missing."""
    values = {"number": number, "name": page.field("name"), "code": page.field("code"), "problem": sentence(error)}
    is_business = isinstance(error, NumberOfBusiness)
    if isinstance(error, Unauthorized) and not is_business and not page.field("code"):
        try:
            await page.book.request_code(number)
            values["problem"] = strings.CODE_PRINTED.format(number=number)
        except TooSoon as reason:
            values["problem"] = strings.CODE_KNOWN.format(reason=sentence(reason))
        except ClientError as reason:
            values["problem"] = sentence(reason)
    needs_code = isinstance(error, Unauthorized | WrongCode | LockedNumber | WrongPin) and not is_business
    needs_pin = isinstance(error, LockedNumber | WrongPin)
    status = 422 if isinstance(error, NetworkRefusal) else 503
    return await _show(page, {**values, "needs_code": needs_code, "needs_pin": needs_pin}, status)


async def _show(page: HandsetRequest, values: Mapping[str, Any], status: int = 200) -> Response:
    known = await page.book.list_known()
    unread = {}
    async with page.book.database.reading() as connection:
        for number in [each.number for each in known if each.is_open]:
            unread[number] = sum(chat.unread for chat in await chats.list_chats(connection, number, 100))
    given = {"problem": "", "number": "", "name": "", "code": "", "needs_code": False, "needs_pin": False, **values}
    return page.render("numbers.html", {"known": known, "unread": unread, **given}, status)
