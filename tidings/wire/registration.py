"""The JSON bodies of registration and keys; `bytes` are base64."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tidings.wire.addresses import Number

KeyId = Annotated[int, Meta(ge=0, le=2**32 - 1)]
CurveKey = Annotated[bytes, Meta(min_length=33, max_length=33)]
KyberKey = Annotated[bytes, Meta(min_length=1569, max_length=1569)]
Signature = Annotated[bytes, Meta(min_length=64, max_length=64)]

MAX_BULK = 500


class SignedPreKey(msgspec.Struct, gc=False):
    """public: 0x05 and 32 bytes. signature: by the identity key, over the 33 bytes."""

    key_id: KeyId
    public: CurveKey
    signature: Signature


class KyberPreKey(msgspec.Struct, gc=False):
    """public: 0x08 and 1,568 bytes. signature: by the identity key, over the 1,569 bytes."""

    key_id: KeyId
    public: KyberKey
    signature: Signature


class PreKey(msgspec.Struct, gc=False):
    """public: 0x05 and 32 bytes."""

    key_id: KeyId
    public: CurveKey


Token = Annotated[str, Meta(pattern=r"^(?:[A-Za-z0-9_-]{43,64})?\Z")]
Epoch = Annotated[int, Meta(ge=0, le=2**53)]


class NewCode(msgspec.Struct):
    """POST /v1/codes"""

    number: Number


class Device(msgspec.Struct):
    """POST /v1/registrations, and one of those in bulk. kyber_prekey: the last resort; epoch: as in a login.

    token: the device's own choice, 32 random bytes at least; a new one when it is empty.
    """

    number: Number
    registration_id: KeyId
    identity_key: CurveKey
    signed_prekey: SignedPreKey
    kyber_prekey: KyberPreKey | None = None
    prekeys: Annotated[list[PreKey], Meta(max_length=100)] = []
    kyber_prekeys: Annotated[list[KyberPreKey], Meta(max_length=100)] = []
    code: str = ""
    token: Token = ""
    epoch: Epoch = 0


class Bulk(msgspec.Struct):
    """POST /v1/registrations/bulk"""

    registrations: Annotated[list[Device], Meta(max_length=MAX_BULK)]


class Keys(msgspec.Struct):
    """PUT /v1/keys/{number}; epoch: as in a login."""

    signed_prekey: SignedPreKey | None = None
    kyber_prekey: KyberPreKey | None = None
    prekeys: Annotated[list[PreKey], Meta(max_length=100)] = []
    kyber_prekeys: Annotated[list[KyberPreKey], Meta(max_length=100)] = []
    epoch: Epoch = 0
