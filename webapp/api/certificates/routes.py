"""`/v1/certificates/external`, `/v1/certificates/external/ca` and `/v1/certificates/webhooks/ca`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from webapp.api.certificates.service import Certificates
from webapp.auth.authenticator import Administrator, AnyCaller
from webapp.http import responses
from webapp.http.bodies import raw_body
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES, MetaResponse
from webapp.http.pem import MAX_PEM

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


router = APIRouter(tags=["certificates"], responses=RESPONSES)
Service = Annotated[Certificates, part(Certificates)]


@router.post(
    EXTERNAL,
    summary="Set the certificate of the API",
    description="PEM: private key, certificate and at least one intermediate, in that order.",
    response_model=MetaResponse,
    openapi_extra=_UPLOAD,
)
async def set_external(
    caller: Administrator, content: Annotated[bytes, raw_body(MAX_PEM)], certificates: Service
) -> Response:
    await certificates.set_external(caller, content)
    return responses.success({})


@router.get(
    EXTERNAL + "/ca",
    summary="Get the CA certificate that clients may verify the API with",
    response_class=Response,
    responses={200: {"content": _PEM}},
)
async def get_external_ca(caller: AnyCaller, certificates: Service) -> Response:
    return _pem((await certificates.external(caller)).authorities)


@router.post(
    WEBHOOKS,
    summary="Set the CA certificates that verify webhook servers",
    response_model=MetaResponse,
    openapi_extra=_UPLOAD,
)
async def set_webhook_ca(
    caller: Administrator, content: Annotated[bytes, raw_body(MAX_PEM)], certificates: Service
) -> Response:
    await certificates.set_webhook_authorities(caller, content)
    return responses.success({})


@router.get(
    WEBHOOKS,
    summary="Get the CA certificates that verify webhook servers",
    response_class=Response,
    responses={200: {"content": _PEM}},
)
async def get_webhook_ca(caller: Administrator, certificates: Service) -> Response:
    return _pem(await certificates.webhook_authorities(caller))


@router.delete(
    WEBHOOKS, summary="Verify webhook servers with the system's CA certificates again", response_model=MetaResponse
)
async def delete_webhook_ca(caller: Administrator, certificates: Service) -> Response:
    await certificates.delete_webhook_authorities(caller)
    return responses.success({})


def _pem(content: bytes) -> Response:
    return Response(content, media_type="text/plain")
