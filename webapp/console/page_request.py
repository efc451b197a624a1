"""A request for a page, as its handler receives it, and the description of a page's route."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from webapp.auth.tokens import Caller
from webapp.console.access.forms import FormFields
from webapp.console.access.sessions import ConsoleSession
from webapp.console.render.pages import PageContent
from webapp.http import dependencies

Part = TypeVar("Part")
SEE_OTHER = 303


class RequiredRole(enum.Enum):
    """Who may use a route."""

    NONE = "none"  # also without a session
    ADMINISTRATOR = "administrator"  # administrators of a number
    OPERATOR = "operator"  # administrators of the first number, who see the whole installation


@dataclasses.dataclass(eq=False)
class PageRequest:
    """Request for a page, or form that was sent to it."""

    request: Request
    params: Mapping[str, str]  # parts of the path
    query: FormFields
    session: ConsoleSession | None
    form: FormFields = dataclasses.field(default_factory=FormFields)

    def part(self, kind: type[Part]) -> Part:
        """Return the part of the Webapp of this class."""
        return dependencies.find(self.request, kind)

    @property
    def caller(self) -> Caller:
        """Return the user. Handlers of routes that need no session must not use it."""
        assert self.session is not None
        return self.session.caller

    @property
    def request_id(self) -> str:
        return str(self.request.state.request_id)


Result = PageContent | Response
Handler = Callable[[PageRequest], Awaitable[Result]]
_PARAMETER = re.compile(r"\{(\w+)\}")


@dataclasses.dataclass(frozen=True)
class ConsoleRoute:
    """Method and path of a page or form, with its handler."""

    method: str
    path: str  # parameters in braces
    handler: Handler
    role: RequiredRole = RequiredRole.ADMINISTRATOR
    _: dataclasses.KW_ONLY
    is_live: bool = False  # whether a part of the page is replaced while it is open
    is_exclusive: bool = False  # whether one request of a user is served at a time
    max_file: int = 0  # bytes of a file in the form; 0 for a form without one

    def match(self, path: str) -> Mapping[str, str] | None:
        """Return the parameters of a path; `None` for a path of another route."""
        found = re.fullmatch(_PARAMETER.sub(r"(?P<\1>[^/]{1,600})", self.path), path)
        return found.groupdict() if found is not None else None


def redirect(path: str, query: Mapping[str, str] | Sequence[tuple[str, str]] = ()) -> Response:
    """Return a redirection to a page after a form was sent."""
    return RedirectResponse(f"{path}?{urlencode(query)}" if query else path, SEE_OTHER)
