"""`/v1/configs/webhook`: the webhook of v1, and headers that each post to it carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import pydantic
from fastapi import Request, Response

from tidings.keys import webhook_url
from tidings.wire.codes import PARAMETER_INVALID
from webapp.api.application_settings.schemas import WebhookURL
from webapp.api.application_settings.service import AccountSettings
from webapp.api.d360 import answers
from webapp.auth.tokens import Caller
from webapp.http import bodies, dependencies
from webapp.http.bodies import Body, BodyLimit, refusal
from webapp.http.errors import AdministratorRequired

PATH = "/v1/configs/webhook"
MAX_HEADERS = 20


def _are_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not webhook_url.is_header(name, value):
            raise refusal(PARAMETER_INVALID, "should be names and values of headers that callbacks do not have already")
    return headers


class WebhookConfig(Body):
    """A webhook. Without `headers` posts carry no headers but ours."""

    url: Annotated[WebhookURL, pydantic.Field(min_length=1)]
    headers: Annotated[
        dict[str, str],
        pydantic.Field(max_length=MAX_HEADERS, default_factory=dict),
        pydantic.AfterValidator(_are_headers),
    ]


async def show(request: Request, caller: Caller) -> Response:
    _require_admin(caller)
    url, headers = await dependencies.find(request, AccountSettings).find_webhook(caller)
    return _answer(url, headers)


async def change(request: Request, caller: Caller) -> Response:
    _require_admin(caller)
    limit = dependencies.find(request, BodyLimit).bytes
    wanted = bodies.check(WebhookConfig, await bodies.read_json(request, limit=limit))
    await dependencies.find(request, AccountSettings).set_webhook(caller, wanted.url, wanted.headers)
    return _answer(wanted.url, wanted.headers)


async def delete(request: Request, caller: Caller) -> Response:
    _require_admin(caller)
    await dependencies.find(request, AccountSettings).set_webhook(caller, "", {})
    return _answer("", {})


def _require_admin(caller: Caller) -> None:
    if not caller.is_admin:
        raise AdministratorRequired("the key of an administrator is required")


def _answer(url: str, headers: Mapping[str, str]) -> Response:
    return answers.answer({"url": url, "headers": headers})
