"""Pictures under URLs that need no token, because browsers and recipients fetch them: profile pictures and QR codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlencode

from fastapi import Request, Response

from tidings.keys.signed_links import LinkSigner
from tidings.wire.cloud.identity import IdentityDirectory
from webapp.api.cloud import errors, qr_images, responses
from webapp.api.cloud.calls import read_form, text_of
from webapp.api.cloud.paths import ATTACHMENTS, Target
from webapp.api.cloud.qr_code_list import QrCodeList
from webapp.api.profile.service import ProfileService
from webapp.http import dependencies

EDGE = "pictures"
PATH = f"/{ATTACHMENTS}/{EDGE}/"
PROFILE, QR_CODE = "profile", "qr"
LINK = "https://wa.me/message/"
"""Start of the link that a QR code contains; its code follows."""


class PictureLinks:
    """Signer of the URLs of pictures. A URL stays valid as long as its picture exists."""

    def __init__(self, key: str) -> None:
        """key: the link key, which all Webapps of the installation share"""
        self._signer = LinkSigner("pictures", key)

    def url(self, api_url: str, number_id: str, kind: str, name: str = "") -> str:
        """Return the URL of a picture of a number.

        api_url: URL of the API without a path
        kind: kind of picture, such as `PROFILE`
        name: picture among those of its kind; empty where a number has one
        """
        named = {"id": number_id, "kind": kind, "name": name}
        given = {field: value for field, value in named.items() if value}
        return f"{api_url}{PATH}?{urlencode({**given, 'hash': self._signer.sign(number_id, kind, name)})}"

    def is_valid(self, number_id: str, kind: str, name: str, signature: str) -> bool:
        """Return whether `url` made these values."""
        return self._signer.is_valid(signature, number_id, kind, name)


async def _of_profile(request: Request, account: str, name: str) -> tuple[str, bytes] | None:
    photo = await dependencies.find(request, ProfileService).find_photo(account)
    return (photo.type, photo.content) if photo is not None else None


async def _of_qr_code(request: Request, account: str, name: str) -> tuple[str, bytes] | None:
    code, _, form = name.partition(".")
    if await dependencies.find(request, QrCodeList).find(account, code) is None:
        return None
    return qr_images.MEDIA_TYPES[form], await asyncio.to_thread(qr_images.draw, LINK + code, form)


# By kind: returns type and content of a picture of a number; `None` when there is none.
_FINDERS: Mapping[str, Callable[[Request, str, str], Awaitable[tuple[str, bytes] | None]]] = {
    PROFILE: _of_profile,
    QR_CODE: _of_qr_code,
}


async def show(request: Request, target: Target, trace: str, directory: IdentityDirectory) -> Response:
    """Return the picture that a URL names. Raises `GraphError` for a URL that is not valid, or no longer."""
    query = read_form(request.scope["query_string"])
    number_id, kind, name, signature = (text_of(query, field) for field in ("id", "kind", "name", "hash"))
    account = directory.owner(number_id)
    find = _FINDERS.get(kind)
    links = dependencies.find(request, PictureLinks)
    if not account or find is None or not links.is_valid(number_id, kind, name, signature):
        raise errors.no_such_url()
    found = await find(request, account, name)
    if found is None:
        raise errors.no_such_url()
    media_type, content = found
    response = Response(content, media_type=media_type, headers={"X-Content-Type-Options": "nosniff"})
    response.raw_headers += [responses.NOT_CACHED, *responses.headers_of(target.version, trace)]
    return response
