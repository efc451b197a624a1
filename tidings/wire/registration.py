"""JSON bodies of registration and key calls, requests and responses. `bytes` are base64."""

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
    key_id: KeyId
    public: CurveKey  # 0x05 and 32 bytes
    signature: Signature  # by the identity key, over the 33 bytes


class SignedKyberKey(msgspec.Struct, gc=False):
    key_id: KeyId
    public: KyberKey  # 0x08 and 1,568 bytes
    signature: Signature  # by the identity key, over the 1,569 bytes


class OneTimeKey(msgspec.Struct, gc=False):
    key_id: KeyId
    public: CurveKey  # 0x05 and 32 bytes


Token = Annotated[str, Meta(pattern=r"^(?:[A-Za-z0-9_-]{43,64})?\Z")]
# PIN of a registration lock; `MaybePin` is empty for none.
Pin = Annotated[str, Meta(pattern=r"^[0-9]{6,20}\Z")]
MaybePin = Annotated[str, Meta(pattern=r"^(?:[0-9]{6,20})?\Z")]
Epoch = Annotated[int, Meta(ge=0, le=2**53)]


class CodeRequest(msgspec.Struct):
    """POST /v1/codes"""

    number: Number


class DeviceRegistration(msgspec.Struct, omit_defaults=True):
    """POST /v1/registrations, and one entry of a bulk registration."""

    number: Number
    registration_id: KeyId
    identity_key: CurveKey
    signed_prekey: SignedKey
    kyber_prekey: SignedKyberKey | None = None  # the last resort
    prekeys: Annotated[list[OneTimeKey], Meta(max_length=100)] = []
    kyber_prekeys: Annotated[list[SignedKyberKey], Meta(max_length=100)] = []
    code: str = ""
    token: Token = ""  # chosen by the device, at least 32 random bytes; empty to let the network make one
    epoch: Epoch = 0  # as in `device.Login`
    pin: MaybePin = ""  # opens the number's registration lock, if it has one, and sets it again; empty for none
    # Whether this is a person's handset: refused for a business's number, also with the registration key.
    person: bool = False


class LockRequest(msgspec.Struct):
    """PUT /v1/locks/{number}"""

    pin: Pin


class BulkRegistration(msgspec.Struct):
    """POST /v1/registrations/bulk"""

    registrations: Annotated[list[DeviceRegistration], Meta(max_length=MAX_BULK)]


class KeyUpload(msgspec.Struct, omit_defaults=True):
    """PUT /v1/keys/{number}"""

    signed_prekey: SignedKey | None = None
    kyber_prekey: SignedKyberKey | None = None
    prekeys: Annotated[list[OneTimeKey], Meta(max_length=100)] = []
    kyber_prekeys: Annotated[list[SignedKyberKey], Meta(max_length=100)] = []
    epoch: Epoch = 0  # as in `device.Login`


class Registered(msgspec.Struct):
    """Response to a registration, and one entry of the response to a bulk registration."""

    token: str
    number: str = ""


class BulkRegistered(msgspec.Struct):
    """Response to a bulk registration."""

    registrations: list[Registered]


class KeysLeft(msgspec.Struct):
    """Response to an upload or a count of keys: the one-time pre-keys that have not been handed out."""

    prekeys: int = 0
    kyber_prekeys: int = 0
    prekey_ids: list[int] | None = None  # None from a network that does not list ids
    kyber_prekey_ids: list[int] | None = None  # None from a network that does not list ids
