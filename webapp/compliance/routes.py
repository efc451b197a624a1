"""`GET` and `POST /v1/settings/business/compliance_info`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Response

from webapp import answers
from webapp.authenticator import Administrator
from webapp.bodies import json_body
from webapp.compliance import schemas
from webapp.compliance.service import ComplianceInfo
from webapp.dependencies import part
from webapp.openapi import RESPONSES, MetaAnswer

PATH = "/v1/settings/business/compliance_info"


router = APIRouter(tags=["profile"], responses=RESPONSES)
Service = Annotated[ComplianceInfo, part(ComplianceInfo)]


@router.get(PATH, summary="The legal entity, and whom customers reach", response_model=schemas.ComplianceAnswer)
async def get_compliance(caller: Administrator, compliance: Service) -> Response:
    found = await compliance.find(caller)
    return answers.answer({"settings": {"business": {"compliance_info": dataclasses.asdict(found)}}})


@router.post(PATH, summary="Set the legal entity, and whom customers reach", response_model=MetaAnswer)
async def set_compliance(
    caller: Administrator, body: Annotated[schemas.Compliance, json_body(schemas.Compliance)], compliance: Service
) -> Response:
    await compliance.set(caller, body)
    return answers.answer({})
