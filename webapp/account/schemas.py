"""What `/v1/account` and `/v1/settings/account` take and answer."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Literal

import pydantic

from webapp.bodies import Body, refusal
from webapp.errors import PARAMETER_INVALID
from webapp.openapi import Meta

MAX_CERT = 16_384  # characters
SHARDS = (1, 2, 4, 8, 16, 32)

_SEPARATORS = str.maketrans("", "", " -.()\u00a0")


def _is_digits(low: int, high: int, text: str) -> str:
    digits = text.translate(_SEPARATORS).removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and low <= len(digits) <= high):
        raise refusal(PARAMETER_INVALID, "should be {low} to {high} digits", low=low, high=high)
    return digits


def _is_country_code(text: str) -> str:
    return _is_digits(1, 3, text)


def _is_phone_number(text: str) -> str:
    return _is_digits(4, 14, text)


def _is_pin(text: str) -> str:
    if not (text.isascii() and text.isdigit() and len(text) == 6):
        raise refusal(PARAMETER_INVALID, "should be 6 digits")
    return text


def _is_code(text: str) -> str:
    # As people write it down: 123-456.
    return _is_digits(6, 6, text)


def _is_base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise refusal(PARAMETER_INVALID, "should be base64") from None
    if not text:
        raise refusal(PARAMETER_INVALID, "should not be empty")
    return text


def _is_shards(value: int) -> int:
    if value not in SHARDS:
        raise refusal(PARAMETER_INVALID, "should be 1, 2, 4, 8, 16 or 32")
    return value


_Numeric = pydantic.ConfigDict(coerce_numbers_to_str=True)
CountryCode = Annotated[str, pydantic.Field(max_length=16, examples=["1"]), pydantic.AfterValidator(_is_country_code)]
PhoneNumber = Annotated[
    str, pydantic.Field(max_length=64, examples=["5550000000"]), pydantic.AfterValidator(_is_phone_number)
]
Pin = Annotated[
    str,
    pydantic.AfterValidator(_is_pin),
    pydantic.Field(examples=["123456"], json_schema_extra={"pattern": "^[0-9]{6}$"}),
]
Cert = Annotated[
    str, pydantic.Field(max_length=MAX_CERT, examples=["ChIKBQgBEgEx"]), pydantic.AfterValidator(_is_base64)
]
Shards = Annotated[
    int,
    pydantic.AfterValidator(_is_shards),
    pydantic.Field(json_schema_extra={"enum": list(SHARDS)}),
]


class CodeRequest(Body):
    """`cert` carries the display name; `pin` is needed while two-step verification is on."""

    model_config = _Numeric

    cc: CountryCode
    phone_number: PhoneNumber
    method: Literal["sms", "voice"]
    cert: Cert
    pin: Pin | None = None


class Verification(Body):
    """The code that was sent."""

    model_config = _Numeric

    code: Annotated[str, pydantic.Field(max_length=16, examples=["123456"]), pydantic.AfterValidator(_is_code)]


class ShardsChange(Body):
    """`pin` is needed while two-step verification is on."""

    model_config = _Numeric

    cc: CountryCode
    phone_number: PhoneNumber
    shards: Shards
    pin: Pin | None = None
    cert: Cert | None = None


class TwoStep(Body):
    """The PIN that a later registration will need."""

    model_config = _Numeric

    pin: Pin


class DisplayName(pydantic.BaseModel):
    """The name in the certificate; the number when there is none to be read."""

    vname: str = pydantic.Field(examples=["Tidings Ltd."])


class CodeAnswer(pydantic.BaseModel):
    """A code is on its way. Exactly one element in `account`."""

    account: list[DisplayName]
    meta: Meta


class ShardsState(pydantic.BaseModel):
    """`shards` as it was set, `active_shards` as it is."""

    shards: int
    active_shards: int


class ShardsAnswer(pydantic.BaseModel):
    """Both numbers of shards."""

    account: ShardsState
    meta: Meta
