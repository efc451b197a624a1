"""Lists in pages, with cursors and the URLs of the next and the previous page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from tidings.wire.cloud.codes import CloudCode
from webapp.api.cloud import errors
from webapp.api.cloud.calls import CloudCall, text_of

DEFAULT_LIMIT, MAX_LIMIT = 25, 1_000
INVALID_CURSOR = 131059
_TITLE = CloudCode("Cursor is invalid")


def listed(entries: Sequence[Any], ids: Sequence[str], call: CloudCall) -> dict[str, Any]:
    """Return the page of a list that the call asks for. An empty list has no `paging`.

    Raises `GraphError` for a limit or a cursor that cannot be used.

    ids: stable id of each entry, in the order of `entries`
    """
    query = call.query()
    limit = _limit(text_of(query, "limit"))
    after, before = (_entry(text_of(query, name)) for name in ("after", "before"))
    first, last = 0, len(entries)
    if after is not None:
        first = next((n + 1 for n, one in enumerate(ids) if one == after), last)
    elif before is not None:
        last = next((n for n, one in enumerate(ids) if one == before), 0)
        first = max(last - limit, 0)
    last = min(last, first + limit)
    chosen = list(entries[first:last])
    if not chosen:
        return {"data": []}
    cursors = {"before": _cursor(ids[first]), "after": _cursor(ids[last - 1])}
    paging: dict[str, Any] = {"cursors": cursors}
    if last < len(entries):
        paging["next"] = _page(call, after=cursors["after"])
    if first:
        paging["previous"] = _page(call, before=cursors["before"])
    return {"data": chosen, "paging": paging}


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text)):
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
