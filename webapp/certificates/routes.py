"""`/v1/certificates/external`, its `/ca`, and `/v1/certificates/webhooks/ca`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp import answers, bodies, openapi
from webapp.authenticator import Authenticator
from webapp.certificates.service import Certificates
from webapp.openapi import MetaAnswer
from webapp.pem import MAX_PEM

EXTERNAL = "/v1/certificates/external"
WEBHOOKS = "/v1/certificates/webhooks/ca"

_EXAMPLE = """-----BEGIN CERTIFICATE-----
MIIBOzCB4qADAgECAgEBMAoGCCqGSM49BAMCMBwxGjAYBgNVBAMMEUV4YW1wbGUg
YXV0aG9yaXR5MCAXDTI2MDEwMTAwMDAwMFoYDzIwNTYwMTAxMDAwMDAwWjAcMRow
GAYDVQQDDBFFeGFtcGxlIGF1dGhvcml0eTBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABD2sAuQ/3gn3eTYfCLdMKI4uBkosjobdelig9hqih2egaX748boa7sxnhs/Q
Q80hAbW531tmPAuhBaRyKCPPzr+jEzARMA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZI
zj0EAwIDSAAwRQIhAO8IF/5/8towHLSn1RYkqw0WQAgRNmF+Y4cLuf7Ox70yAiAQ
ETBVAUIypM5U5FYDC2OORFyTPgSJXTouDY/vlrz5zg==
-----END CERTIFICATE-----
"""
_PEM = {"text/plain": {"schema": {"type": "string"}, "example": _EXAMPLE}}
_UPLOAD = {"requestBody": {"required": True, "content": _PEM}}


def routes(certificates: Certificates, authenticator: Authenticator) -> APIRouter:
    router = APIRouter(tags=["certificates"])

    @router.post(
        EXTERNAL,
        summary="Set the certificate of the API",
        description="PEM: private key, certificate, at least one intermediate, in that order.",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER) | _UPLOAD,
    )
    async def set_external(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        await certificates.set_external(caller, await bodies.receive(request, MAX_PEM))
        return answers.answer({})

    @router.get(
        EXTERNAL + "/ca",
        summary="What clients may check the certificate of the API against",
        response_class=Response,
        responses={200: {"content": _PEM}},
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_external_ca(request: Request) -> Response:
        return _pem(await certificates.external_authorities(await authenticator.caller(request)))

    @router.post(
        WEBHOOKS,
        summary="Set what webhook servers are checked against",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER) | _UPLOAD,
    )
    async def set_webhook_ca(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        await certificates.set_webhook_authorities(caller, await bodies.receive(request, MAX_PEM))
        return answers.answer({})

    @router.get(
        WEBHOOKS,
        summary="What webhook servers are checked against",
        response_class=Response,
        responses={200: {"content": _PEM}},
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_webhook_ca(request: Request) -> Response:
        return _pem(await certificates.webhook_authorities(await authenticator.administrator(request)))

    @router.delete(
        WEBHOOKS,
        summary="Check webhook servers against the system's authorities again",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def delete_webhook_ca(request: Request) -> Response:
        await certificates.delete_webhook_authorities(await authenticator.administrator(request))
        return answers.answer({})

    return router


def _pem(content: bytes) -> Response:
    return Response(content, media_type="text/plain")
