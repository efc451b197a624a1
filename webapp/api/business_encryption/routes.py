"""`GET` and `POST /v1/settings/business/whatsapp_business_encryption`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from webapp.api.business_encryption import schemas
from webapp.api.business_encryption.service import FlowKeys
from webapp.auth.authenticator import Administrator
from webapp.http import answers
from webapp.http.bodies import json_body
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES, MetaAnswer

PATH = "/v1/settings/business/whatsapp_business_encryption"


router = APIRouter(tags=["business encryption"], responses=RESPONSES)
Service = Annotated[FlowKeys, part(FlowKeys)]


@router.get(PATH, summary="The public key for flows", response_model=schemas.EncryptionAnswer)
async def get_public_key(caller: Administrator, encryption: Service) -> Response:
    key = await encryption.public_key(caller)
    section = {"whatsapp_business_encryption": {"business_public_key": key}}
    return answers.answer({"settings": {"business": section}})


@router.post(PATH, summary="Set the public key for flows", response_model=MetaAnswer)
async def set_public_key(
    caller: Administrator,
    body: Annotated[schemas.BusinessEncryption, json_body(schemas.BusinessEncryption)],
    encryption: Service,
) -> Response:
    await encryption.set_public_key(caller, body.business_public_key)
    return answers.answer({})
