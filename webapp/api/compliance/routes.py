"""`GET` and `POST /v1/settings/business/compliance_info`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Response

from webapp.api.compliance import schemas
from webapp.api.compliance.service import ComplianceInfo
from webapp.auth.authenticator import Administrator
from webapp.http import responses
from webapp.http.bodies import json_body
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES, MetaResponse

PATH = "/v1/settings/business/compliance_info"


router = APIRouter(tags=["profile"], responses=RESPONSES)
Service = Annotated[ComplianceInfo, part(ComplianceInfo)]


@router.get(
    PATH, summary="Get the legal entity and its contacts for customers", response_model=schemas.ComplianceResponse
)
async def get_compliance(caller: Administrator, compliance: Service) -> Response:
    found = await compliance.find(caller)
    return responses.success({"settings": {"business": {"compliance_info": dataclasses.asdict(found)}}})


@router.post(PATH, summary="Set the legal entity and its contacts for customers", response_model=MetaResponse)
async def set_compliance(
    caller: Administrator, body: Annotated[schemas.Compliance, json_body(schemas.Compliance)], compliance: Service
) -> Response:
    await compliance.set(caller, body)
    return responses.success({})
