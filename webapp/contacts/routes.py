"""`POST /v1/contacts`, and the identity of one contact."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from webapp import answers
from webapp.authenticator import AnyCaller, RateLimits
from webapp.bodies import json_body
from webapp.contacts import schemas
from webapp.contacts.service import ContactChecks
from webapp.dependencies import RequestId, find, part
from webapp.openapi import RESPONSES, MetaAnswer
from webapp.tokens import Caller

IDENTITY = "/v1/contacts/{wa_id}/identity"


router = APIRouter(tags=["contacts"], responses=RESPONSES)
Service = Annotated[ContactChecks, part(ContactChecks)]


async def limited(request: Request, caller: AnyCaller) -> Caller:
    """Any caller, within the rate limit."""
    await find(request, RateLimits).contacts.admit()
    return caller


LimitedCaller = Annotated[Caller, Depends(limited)]


@router.post("/v1/contacts", summary="Check which numbers can be written to", response_model=schemas.ContactsAnswer)
async def check_contacts(
    caller: LimitedCaller,
    body: Annotated[schemas.Contacts, json_body(schemas.Contacts)],
    contacts: Service,
    request_id: RequestId,
) -> Response:
    return answers.answer({"contacts": await contacts.check(caller, body, request_id)})


@router.get(IDENTITY, summary="By which keys a contact is known", response_model=schemas.IdentityAnswer)
async def get_identity(caller: AnyCaller, contacts: Service, wa_id: str) -> Response:
    return answers.answer({"contacts": await contacts.identity(caller, wa_id)})


@router.put(
    IDENTITY,
    summary="Acknowledge a contact's new identity, so that messages to it are taken again",
    response_model=MetaAnswer,
)
async def acknowledge_identity(
    caller: AnyCaller,
    body: Annotated[schemas.Acknowledgement, json_body(schemas.Acknowledgement)],
    contacts: Service,
    wa_id: str,
) -> Response:
    await contacts.acknowledge(caller, wa_id, body)
    return answers.answer({})
