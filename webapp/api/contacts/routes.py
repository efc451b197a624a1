"""`POST /v1/contacts`, and the identity of one contact."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from webapp.api.contacts import schemas
from webapp.api.contacts.service import ContactChecks
from webapp.auth.authenticator import BEARER, AnyCaller, Authenticator, NumberLimits
from webapp.http import bodies, responses
from webapp.http.bodies import BodyLimit, json_body
from webapp.http.dependencies import find, part
from webapp.http.direct import DirectRoute
from webapp.http.openapi.document import RESPONSES, MetaResponse

IDENTITY = "/v1/contacts/{wa_id}/identity"


router = APIRouter(tags=["contacts"], responses=RESPONSES)
Service = Annotated[ContactChecks, part(ContactChecks)]


async def check_contacts(request: Request) -> Response:
    # This hot route does without dependencies, and does their work here (docs/decisions/0011).
    caller = await find(request, Authenticator).caller(request)
    await find(request, NumberLimits).of(caller.account).contacts.admit()
    body = await bodies.read_json(request, limit=find(request, BodyLimit).bytes)
    wanted = bodies.check(schemas.Contacts, body)
    found = await find(request, ContactChecks).check(caller, wanted, request.scope["state"]["request_id"])
    return responses.success({"contacts": found})


router.add_api_route(
    "/v1/contacts",
    check_contacts,
    methods=["POST"],
    summary="Check which numbers can receive messages",
    response_model=schemas.ContactsResponse,
    dependencies=[BEARER, json_body(schemas.Contacts)],
    route_class_override=DirectRoute,
)


@router.get(IDENTITY, summary="Get a contact's identity key", response_model=schemas.IdentityResponse)
async def get_identity(caller: AnyCaller, contacts: Service, wa_id: str) -> Response:
    return responses.success({"contacts": await contacts.identity(caller, wa_id)})


@router.put(
    IDENTITY,
    summary="Acknowledge a contact's new identity, so that messages to it are accepted again",
    response_model=MetaResponse,
)
async def acknowledge_identity(
    caller: AnyCaller,
    body: Annotated[schemas.Acknowledgement, json_body(schemas.Acknowledgement)],
    contacts: Service,
    wa_id: str,
) -> Response:
    await contacts.acknowledge(caller, wa_id, body)
    return responses.success({})
