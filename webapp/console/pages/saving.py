"""Changes of settings by a form, which redirect to a page, or show it with the problem."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from webapp.console.page_request import PageRequest, Result, redirect
from webapp.http.errors import APIError
from webapp.http.responses import error_response

# Field of the query of a page after a change.
SAVED = "saved"

# Returns a page with a problem and a status.
PageWithProblem = Callable[[PageRequest, str, int], Awaitable[Result]]


async def save(page: PageRequest, path: str, work: Callable[[], Awaitable[object]], shown: PageWithProblem) -> Result:
    """Make a change and redirect to the page at `path`. If the change is refused, return the page with the problem."""
    try:
        await work()
    except APIError as error:
        words = "; ".join(problem.details for problem in error.problems[:5])
        return await shown(page, words, error_response(error).status_code)
    return redirect(path, {SAVED: "1"})
