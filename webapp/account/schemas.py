"""Bodies and answers of `/v1/account` and `/v1/settings/account`."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from tidings.wire import addresses
from tidings.wire.codes import PARAMETER_INVALID
from webapp.bodies import Body, refusal
from webapp.constraints import BASE64, Digits, Integer, Matches, Maybe
from webapp.openapi import Meta

MAX_CERT = 16_384  # characters


def _is_shards(value: int) -> int:
    if value not in addresses.COUNTS:
        raise refusal(PARAMETER_INVALID, "should be 1, 2, 4, 8, 16 or 32")
    return value


CountryCode = Annotated[
    str, pydantic.Field(max_length=16), Digits(1, 3, separated=True), pydantic.Field(examples=["1"])
]
PhoneNumber = Annotated[
    str, pydantic.Field(max_length=64), Digits(4, 14, separated=True), pydantic.Field(examples=["5550000000"])
]


Pin = Annotated[str, Digits(6, 6), pydantic.Field(examples=["123456"])]
Cert = Annotated[
    str,
    pydantic.Field(max_length=MAX_CERT, examples=["ChIKBQgBEgEx"]),
    Matches(BASE64, "should be base64"),
    pydantic.AfterValidator(lambda text: "".join(text.split())),
]
Shards = Annotated[
    Integer,
    pydantic.AfterValidator(_is_shards),
    pydantic.WithJsonSchema({"enum": [*addresses.COUNTS, *map(str, addresses.COUNTS)], "examples": [4]}),
]


class CodeRequest(Body):
    """`cert` carries the display name; `pin` is needed while two-step verification is on."""

    cc: CountryCode
    phone_number: PhoneNumber
    method: Literal["sms", "voice"]
    cert: Cert
    pin: Maybe[Pin] = None


class Verification(Body):
    """The code that was sent."""

    # As people write it down, too: 123-456. The network's codes have 16 digits while somebody guesses at the number.
    code: Annotated[
        str, pydantic.Field(max_length=32), Digits(6, 16, separated=True), pydantic.Field(examples=["123456"])
    ]


class ShardsChange(Body):
    """`pin` is needed while two-step verification is on."""

    cc: CountryCode
    phone_number: PhoneNumber
    shards: Shards
    pin: Maybe[Pin] = None
    cert: Maybe[Cert] = None


class TwoStep(Body):
    """The PIN that a later registration will need."""

    pin: Pin


class DisplayName(pydantic.BaseModel):
    """The name in the certificate; the number when there is none to be read."""

    vname: str = pydantic.Field(examples=["Tidings Ltd."])


class CodeAnswer(pydantic.BaseModel):
    """A code is on its way, or there was nothing to do. Exactly one element in `account`."""

    account: list[DisplayName]
    meta: Meta


class ShardsState(pydantic.BaseModel):
    """`shards` as it was set, `active_shards` as it is; `moved` while the one is made of the other."""

    shards: int = pydantic.Field(examples=[4])
    active_shards: int = pydantic.Field(examples=[4])
    moved: int | None = pydantic.Field(default=None, description="Rows that are in their new places already")


class ShardsAnswer(pydantic.BaseModel):
    """Both numbers of shards."""

    account: ShardsState
    meta: Meta
