"""`POST /v1/messages`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from webapp import answers, bodies, openapi
from webapp.gate import Gate, Limit
from webapp.messages import schemas
from webapp.messages.service import Messages


def routes(messages: Messages, gate: Gate, limit: Limit, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["messages"])

    @router.post(
        "/v1/messages",
        summary="Send a message",
        status_code=201,
        response_model=schemas.MessagesAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Message),
    )
    async def send_message(request: Request) -> Response:
        caller = await gate.caller(request)
        limit.spend()
        message = await bodies.read(request, schemas.Message, limit=max_body)
        sent = await messages.send(caller, message, request.state.request_id)
        payload: dict[str, Any] = {"messages": [{"id": sent.id}]}
        if sent.wa_id:
            payload["contacts"] = [{"input": message.to, "wa_id": sent.wa_id}]
        return answers.answer(payload, status=201)

    return router
