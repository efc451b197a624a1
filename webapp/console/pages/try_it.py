"""Try it: a form per type of message, with the request as a command, and the response."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from webapp.api.messages import schemas
from webapp.api.messages.service import Messages, RequestOrigin
from webapp.auth.authenticator import NumberLimits
from webapp.console.access.forms import FormFields
from webapp.console.page_request import PageRequest, Result
from webapp.console.render.pages import PageContent
from webapp.http import bodies
from webapp.http.errors import APIError, InvalidRequest
from webapp.http.responses import error_response

_LINK = "https://example.com/file"


@dataclasses.dataclass(frozen=True, slots=True)
class TryField:
    """Field of the form of one type."""

    name: str  # also the name of its label in `strings.toml`
    value: str = ""
    is_long: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class TryForm:
    """Form of one type of message."""

    fields: Sequence[TryField]
    content: Callable[[FormFields], Mapping[str, Any]]  # returns the message without `to`


def _lines(form: FormFields, name: str) -> Sequence[str]:
    return [line.strip() for line in form.text(name).split("\n") if line.strip()]


def _media(kind: str, *more: str) -> TryForm:
    def content(form: FormFields) -> Mapping[str, Any]:
        given = {"link": form.text("link"), **{name: form.text(name) for name in more}}
        return {"type": kind, kind: {name: value for name, value in given.items() if value}}

    return TryForm([TryField("link", _LINK), *map(TryField, more)], content)


def _template(form: FormFields) -> Mapping[str, Any]:
    parameters = [{"type": "text", "text": line} for line in _lines(form, "parameters")]
    components = [{"type": "body", "parameters": parameters}] if parameters else []
    template: dict[str, Any] = {"name": form.text("name"), "language": {"code": form.text("language")}}
    return {"type": "template", "template": {**template, "components": components}}


def _location(form: FormFields) -> Mapping[str, Any]:
    place: dict[str, Any] = {"name": form.text("name"), "address": form.text("address")}
    for field in ("latitude", "longitude"):
        try:
            place[field] = float(form.text(field))
        except ValueError:
            place[field] = form.text(field)
    return {"type": "location", "location": {name: value for name, value in place.items() if value != ""}}


def _contact(form: FormFields) -> Mapping[str, Any]:
    name = form.text("name")
    card = {"name": {"formatted_name": name, "first_name": name}, "phones": [{"phone": form.text("phone")}]}
    return {"type": "contacts", "contacts": [card]}


def _buttons(form: FormFields) -> Mapping[str, Any]:
    buttons = [
        {"type": "reply", "reply": {"id": f"button-{number}", "title": title}}
        for number, title in enumerate(_lines(form, "buttons"), 1)
    ]
    interactive = {"type": "button", "body": {"text": form.text("body")}, "action": {"buttons": buttons}}
    return {"type": "interactive", "interactive": interactive}


def _list(form: FormFields) -> Mapping[str, Any]:
    rows = [{"id": f"row-{number}", "title": title} for number, title in enumerate(_lines(form, "rows"), 1)]
    action = {"button": form.text("button"), "sections": [{"title": form.text("section"), "rows": rows}]}
    interactive = {"type": "list", "body": {"text": form.text("body")}, "action": action}
    return {"type": "interactive", "interactive": interactive}


def _json(form: FormFields) -> Mapping[str, Any]:
    value = bodies.parse(form.text("json").encode())
    if not isinstance(value, dict):
        raise ValueError("a message is a JSON object")
    return value


FORMS: Mapping[str, TryForm] = {
    "text": TryForm(
        [TryField("body", "Hello!", is_long=True)],
        lambda form: {"type": "text", "text": {"body": form.text("body")}},
    ),
    "template": TryForm(
        [TryField("name"), TryField("language", "en_US"), TryField("parameters", is_long=True)], _template
    ),
    "image": _media("image", "caption"),
    "video": _media("video", "caption"),
    "audio": _media("audio"),
    "document": _media("document", "caption", "filename"),
    "sticker": _media("sticker"),
    "location": TryForm(
        [TryField("latitude", "52.52"), TryField("longitude", "13.405"), TryField("name"), TryField("address")],
        _location,
    ),
    "contacts": TryForm([TryField("name", "Ada Lovelace"), TryField("phone", "+1 555 010 0001")], _contact),
    "buttons": TryForm(
        [TryField("body", "Is that right?", is_long=True), TryField("buttons", "Yes\nNo", is_long=True)], _buttons
    ),
    "list": TryForm(
        [
            TryField("body", "What would you like?", is_long=True),
            TryField("button", "Choose"),
            TryField("section", "Drinks"),
            TryField("rows", "Tea\nCoffee", is_long=True),
        ],
        _list,
    ),
    "json": TryForm([TryField("json", '{"type": "text", "text": {"body": "Hello!"}}', is_long=True)], _json),
}


async def show(page: PageRequest) -> Result:
    """Show the form of one type."""
    return _page(page, page.query)


async def send(page: PageRequest) -> Result:
    """Send a message as `POST /v1/messages` does, and show the request and the response."""
    form = FORMS[_kind(page.form)]
    try:
        body = {"to": page.form.text("to"), **form.content(page.form)}
    except InvalidRequest as error:
        return _page(page, page.form, problem=error.problems[0].details, status=400)
    except ValueError as error:
        return _page(page, page.form, problem=str(error), status=400)
    try:
        await page.part(NumberLimits).of(page.caller.account).messages.admit()
        message = schemas.read(body)
        sent = await page.part(Messages).send(page.caller, message, RequestOrigin(page.request_id))
    except APIError as error:
        response = error_response(error)
        refused = _indented(json.loads(bytes(response.body)))
        return _page(page, page.form, body=body, response=refused, status=response.status_code)
    shown = {"messages": [{"id": sent.id}]}
    return _page(page, page.form, body=body, response=_indented(shown), message_id=sent.id)


def _page(
    page: PageRequest,
    given: FormFields,
    *,
    body: Mapping[str, Any] | None = None,
    response: str = "",
    message_id: str = "",
    problem: str = "",
    status: int = 200,
) -> PageContent:
    kind = _kind(given)
    values: dict[str, Any] = {
        "kind": kind,
        "kinds": list(FORMS),
        "to": given.text("to"),
        "fields": [(field, given.raw(field.name, field.value)) for field in FORMS[kind].fields],
        "command": _command(page, body) if body is not None else "",
        "response": response,
        "response_status": 201 if message_id else status,
        "message_id": message_id,
        "problem": problem,
    }
    if message_id:
        # The region of the message's page shows its statuses and callbacks here.
        values["live_of"] = f"/console/messages/{quote(message_id, safe='')}"
    return PageContent("try_it.html", values, status)


def _kind(given: FormFields) -> str:
    kind = given.text("type")
    return kind if kind in FORMS else "text"


def _command(page: PageRequest, body: Mapping[str, Any]) -> str:
    """Return the request as a command of a shell."""
    url = f"{page.request.url.scheme}://{page.request.url.netloc}/v1/messages"
    written = json.dumps(body, ensure_ascii=False)
    return (
        f'curl {shlex.quote(url)} -H "Authorization: Bearer $TOKEN" \\\n'
        f"  -H 'Content-Type: application/json' -d {shlex.quote(written)}"
    )


def _indented(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
