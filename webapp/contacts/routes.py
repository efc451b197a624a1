"""`POST /v1/contacts`, and the identity of one contact."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp import answers, bodies, openapi
from webapp.authenticator import Authenticator, Limit
from webapp.contacts import schemas
from webapp.contacts.service import Contacts
from webapp.openapi import MetaAnswer

IDENTITY = "/v1/contacts/{wa_id}/identity"


def routes(contacts: Contacts, authenticator: Authenticator, limit: Limit, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["contacts"])

    @router.post(
        "/v1/contacts",
        summary="Check which numbers can be written to",
        response_model=schemas.ContactsAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Contacts),
    )
    async def check_contacts(request: Request) -> Response:
        caller = await authenticator.caller(request)
        limit.spend()
        body = await bodies.read(request, schemas.Contacts, limit=max_body)
        return answers.answer({"contacts": await contacts.check(caller, body, request.state.request_id)})

    @router.get(
        IDENTITY,
        summary="By which keys a contact is known",
        response_model=schemas.IdentityAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_identity(request: Request, wa_id: str) -> Response:
        caller = await authenticator.caller(request)
        return answers.answer({"contacts": await contacts.identity(caller, wa_id)})

    @router.put(
        IDENTITY,
        summary="Acknowledge a contact's new identity, so that messages to it are taken again",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Acknowledgement),
    )
    async def acknowledge_identity(request: Request, wa_id: str) -> Response:
        caller = await authenticator.caller(request)
        body = await bodies.read(request, schemas.Acknowledgement, limit=max_body)
        await contacts.acknowledge(caller, wa_id, body)
        return answers.answer({})

    return router
