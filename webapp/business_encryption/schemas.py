"""What the public key's endpoint takes and answers."""

from __future__ import annotations

from typing import Annotated

import pydantic

from webapp.bodies import Body
from webapp.openapi import Meta

MAX_KEY = 4_096  # characters; a key of 2,048 bits has about 450

Pem = Annotated[
    str,
    pydantic.Field(
        max_length=MAX_KEY, examples=["-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG…\n-----END PUBLIC KEY-----\n"]
    ),
]


class BusinessEncryption(Body):
    """Takes the place of the key before."""

    business_public_key: Pem


class PublicKey(pydantic.BaseModel):
    """PEM, of an RSA key of 2,048 bits."""

    business_public_key: Pem


class EncryptionSection(pydantic.BaseModel):
    """Nested as its path."""

    whatsapp_business_encryption: PublicKey


class EncryptionSettings(pydantic.BaseModel):
    """Nested as its path."""

    business: EncryptionSection


class EncryptionAnswer(pydantic.BaseModel):
    """The public key."""

    settings: EncryptionSettings
    meta: Meta
