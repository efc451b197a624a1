"""Event stream of a number: it announces changes, after which the page loads its parts again."""

from __future__ import annotations

from starlette.responses import Response

from handset.web.site import HandsetRequest
from tidings.pages import headers
from tidings.pages.event_streams import EventStreamResponse

CHANGED = "changed"
POLL_SECONDS = 5  # seconds between two polls of a page without a stream


async def stream(page: HandsetRequest) -> Response:
    number = page.phone().number
    last_id = page.request.headers.get("last-event-id") or page.query("after")
    opened = page.site.streams.open(page.session.id, [number], last_id)
    if opened is None:
        again = {"Retry-After": str(POLL_SECONDS)}
        return Response(status_code=503, headers={**headers.of_page(page.nonce), **again})
    return EventStreamResponse(opened)
