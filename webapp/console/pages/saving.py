"""Changes of settings by a form: they lead back to their page, with the problem if they are refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from webapp.console.page_request import PageRequest, Result, redirect
from webapp.http.answers import error_answer
from webapp.http.errors import APIError

# Field of the query of a page after a change.
SAVED = "saved"

# Returns a page with a problem and a status.
Shown = Callable[[PageRequest, str, int], Awaitable[Result]]


async def save(page: PageRequest, path: str, work: Callable[[], Awaitable[object]], shown: Shown) -> Result:
    """Do a change, and lead back to the page at `path`; show it with the problem if the change is refused."""
    try:
        await work()
    except APIError as error:
        words = "; ".join(problem.details for problem in error.problems[:5])
        return await shown(page, words, error_answer(error).status_code)
    return redirect(path, {SAVED: "1"})
