"""Lists in pages, with cursors and the URLs of the next and the previous page."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Sequence
from typing import Any

from tidings.wire.addresses import is_digits
from tidings.wire.cloud.codes import CloudCode
from webapp.api.cloud import errors
from webapp.api.cloud.calls import CloudCall, text_of

DEFAULT_LIMIT, MAX_LIMIT = 25, 1_000
INVALID_CURSOR = 131059
_MAX_DIGITS = 9  # digits of a limit
_TITLE = CloudCode("Cursor is invalid")


def listed(entries: Sequence[Any], ids: Sequence[str], call: CloudCall) -> dict[str, Any]:
    """Return the page of a list that the call requests. An empty list has no `paging`.

    Raises `GraphError` for a limit or a cursor that cannot be used.

    ids: ASCII key of each entry, by which `entries` are sorted
    """
    page = requested_page(call)
    first, last = 0, len(entries)
    if page.after is not None:
        # The entry may have been deleted since.
        first = next((n for n, one in enumerate(ids) if one > page.after), last)
    elif page.before is not None:
        last = next((n for n, one in enumerate(ids) if one >= page.before), last)
        first = max(last - page.limit, 0)
    last = min(last, first + page.limit)
    return paged(entries[first:last], ids[first:last], call, has_previous=first > 0, has_next=last < len(entries))


@dataclasses.dataclass(frozen=True, slots=True)
class RequestedPage:
    """Page of a list that a call requests."""

    limit: int  # entries
    after: str | None  # key of the entry before the page; `None` for the first page
    before: str | None  # key of the entry after the page, where `after` is `None`; `None` for the first page


def requested_page(call: CloudCall) -> RequestedPage:
    """Return the page that a call requests. Raises `GraphError` for a limit or a cursor that cannot be used."""
    query = call.query()
    after, before = (_entry(text_of(query, name)) for name in ("after", "before"))
    return RequestedPage(_limit(text_of(query, "limit")), after, before if after is None else None)


def paged(
    entries: Sequence[Any], ids: Sequence[str], call: CloudCall, *, has_previous: bool, has_next: bool
) -> dict[str, Any]:
    """Return one page of a list. An empty page has no `paging`.

    ids: stable key of each entry, in the order of `entries`
    """
    if not entries:
        return {"data": []}
    cursors = {"before": _cursor(ids[0]), "after": _cursor(ids[-1])}
    paging: dict[str, Any] = {"cursors": cursors}
    if has_next:
        paging["next"] = _page(call, after=cursors["after"])
    if has_previous:
        paging["previous"] = _page(call, before=cursors["before"])
    return {"data": list(entries), "paging": paging}


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    if not (is_digits(text, 1, _MAX_DIGITS) and int(text)):
        raise errors.invalid("limit: should be a positive integer")
    return min(int(text), MAX_LIMIT)


def _entry(cursor: str) -> str | None:
    if not cursor:
        return None
    try:
        return base64.urlsafe_b64decode(cursor).decode("ascii")
    except (binascii.Error, ValueError):
        message = f"(#{INVALID_CURSOR}) {_TITLE.title}"
        raise errors.GraphError(message, code=INVALID_CURSOR, details="the cursor is from no list") from None


def _cursor(entry: str) -> str:
    return base64.urlsafe_b64encode(entry.encode()).decode()


def _page(call: CloudCall, **cursor: str) -> str:
    """Return the URL of another page, on the host of the request."""
    url = call.request.url.remove_query_params(["after", "before"])
    return str(url.include_query_params(**cursor))
