"""`POST /v1/messages` and `PUT /v1/messages/{id}`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from tidings.wire.codes import NOT_FOUND
from webapp import answers, bodies, idempotency, openapi
from webapp.authenticator import Authenticator, Limit
from webapp.errors import InvalidRequest
from webapp.messages import schemas
from webapp.messages.service import Messages, Origin
from webapp.openapi import MetaAnswer

MAX_ID = 64


def routes(
    messages: Messages, authenticator: Authenticator, limit: Limit, mark_limit: Limit, *, max_body: int
) -> APIRouter:
    router = APIRouter(tags=["messages"])

    @router.post(
        "/v1/messages",
        summary="Send a message",
        status_code=201,
        response_model=schemas.MessagesAnswer,
        openapi_extra=openapi.repeatable(openapi.operation(openapi.BEARER, schemas.Message)),
    )
    async def send_message(request: Request) -> Response:
        caller = await authenticator.caller(request)
        limit.spend()
        body = await bodies.read_json(request, limit=max_body)
        message = schemas.read(body)
        key = idempotency.key_of(request)
        fingerprint = idempotency.fingerprint_of(body) if key else b""
        sent = await messages.send(caller, message, Origin(request.state.request_id, key, fingerprint))
        payload: dict[str, Any] = {"messages": [{"id": sent.id}]}
        if sent.wa_id:
            payload["contacts"] = [{"input": message.to, "wa_id": sent.wa_id}]
        return answers.answer(payload, status=201)

    # Ids of other makers have slashes in them.
    @router.put(
        "/v1/messages/{message_id:path}",
        summary="Mark a message as read, and those before it",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Marking),
    )
    async def mark_message(request: Request, message_id: str) -> Response:
        caller = await authenticator.caller(request)
        mark_limit.spend()
        await bodies.read(request, schemas.Marking, limit=max_body)
        if not 0 < len(message_id) <= MAX_ID or not message_id.isascii() or not message_id.isprintable():
            raise InvalidRequest.because(NOT_FOUND, "unknown message")
        await messages.mark_read(caller, message_id, request.state.request_id)
        return answers.answer({})

    return router
