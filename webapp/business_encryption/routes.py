"""`GET` and `POST /v1/settings/business/whatsapp_business_encryption`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp import answers, bodies, openapi
from webapp.authenticator import Authenticator
from webapp.business_encryption import schemas
from webapp.business_encryption.service import BusinessEncryption
from webapp.openapi import MetaAnswer

PATH = "/v1/settings/business/whatsapp_business_encryption"


def routes(encryption: BusinessEncryption, authenticator: Authenticator, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["business encryption"])

    @router.get(
        PATH,
        summary="The public key for flows",
        response_model=schemas.EncryptionAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_public_key(request: Request) -> Response:
        key = await encryption.public_key(await authenticator.administrator(request))
        section = {"whatsapp_business_encryption": {"business_public_key": key}}
        return answers.answer({"settings": {"business": section}})

    @router.post(
        PATH,
        summary="Set the public key for flows",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.BusinessEncryption),
    )
    async def set_public_key(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        body = await bodies.read(request, schemas.BusinessEncryption, limit=max_body)
        await encryption.set_public_key(caller, body.business_public_key)
        return answers.answer({})

    return router
