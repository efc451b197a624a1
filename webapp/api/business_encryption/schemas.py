"""Request bodies and responses of the public key's endpoint."""

from __future__ import annotations

from typing import Annotated

import pydantic

from webapp.http.bodies import Body
from webapp.http.openapi.document import Meta

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


class EncryptionAnswer(pydantic.BaseModel):
    """Response with the public key."""

    settings: EncryptionSettings
    meta: Meta
