"""Parts that all pages share, and the request of a page: its session, its form, and its response."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import jinja2
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from handset.web import strings
from handset.web.phones import OpenPhone, PhoneBook
from handset.web.sessions import PageSession, PageSessions
from tidings.client.http import NetworkApi
from tidings.pages import headers
from tidings.pages.assets import PageAssets
from tidings.pages.event_streams import EventStreams

ROOT = "/handset"
UPLOADS = 4  # files that are sent at a time; further ones wait
DOWNLOADS = 8  # files that are fetched at a time; further ones wait
MAX_FIELD = 64 * 1024  # characters of one field of a form; longer ones are cut
NO_SESSION = PageSession("", "")


class PageFailure(Exception):
    """The request cannot be served. The page shows the text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclasses.dataclass(frozen=True, slots=True)
class Site:
    """Parts of the process that pages use."""

    book: PhoneBook
    sessions: PageSessions
    streams: EventStreams
    assets: PageAssets
    templates: jinja2.Environment
    api: NetworkApi
    directory: Path  # directory for files that are being uploaded to the network
    _: dataclasses.KW_ONLY
    is_secure: bool  # served over TLS
    uploads: asyncio.Semaphore = dataclasses.field(default_factory=lambda: asyncio.Semaphore(UPLOADS))
    downloads: asyncio.Semaphore = dataclasses.field(default_factory=lambda: asyncio.Semaphore(DOWNLOADS))

    def cookie(self, request: Request) -> str:
        """Return the name of the cookie: one that only this host can set, if the connection is encrypted.

        It has the port that received the request: browsers send a cookie to every port of a host.
        """
        port = request.scope["server"][1]
        return f"__Host-tidings_handset_{port}" if self.is_secure else f"tidings_handset_{port}"

    @property
    def cookie_path(self) -> str:
        """Return the path below which browsers send the cookie: the prefix `__Host-` requires all paths."""
        return "/" if self.is_secure else ROOT


@dataclasses.dataclass(frozen=True, slots=True)
class HandsetRequest:
    """Request of a person for a page."""

    site: Site
    request: Request
    session: PageSession
    nonce: str  # CSP nonce of the scripts of this page
    stream_position: str  # position of the event streams at the request, from which the page's stream starts
    form: FormData  # empty for a GET

    @property
    def book(self) -> PhoneBook:
        return self.site.book

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params.get(name, ""))

    def query(self, name: str) -> str:
        """Return a parameter of the query; empty for none."""
        return self.request.query_params.get(name, "")

    def field(self, name: str) -> str:
        """Return a field of the form without spaces around it; empty for none. Line breaks are single characters."""
        found = self.form.get(name)
        text = found if isinstance(found, str) else ""
        return text.replace("\r\n", "\n").strip()[:MAX_FIELD]

    def upload(self, name: str) -> UploadFile | None:
        """Return a file of the form; `None` when none was chosen."""
        found = self.form.get(name)
        return found if isinstance(found, UploadFile) and found.filename else None

    def phone(self) -> OpenPhone:
        """Return the phone that the path names. Raises `UnknownPhone`."""
        return self.book.get(self.path("number"))

    def render(self, template: str, values: Mapping[str, Any], status: int = 200) -> Response:
        """Return a page."""
        page = self.site.templates.get_template(template).render(
            csrf=self.session.csrf,
            nonce=self.nonce,
            stream_position=self.stream_position,
            asset=self.site.assets.url,
            root=ROOT,
            words=strings,
            **values,
        )
        return HTMLResponse(page, status, headers=dict(headers.of_page(self.nonce)))

    def redirect(self, path: str) -> Response:
        """Return a redirection to a page of ours, which is loaded by GET. path: below `/handset`"""
        return RedirectResponse(ROOT + path, 303, headers=dict(headers.of_page(self.nonce)))


Handler = Callable[[HandsetRequest], Awaitable[Response]]


def sentence(error: Exception) -> str:
    """Return the words of an error as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def whole_number(text: str) -> int:
    """Return a whole number from 0 to 18 digits; 0 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
