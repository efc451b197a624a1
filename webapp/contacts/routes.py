"""`POST /v1/contacts`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp import answers, bodies, openapi
from webapp.contacts import schemas
from webapp.contacts.service import Contacts
from webapp.gate import Gate, Limit


def routes(contacts: Contacts, gate: Gate, limit: Limit, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["contacts"])

    @router.post(
        "/v1/contacts",
        summary="Check which numbers can be written to",
        response_model=schemas.ContactsAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Contacts),
    )
    async def check_contacts(request: Request) -> Response:
        caller = await gate.caller(request)
        limit.spend()
        body = await bodies.read(request, schemas.Contacts, limit=max_body)
        return answers.answer({"contacts": await contacts.check(caller, body, request.state.request_id)})

    return router
