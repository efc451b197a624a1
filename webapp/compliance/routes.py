"""`GET` and `POST /v1/settings/business/compliance_info`."""

from __future__ import annotations

import dataclasses

from fastapi import APIRouter, Request, Response

from webapp import answers, bodies, openapi
from webapp.authenticator import Authenticator
from webapp.compliance import schemas
from webapp.compliance.service import ComplianceInfo
from webapp.openapi import MetaAnswer

PATH = "/v1/settings/business/compliance_info"


def routes(compliance: ComplianceInfo, authenticator: Authenticator, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["profile"])

    @router.get(
        PATH,
        summary="The legal entity, and whom customers reach",
        response_model=schemas.ComplianceAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_compliance(request: Request) -> Response:
        found = await compliance.find(await authenticator.administrator(request))
        return answers.answer({"settings": {"business": {"compliance_info": dataclasses.asdict(found)}}})

    @router.post(
        PATH,
        summary="Set the legal entity, and whom customers reach",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Compliance),
    )
    async def set_compliance(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        await compliance.set(caller, await bodies.read(request, schemas.Compliance, limit=max_body))
        return answers.answer({})

    return router
