"""Client that keeps cookies and sends forms as a browser does, and checks of the pages that it receives."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import html5lib
import httpx

from tests.webapp.conftest import PASSWORD, Served

_HTML = "{http://www.w3.org/1999/xhtml}"
# Directives that every response of the console has, as literals.
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
_FIELDS = {_HTML + name for name in ("input", "textarea", "select", "button")}
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
        answer = await self.get(page)
        assert answer.status_code == 200, answer.text
        form = next(form for form in forms(answer.text) if form.action == action and form.method == "post")
        return await self.post(action, {**form.fields, **(fields or {})})

    async def log_in(self, username: str = "admin", password: str = PASSWORD) -> None:
        answer = await self.submit("/console/login", "/console/login", {"username": username, "password": password})
        assert answer.status_code == 303, answer.text

    def cookie(self, part: str) -> str:
        """Return the value of the cookie whose name ends so; empty without one."""
        return next((cookie.value or "" for cookie in self.http.cookies.jar if cookie.name.endswith(part)), "")


@dataclasses.dataclass(frozen=True)
class Form:
    """Form of a page."""

    action: str
    method: str
    fields: Mapping[str, str]


def parse(text: str) -> Any:
    """Parse a page. Raises an error unless it is valid."""
    return html5lib.HTMLParser(strict=True).parse(text)


def elements(text: str) -> Iterator[Any]:
    return (each for each in parse(text).iter() if isinstance(each.tag, str))


def forms(text: str) -> Sequence[Form]:
    """Return the forms of a page with the values of their fields."""
    found = []
    for form in parse(text).iter(_HTML + "form"):
        fields = {}
        for field in form.iter():
            name = field.attrib.get("name")
            if not name or field.tag not in _FIELDS:
                continue
            if field.attrib.get("type") in ("checkbox", "radio") or (field.tag == _HTML + "button" and name in fields):
                continue
            if field.tag == _HTML + "select":
                chosen = [each for each in field.iter(_HTML + "option") if "selected" in each.attrib]
                options = chosen or list(field.iter(_HTML + "option"))
                fields[name] = options[0].attrib.get("value", "") if options else ""
            else:
                fields[name] = field.attrib.get("value", field.text or "")
        found.append(Form(form.attrib["action"], form.attrib.get("method", "get"), fields))
    return found


def links(text: str) -> Sequence[str]:
    """Return the addresses of the links of a page, without fragments."""
    found = [each.attrib["href"] for each in elements(text) if "href" in each.attrib]
    return [address for address in found if not address.startswith("#")]


def check_page(answer: httpx.Response) -> None:
    """Check the headers, the markup and the addresses of a page."""
    check_headers(answer)
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    nonce = re.search(r"script-src 'nonce-([^']+)'", answer.headers["Content-Security-Policy"])
    assert nonce is not None
    ids = []
    for each in elements(answer.text):
        tag = each.tag.rpartition("}")[2]
        for name, value in each.attrib.items():
            assert not str(name).startswith("on"), f"inline handler {name} of {tag}"
            assert name != "style", f"inline style of {tag}"
            assert not str(value).lower().startswith("javascript:"), f"{name} of {tag}"
            if name in ("href", "src", "action"):
                assert not urlsplit(value).netloc, f"{name} of {tag} leads to {value}"
                assert value.startswith(("/", "#")), f"{name} of {tag} is {value}"
        assert tag not in ("style", "iframe", "object", "embed", "base"), tag
        if tag == "script":
            assert each.attrib["nonce"] == nonce[1]
            assert not (each.text or "").strip()
        ids += [each.attrib["id"]] if "id" in each.attrib else []
    assert len(ids) == len(set(ids)), "an id occurs twice"
    _check_names(answer.text)


def _check_names(text: str) -> None:
    """Check that fields have labels, tables captions, and header cells scopes."""
    found = list(elements(text))
    labels = {each.attrib.get("for") for each in found if each.tag == _HTML + "label"}
    for each in found:
        tag = each.tag.removeprefix(_HTML)
        if tag in ("input", "select", "textarea") and each.attrib.get("type") != "hidden":
            assert each.attrib.get("id") in labels or "aria-label" in each.attrib, f"field {each.attrib} has no label"
        if tag == "table":
            assert each.find(_HTML + "caption") is not None
        if tag == "th":
            assert each.attrib.get("scope") in ("col", "row")
    assert sum(each.tag == _HTML + "h1" for each in found) == 1
    assert sum(each.attrib.get("role") == "status" and each.attrib.get("id") == "notice" for each in found) == 1


def check_headers(answer: httpx.Response) -> None:
    """Check the headers that every response of the console has."""
    directives = answer.headers["Content-Security-Policy"].split("; ")
    assert set(POLICY) < set(directives)
    assert [each for each in directives if each not in POLICY] == [directives[1]]
    assert re.fullmatch(r"script-src 'nonce-[\w-]{22}'", directives[1])
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer.headers["Cache-Control"] == "no-cache, private"
