"""`GET` and `POST /cloud/callbacks/{secret}`, which the real Cloud API calls."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from tidings.http.limited_protocol import mark_authenticated
from webapp.api.upstream.service import MAX_BODY, UpstreamCallbacks
from webapp.http import bodies, headers
from webapp.http.dependencies import part
from webapp.http.envelope import CALLBACKS

# Not described: only the Cloud API calls it, and the path is a secret.
router = APIRouter(include_in_schema=False)
Service = Annotated[UpstreamCallbacks, part(UpstreamCallbacks)]
PATH = f"{CALLBACKS}{{secret}}"


@router.get(PATH)
async def verify_callback(request: Request, callbacks: Service, secret: str) -> Response:
    given = request.query_params
    callbacks.verify(secret, given.get("hub.mode", ""), given.get("hub.verify_token", ""))
    mark_authenticated(request.scope)
    return Response(given.get("hub.challenge", ""), media_type="text/plain")


@router.post(PATH)
async def take_webhook(request: Request, callbacks: Service, secret: str) -> Response:
    callbacks.require_known(secret)
    body = await bodies.receive(request, MAX_BODY)
    signature = headers.find(request.scope, b"x-hub-signature-256") or b""
    callbacks.require_signed(secret, signature, body)
    # The following posts over this connection are not limited as those of unauthenticated clients.
    mark_authenticated(request.scope)
    await callbacks.commit(secret, body)
    return Response(status_code=200)
