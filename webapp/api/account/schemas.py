"""Request bodies and responses of `/v1/account` and `/v1/settings/account`."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from tidings.wire import addresses
from tidings.wire.codes import PARAMETER_INVALID
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import BASE64, Digits, Integer, Matches, Maybe
from webapp.http.openapi.document import Meta

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
    """Request for a registration code.

    `cert` carries the display name. `pin` is required while two-step verification is on.
    """

    cc: CountryCode
    phone_number: PhoneNumber
    method: Literal["sms", "voice"]
    cert: Cert
    pin: Maybe[Pin] = None


class Verification(Body):
    """The registration code that was sent."""

    # Separators are accepted, as in 123-456. The network's codes have 16 digits while the number's codes are being
    # guessed.
    code: Annotated[
        str, pydantic.Field(max_length=32), Digits(6, 16, separated=True), pydantic.Field(examples=["123456"])
    ]


class ShardsChange(Body):
    """A new number of shards. `pin` is required while two-step verification is on."""

    cc: CountryCode
    phone_number: PhoneNumber
    shards: Shards
    pin: Maybe[Pin] = None
    cert: Maybe[Cert] = None


class TwoStep(Body):
    """The PIN that later registrations require."""

    pin: Pin


class DisplayName(pydantic.BaseModel):
    """The display name in the certificate, or the number when the certificate contains no readable name."""

    vname: str = pydantic.Field(examples=["Tidings Ltd."])


class CodeResponse(pydantic.BaseModel):
    """Response to a code request: a code is on its way, or the number is registered.

    `account` has exactly one element.
    """

    account: list[DisplayName]
    meta: Meta


class ShardsState(pydantic.BaseModel):
    """Numbers of shards.

    `shards` is the number that was set. `active_shards` is the number in use. `moved` is present while the first
    replaces the second.
    """

    shards: int = pydantic.Field(examples=[4])
    active_shards: int = pydantic.Field(examples=[4])
    moved: int | None = pydantic.Field(default=None, description="Rows that have been moved")


class ShardsResponse(pydantic.BaseModel):
    """Response with both numbers of shards."""

    account: ShardsState
    meta: Meta
