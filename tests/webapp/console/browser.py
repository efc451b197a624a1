"""Client that keeps cookies and sends forms as a browser does, and checks of the pages that it receives."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import httpx

from tests.pages import document
from tests.webapp.conftest import PASSWORD, Served

# Directives that every page of the console has, as literals.
POLICY = (
    "default-src 'none'",
    "style-src 'self'",
    "img-src 'self' blob:",
    "media-src 'self' blob:",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types htmx",
)
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclasses.dataclass
class Browser:
    """Browser at one Webapp."""

    http: httpx.AsyncClient

    @classmethod
    def of(cls, served: Served, base: str = "http://127.0.0.1") -> Browser:
        """Return a browser without cookies, which calls the application in this process."""
        transport = httpx.ASGITransport(served.parts.app, client=("127.0.0.1", 50_000))
        return cls(httpx.AsyncClient(base_url=base, timeout=20, trust_env=False, transport=transport))

    async def get(self, path: str, **options: Any) -> httpx.Response:
        return await self.http.get(path, **options)

    async def post(self, path: str, fields: Mapping[str, Any] | Sequence[tuple[str, str]]) -> httpx.Response:
        """Send a form without a token."""
        return await self.http.post(path, content=urlencode(fields, doseq=True), headers=FORM)

    async def submit(self, page: str, action: str, fields: Mapping[str, Any] | None = None) -> httpx.Response:
        """Open a page, and send its form with this action. Fields that are not given have the values of the page."""
        response = await self.get(page)
        assert response.status_code == 200, response.text
        form = next(form for form in forms(response.text) if form.action == action and form.method == "post")
        return await self.post(action, {**form.fields, **(fields or {})})

    async def log_in(self, username: str = "admin", password: str = PASSWORD) -> None:
        response = await self.submit("/console/login", "/console/login", {"username": username, "password": password})
        assert response.status_code == 303, response.text

    def cookie(self, part: str) -> str:
        """Return the value of the cookie whose name ends so; empty without one."""
        return next((cookie.value or "" for cookie in self.http.cookies.jar if cookie.name.endswith(part)), "")


@dataclasses.dataclass(frozen=True)
class Form:
    """Form of a page."""

    action: str
    method: str
    fields: Mapping[str, str]


def forms(text: str) -> Sequence[Form]:
    """Return the forms of a page with the values of their fields."""
    found = []
    for form in document.parse(text).all("form"):
        fields: dict[str, str] = {}
        for field in form.walk():
            name = field.get("name")
            if not name or field.get("type") in ("checkbox", "radio"):
                continue
            if field.tag == "select":
                options = field.all("option")
                chosen = [each for each in options if "selected" in each.attributes] or options
                fields[name] = chosen[0].get("value") if chosen else ""
            elif field.tag == "textarea":
                # A line break after the tag is not part of the value.
                fields[name] = "".join(each for each in field.children if isinstance(each, str)).removeprefix("\n")
            elif field.tag in ("input", "button"):
                fields.setdefault(name, field.get("value"))
        found.append(Form(form.get("action"), form.get("method") or "get", fields))
    return found


def links(text: str) -> Sequence[str]:
    """Return the addresses of the links of a page, without fragments."""
    found = [each.get("href") for each in document.parse(text).walk() if "href" in each.attributes]
    return [address for address in found if not address.startswith("#")]


def check_page(response: httpx.Response) -> None:
    """Check the headers, the markup and the addresses of a page."""
    nonce = check_headers(response)
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert document.faults(response.text) == []
    for each in document.parse(response.text).walk():
        assert each.tag not in ("iframe", "object", "embed", "base"), each.tag
        # A link in the text of a template leads to another host when it is followed, without a referrer.
        outside = {"href"} if each.tag == "a" and each.get("rel") == "noopener noreferrer" else set()
        for name in {"href", "src", "action"} & each.attributes.keys() - outside:
            assert re.match("/(?!/)|#", each.get(name)), each.get(name)
        if each.tag == "script":
            assert each.get("nonce") == nonce


def check_headers(response: httpx.Response) -> str:
    """Check the headers that every page of the console has. Returns the nonce of its scripts."""
    directives = response.headers["Content-Security-Policy"].split("; ")
    assert set(POLICY) < set(directives)
    assert [each for each in directives if each not in POLICY] == [directives[1]]
    nonce = re.fullmatch(r"script-src 'nonce-([\w-]{22})'", directives[1])
    assert nonce is not None
    check_common(response)
    assert response.headers["Cache-Control"] == "no-store"
    return nonce[1]


def check_common(response: httpx.Response) -> None:
    """Check the headers that every response of the console has, also static files and streams."""
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["Permissions-Policy"].startswith("camera=()")
