"""`/v1/settings/business/whatsapp_business_encryption`: the public key that encrypts responses of flows."""

from __future__ import annotations

import logging
from typing import Annotated

import pydantic
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from fastapi import APIRouter, Response

from tidings.storage.business import certificates
from tidings.storage.database import Database
from tidings.wire.codes import NOT_FOUND, PARAMETER_INVALID
from webapp.auth.authenticator import Administrator
from webapp.auth.tokens import Caller
from webapp.http import responses
from webapp.http.bodies import Body, json_body
from webapp.http.dependencies import part
from webapp.http.errors import InvalidRequest
from webapp.http.openapi.document import RESPONSES, Meta, MetaResponse

MAX_KEY = 4_096  # characters; a key of 2,048 bits has about 450

_EXAMPLE = """-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAovZ0oh5ZledJfN1RK7mV
VhVl94pKEaz38TsNhcyNsSijkc0NrPnknEKazsHHcukP6gu64vhs8NyibIpH5F+e
vRyePqpSIhcD0/FxGKbH0dpyYT7tfxH6ET9F0NHl8tRkkzbPndoDBGPkezDlfHwY
6T1Q7A0cWGP3QMK07NJpI7PRSTLO0vISLMdMPkpCjmcsn4KRwf5e0C0lHvYNiXCY
bz0gZQf0bX/bnOhCNqDXq+20sJow0OmXEdG5G20o1AfWP3lhaqBgv07gJ913Vbul
+84c/2J+l5k7vG+B4VVVe3DXDn/hag3LEbPAYfshqJcyrEAaL6d+Ten1WHb5ak0g
uQIDAQAB
-----END PUBLIC KEY-----
"""
Pem = Annotated[str, pydantic.Field(max_length=MAX_KEY, examples=[_EXAMPLE])]


class BusinessEncryption(Body):
    """New public key. It replaces the previous one."""

    business_public_key: Pem


class PublicKey(pydantic.BaseModel):
    """RSA public key of 2,048 bits, PEM."""

    business_public_key: Pem


class EncryptionSection(pydantic.BaseModel):
    """Section of the response, nested like the path."""

    whatsapp_business_encryption: PublicKey


class EncryptionSettings(pydantic.BaseModel):
    """Section of the response, nested like the path."""

    business: EncryptionSection


class EncryptionResponse(pydantic.BaseModel):
    """Response with the public key."""

    settings: EncryptionSettings
    meta: Meta


log = logging.getLogger(__name__)

BITS = 2048


class FlowKeys:
    """Public key of the caller's account."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def public_key(self, caller: Caller) -> str:
        """Return the key, PEM. Raises `InvalidRequest` when none is set."""
        async with self._database.reading() as connection:
            found = await certificates.find_certificate(connection, caller.account, certificates.FLOWS_KEY)
        if found is None:
            raise InvalidRequest.because(NOT_FOUND, "there is no public key")
        return found.decode()

    async def set_public_key(self, caller: Caller, text: str) -> None:
        """Replace the key. Raises `InvalidRequest` unless it is an RSA public key of 2,048 bits."""
        content = normalise(text)
        await self._database.persist(
            lambda connection: certificates.set_certificate(
                connection, caller.account, certificates.FLOWS_KEY, content
            ),
            retry_seconds=5.0,
        )
        log.info("business_encryption.set", extra={"username": caller.username})


def normalise(text: str) -> bytes:
    """Return an RSA public key of 2,048 bits in the one PEM form that is stored.

    Raises `InvalidRequest` for anything else.
    """
    if "PRIVATE KEY" in text:
        raise _wrong("is a private key: send the public key instead")
    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise _wrong("should be a public key in PEM") from None
    if not isinstance(key, RSAPublicKey) or key.key_size != BITS:
        raise _wrong(f"should be an RSA key of {BITS} bits")
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _wrong(why: str) -> InvalidRequest:
    return InvalidRequest.because(PARAMETER_INVALID, f"business_public_key: {why}")


PATH = "/v1/settings/business/whatsapp_business_encryption"


router = APIRouter(tags=["business encryption"], responses=RESPONSES)
Service = Annotated[FlowKeys, part(FlowKeys)]


@router.get(PATH, summary="The public key for flows", response_model=EncryptionResponse)
async def get_public_key(caller: Administrator, encryption: Service) -> Response:
    key = await encryption.public_key(caller)
    section = {"whatsapp_business_encryption": {"business_public_key": key}}
    return responses.success({"settings": {"business": section}})


@router.post(PATH, summary="Set the public key for flows", response_model=MetaResponse)
async def set_public_key(
    caller: Administrator,
    body: Annotated[BusinessEncryption, json_body(BusinessEncryption)],
    encryption: Service,
) -> Response:
    await encryption.set_public_key(caller, body.business_public_key)
    return responses.success({})
