"""`/{phone-number-id}/message_qrdls`: QR codes and short links that open a chat with a prefilled text."""

from __future__ import annotations

import re
from typing import Any

from fastapi import Response

from tidings.storage.business.message_qr_codes import MessageQrCode
from webapp.api.cloud import errors, fields, pictures, qr_images
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.lists import listed
from webapp.api.cloud.pictures import PictureLinks
from webapp.api.cloud.qr_code_list import QrCodeList

NODE_TYPE = "WhatsAppBusinessMessageQRDL"
MAX_PREFILLED = 140  # characters
_DEFAULT = ("code", "prefilled_message", "deep_link_url")
_IMAGE = "qr_image_url"
_FORMAT = re.compile(rf"{_IMAGE}\.format\(([A-Za-z]*)\)")


async def create(call: CloudCall) -> Response:
    """Create a QR code, or change the text of the one that `code` names."""
    parameters = await call.parameters()
    prefilled, code = text_of(parameters, "prefilled_message"), text_of(parameters, "code")
    if not prefilled:
        raise errors.missing("prefilled_message")
    if len(prefilled) > MAX_PREFILLED:
        raise errors.invalid(f"prefilled_message: should have at most {MAX_PREFILLED} characters")
    form = text_of(parameters, "generate_qr_image").upper()
    if form and form not in qr_images.FORMATS:
        raise errors.not_one_of("generate_qr_image", qr_images.FORMATS, form)
    codes = call.find(QrCodeList)
    if code:
        changed = await codes.change(call.caller, code, prefilled)
        if changed is None:
            raise errors.unsupported("POST", code)
        return call.respond(_describe(call, changed, form))
    return call.respond(_describe(call, await codes.create(call.caller, prefilled), form))


async def list_all(call: CloudCall) -> Response:
    """Return all QR codes, or the one that the parameter `code` names."""
    wanted = text_of(call.query(), "code")
    found = [row for row in await call.find(QrCodeList).list_all(call.caller) if not wanted or row.code == wanted]
    places = [f"{row.created_at:015} {row.code}" for row in found]
    return call.respond(listed([_select(call, row) for row in found], places, call))


async def show(call: CloudCall) -> Response:
    code = _code(call)
    found = await call.find(QrCodeList).find(call.identity.account, code)
    if found is None:
        raise errors.unsupported("GET", code)
    return call.respond({"data": [_select(call, found)]})


async def delete(call: CloudCall) -> Response:
    code = _code(call)
    codes = call.find(QrCodeList)
    if await codes.find(call.identity.account, code) is None:
        raise errors.unsupported("DELETE", code)
    await codes.delete(call.caller, code)
    return call.success()


def _code(call: CloudCall) -> str:
    return call.target.edge.partition("/")[2]


def _select(call: CloudCall, row: MessageQrCode) -> dict[str, Any]:
    """Return the fields of a QR code that the call requests. Raises `GraphError`."""
    requested = call.query().get("fields")
    found = _FORMAT.search(requested) if isinstance(requested, str) else None
    form = found[1].upper() if found is not None else qr_images.SVG
    if form not in qr_images.FORMATS:
        raise errors.not_one_of("format", qr_images.FORMATS, form)
    return fields.select(_describe(call, row, form), requested, node_type=NODE_TYPE, default=_DEFAULT)


def _describe(call: CloudCall, row: MessageQrCode, form: str) -> dict[str, Any]:
    """Return a QR code.

    form: format of its picture; empty to leave out the URL of the picture
    """
    described = {
        "code": row.code,
        "prefilled_message": row.prefilled_message,
        "deep_link_url": pictures.LINK + row.code,
    }
    if form:
        name = f"{row.code}.{form}"
        described[_IMAGE] = call.find(PictureLinks).url(
            call.api_url, call.identity.phone_number_id, pictures.QR_CODE, name
        )
    return described
