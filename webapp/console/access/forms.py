"""Fields of a form that a browser has sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import parse_qsl, urlsplit

from fastapi import Request

from tidings.wire.codes import INVALID_REQUEST
from webapp.http import bodies, headers, pictures
from webapp.http.errors import InvalidRequest

TOKEN = "csrf"  # noqa: S105
# Highest key of a table.
HIGHEST = (1 << 63) - 1
# Largest body of a form, bytes, and most fields.
MAX_FORM, MAX_FIELDS = 512 * 1024, 500
_TYPE = b"application/x-www-form-urlencoded"


class FormFields:
    """Fields of one form, or of a query. A field may have several values."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = ()) -> None:
        self._values: dict[str, list[str]] = {}
        self.file = b""  # content of the file, if the form has one
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def text(self, name: str, default: str = "") -> str:
        """Return the first value of a field without spaces around it; `default` without the field."""
        return self.raw(name, default).strip()

    def raw(self, name: str, default: str = "") -> str:
        """Return the first value of a field as it was typed."""
        found = self._values.get(name)
        return found[0] if found else default

    def all(self, name: str) -> Sequence[str]:
        """Return all values of a field."""
        return self._values.get(name, [])

    def is_set(self, name: str) -> bool:
        """Return whether a field has a value, as a ticked box has."""
        return bool(self.text(name))


def number(given: str) -> int | None:
    """Return a key of a table, in digits; `None` for another text, and for one beyond 63 bits."""
    is_number = given.isascii() and given.isdigit() and len(given) <= len(str(HIGHEST))
    found = int(given) if is_number else None
    return found if found is None or found <= HIGHEST else None


async def read(request: Request, max_file: int = 0) -> FormFields:
    """Read a form. Raises `InvalidRequest` for another kind of body, and for one that is too large.

    max_file: bytes of the file that the form may have besides its token; 0 for a form without one
    """
    kind = headers.find(request.scope, b"content-type") or b""
    if max_file and pictures.is_multipart(kind):
        raw = await bodies.receive(request, max_file + MAX_FORM)
        found = FormFields([(TOKEN, pictures.take_file(kind, raw, TOKEN).decode("ascii", "replace"))])
        found.file = pictures.take_file(kind, raw, pictures.FIELD)
        return found
    if kind.split(b";")[0].strip().lower() != _TYPE:
        raise InvalidRequest.because(INVALID_REQUEST, "the body is not a form")
    raw = await bodies.receive(request, MAX_FORM)
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS, encoding="utf-8", errors="strict"
        )
    except ValueError:
        raise InvalidRequest.because(INVALID_REQUEST, "the form cannot be read") from None
    # Browsers send line breaks as CR LF.
    return FormFields((name, value.replace("\r\n", "\n")) for name, value in pairs)


def is_from_here(request: Request) -> bool:
    """Return whether a form was not sent by another site, by the headers that browsers add."""
    site = headers.find(request.scope, b"sec-fetch-site")
    if site is not None and site not in (b"same-origin", b"none"):
        return False
    origin = headers.find(request.scope, b"origin")
    if origin is None or origin == b"null":
        # `Referrer-Policy: no-referrer` makes browsers send `null` with forms of this page.
        return True
    host = (headers.find(request.scope, b"host") or b"").decode("latin-1").lower()
    try:
        return urlsplit(origin.decode("latin-1")).netloc.lower() == host
    except ValueError:
        return False
