"""Error codes of v1 in words, with those of the Cloud API."""

from __future__ import annotations

from tidings.wire import codes
from tidings.wire.cloud.codes import MESSAGE_FAILURES, find_code, of_request_error
from webapp.console.page_request import PageRequest, Result
from webapp.console.render.pages import PageContent


async def show(page: PageRequest) -> Result:
    """Show all codes, first the one that the query names."""
    wanted = page.query.text("code")
    rows = []
    for code, entry in codes.CODES.items():
        cloud = MESSAGE_FAILURES.get(code) or of_request_error(code)
        # Codes below 1000 occur in webhooks only.
        rows.append((code, entry.title, entry.status if code >= 1000 else 0, cloud, find_code(cloud).title))
    return PageContent("codes.html", {"rows": sorted(rows, key=lambda row: (str(row[0]) != wanted, row[0]))})
