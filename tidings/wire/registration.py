"""JSON bodies of registration and keys, asked with and answered; `bytes` are base64."""

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


class SignedKey(msgspec.Struct, gc=False):
    """public: 0x05 and 32 bytes. signature: by the identity key, over the 33 bytes."""

    key_id: KeyId
    public: CurveKey
    signature: Signature


class SignedKyberKey(msgspec.Struct, gc=False):
    """public: 0x08 and 1,568 bytes. signature: by the identity key, over the 1,569 bytes."""

    key_id: KeyId
    public: KyberKey
    signature: Signature


class OneTimeKey(msgspec.Struct, gc=False):
    """public: 0x05 and 32 bytes."""

    key_id: KeyId
    public: CurveKey


Token = Annotated[str, Meta(pattern=r"^(?:[A-Za-z0-9_-]{43,64})?\Z")]
# Of a registration lock; empty for none.
Pin = Annotated[str, Meta(pattern=r"^[0-9]{6,20}\Z")]
MaybePin = Annotated[str, Meta(pattern=r"^(?:[0-9]{6,20})?\Z")]
Epoch = Annotated[int, Meta(ge=0, le=2**53)]


class CodeRequest(msgspec.Struct):
    """POST /v1/codes"""

    number: Number


class DeviceRegistration(msgspec.Struct, omit_defaults=True):
    """POST /v1/registrations, and one of those in bulk. kyber_prekey: the last resort; epoch: as in a login.

    token: the device's own choice, 32 random bytes at least; a new one when it is empty.
    pin: opens the number's registration lock, where it has one, and sets it anew; empty names none.
    """

    number: Number
    registration_id: KeyId
    identity_key: CurveKey
    signed_prekey: SignedKey
    kyber_prekey: SignedKyberKey | None = None
    prekeys: Annotated[list[OneTimeKey], Meta(max_length=100)] = []
    kyber_prekeys: Annotated[list[SignedKyberKey], Meta(max_length=100)] = []
    code: str = ""
    token: Token = ""
    epoch: Epoch = 0
    pin: MaybePin = ""


class LockRequest(msgspec.Struct):
    """PUT /v1/locks/{number}"""

    pin: Pin


class BulkRegistration(msgspec.Struct):
    """POST /v1/registrations/bulk"""

    registrations: Annotated[list[DeviceRegistration], Meta(max_length=MAX_BULK)]


class KeyUpload(msgspec.Struct, omit_defaults=True):
    """PUT /v1/keys/{number}; epoch: as in a login."""

    signed_prekey: SignedKey | None = None
    kyber_prekey: SignedKyberKey | None = None
    prekeys: Annotated[list[OneTimeKey], Meta(max_length=100)] = []
    kyber_prekeys: Annotated[list[SignedKyberKey], Meta(max_length=100)] = []
    epoch: Epoch = 0


class Registered(msgspec.Struct):
    """Answer to a registration, and for one of those in bulk."""

    token: str
    number: str = ""


class BulkRegistered(msgspec.Struct):
    """Answer to a registration in bulk."""

    registrations: list[Registered]


class KeysLeft(msgspec.Struct):
    """Answer to an upload of keys, or to the question for them: the one-time pre-keys that were not handed out yet.

    prekey_ids, kyber_prekey_ids: `None` from a network that does not say which.
    """

    prekeys: int = 0
    kyber_prekeys: int = 0
    prekey_ids: list[int] | None = None
    kyber_prekey_ids: list[int] | None = None
