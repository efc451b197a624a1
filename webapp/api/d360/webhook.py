"""`/v1/configs/webhook`: the webhook of v1, and headers that each post to it carries; `/waba_webhook`: those of all
numbers of a WABA.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

import pydantic
from fastapi import Request, Response

from webapp.api.application_settings.schemas import WebhookHeaders, WebhookURL
from webapp.api.application_settings.service import AccountSettings
from webapp.api.d360 import responses
from webapp.auth.numbers import Numbers
from webapp.auth.tokens import Caller
from webapp.http import bodies, dependencies
from webapp.http.bodies import Body, BodyLimit
from webapp.http.errors import AdministratorRequired

PATH = "/v1/configs/webhook"
WABA_PATH = "/waba_webhook"


class WebhookConfig(Body):
    """A webhook. Without `headers` posts carry no headers but ours."""

    url: Annotated[WebhookURL, pydantic.Field(min_length=1)]
    headers: Annotated[WebhookHeaders, pydantic.Field(default_factory=dict)]


async def show(request: Request, caller: Caller) -> Response:
    """Return the webhook; an empty one if several numbers have different ones."""
    _require_admin(caller)
    settings = dependencies.find(request, AccountSettings)
    found = [await settings.find_webhook(each) for each in _concerned(request, caller)]
    return _respond(*(found[0] if found.count(found[0]) == len(found) else ("", {})))


async def change(request: Request, caller: Caller) -> Response:
    _require_admin(caller)
    limit = dependencies.find(request, BodyLimit).bytes
    wanted = bodies.check(WebhookConfig, await bodies.read_json(request, limit=limit))
    await _set(request, caller, wanted.url, wanted.headers)
    return _respond(wanted.url, wanted.headers)


async def delete(request: Request, caller: Caller) -> Response:
    _require_admin(caller)
    await _set(request, caller, "", {})
    return _respond("", {})


async def _set(request: Request, caller: Caller, url: str, headers: Mapping[str, str]) -> None:
    """Set the webhook of all numbers concerned. A request that fails may be repeated."""
    settings = dependencies.find(request, AccountSettings)
    await asyncio.gather(*(settings.set_webhook(each, url, headers) for each in _concerned(request, caller)))


def _concerned(request: Request, caller: Caller) -> Sequence[Caller]:
    """Return the caller for each number that the path concerns."""
    if request.scope["path"] != WABA_PATH:
        return [caller]
    numbers = dependencies.find(request, Numbers).of_waba(caller.account)
    return [dataclasses.replace(caller, account=number) for number in numbers]


def _require_admin(caller: Caller) -> None:
    if not caller.is_admin:
        raise AdministratorRequired("the key of an administrator is required")


def _respond(url: str, headers: Mapping[str, str]) -> Response:
    return responses.success({"url": url, "headers": headers})
