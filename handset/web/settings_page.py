"""Settings of one number: name, receipts, switching off, blocked numbers, and a change of the number."""

from __future__ import annotations

from starlette.responses import Response

from handset import own_number, user_input
from handset.user_input import InvalidInput
from handset.web import strings
from handset.web.phones import OpenPhone
from handset.web.site import HandsetRequest


async def show(page: HandsetRequest) -> Response:
    return await _show(page, page.phone())


async def save(page: HandsetRequest) -> Response:
    number = page.phone().number
    await page.book.change_preferences(
        number,
        name=page.field("name")[:128],
        is_online=page.field("is_online") == "1",
        sends_read=page.field("sends_read") == "1",
    )
    return page.redirect(f"/{number}/settings?saved=1")


async def change_number(page: HandsetRequest) -> Response:
    """Register another number on this page, and announce it to everybody that this number has a chat with."""
    phone = page.phone()
    content = user_input.new_number(page.field("new_number"))
    other = own_number.digits_of(page.field("new_number"))
    if other == phone.number:
        raise InvalidInput("the new number is the present one")
    await page.book.open(other, name=phone.preferences.name)
    await phone.announce(other, content)
    return page.redirect(f"/{other}")


async def _show(page: HandsetRequest, phone: OpenPhone) -> Response:
    saved = strings.SAVED if page.query("saved") else ""
    encrypted = strings.ENCRYPTED_TLS if page.site.is_secure else strings.ENCRYPTED
    return page.render("settings.html", {"phone": phone, "saved": saved, "encrypted": encrypted})
