"""`POST /v1/messages` and `PUT /v1/messages/{id}`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from tidings.wire.codes import NOT_FOUND
from webapp.api.messages import schemas
from webapp.api.messages.service import Messages, RequestOrigin
from webapp.auth import idempotency
from webapp.auth.authenticator import BEARER, AnyCaller, Authenticator, NumberLimits
from webapp.auth.tokens import Caller
from webapp.http import bodies, responses
from webapp.http.bodies import BodyLimit, json_body
from webapp.http.dependencies import RequestId, find, part
from webapp.http.direct import DirectRoute
from webapp.http.envelope import MESSAGES
from webapp.http.errors import InvalidRequest
from webapp.http.openapi import document
from webapp.http.openapi.document import RESPONSES, MetaResponse

MAX_ID = 64

router = APIRouter(tags=["messages"], responses=RESPONSES)
Service = Annotated[Messages, part(Messages)]


async def limited(request: Request, caller: AnyCaller) -> Caller:
    """Return the caller, within the rate limit of marks."""
    await find(request, NumberLimits).of(caller.account).marks.admit()
    return caller


async def send_message(request: Request) -> Response:
    # This hot route does without dependencies, and does their work here (docs/decisions/0011).
    caller = await find(request, Authenticator).caller(request)
    limit = find(request, NumberLimits).of(caller.account).messages
    if limit.share.is_short():
        await limit.share.replenished()
    limit.spend()
    body = await bodies.read_json(request, limit=find(request, BodyLimit).bytes)
    message = schemas.read(body)
    key = idempotency.key_of(request)
    fingerprint = idempotency.fingerprint_of(body) if key else b""
    state = request.scope["state"]
    origin = RequestOrigin(state["request_id"], key, fingerprint, state.get("traceparent", ""))
    sent = await find(request, Messages).send(caller, message, origin)
    payload: dict[str, Any] = {"messages": [{"id": sent.id}]}
    if sent.wa_id:
        payload["contacts"] = [{"input": message.to, "wa_id": sent.wa_id}]
    return responses.success(payload, status=201)


router.add_api_route(
    MESSAGES,
    send_message,
    methods=["POST"],
    summary="Send a message",
    status_code=201,
    response_model=schemas.MessagesResponse,
    dependencies=[BEARER, json_body(schemas.Message)],
    openapi_extra=document.REPEATABLE,
    route_class_override=DirectRoute,
)


# Ids from other implementations may contain slashes.
@router.put(
    "/v1/messages/{message_id:path}", summary="Mark a message and those before it as read", response_model=MetaResponse
)
async def mark_message(
    caller: Annotated[Caller, Depends(limited)],
    marking: Annotated[schemas.Marking, json_body(schemas.Marking)],
    messages: Service,
    request_id: RequestId,
    message_id: str,
) -> Response:
    if not 0 < len(message_id) <= MAX_ID or not message_id.isascii() or not message_id.isprintable():
        raise InvalidRequest.because(NOT_FOUND, "unknown message")
    await messages.mark_read(caller, message_id, request_id)
    return responses.success({})
