"""Content of a contacts message: cards of people."""

from __future__ import annotations

import datetime
import re
from typing import Annotated

import pydantic

from tidings.wire.codes import PARAMETER_INVALID, PARAMETER_MISSING
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Length, Maybe

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_PARTS = ("first_name", "last_name", "middle_name", "suffix", "prefix")

Word = Maybe[Annotated[str, Length(1024)]]


def _is_date(text: str) -> str:
    try:
        good = _DATE.fullmatch(text) is not None and bool(datetime.date.fromisoformat(text))
    except ValueError:
        good = False
    if not good:
        raise refusal(PARAMETER_INVALID, "should be a date such as 1990-12-31")
    return text


Date = Annotated[str, pydantic.AfterValidator(_is_date), pydantic.Field(json_schema_extra={"format": "date"})]


class Name(Body):
    """Name of a person: `formatted_name` and at least one of the other fields."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [part], "properties": {part: {"type": "string", "minLength": 1}}} for part in _PARTS]
        }
    )

    formatted_name: Annotated[str, Length(1024)]
    first_name: Word = None
    last_name: Word = None
    middle_name: Word = None
    suffix: Word = None
    prefix: Word = None

    @pydantic.model_validator(mode="after")
    def _has_a_part(self) -> Name:
        if not any(getattr(self, part) for part in _PARTS):
            raise refusal(PARAMETER_MISSING, "one of {parts} is missing", parts=", ".join(_PARTS))
        return self


class Address(Body):
    street: Word = None
    city: Word = None
    state: Word = None
    zip: Word = None
    country: Word = None
    country_code: Word = None
    type: Word = None


class Email(Body):
    email: Word = None
    type: Word = None


class Phone(Body):
    """Phone number. With `wa_id`, recipients can send messages to it."""

    phone: Word = None
    type: Word = None
    wa_id: Word = None


class Url(Body):
    url: Word = None
    type: Word = None


class Messenger(Body):
    service: Word = None
    user_id: Word = None


class Organisation(Body):
    company: Word = None
    department: Word = None
    title: Word = None


class Card(Body):
    """Card of one person.

    The types are HOME and WORK, and for phones also CELL, MAIN and IPHONE. Others are passed on unchanged.
    """

    name: Name
    addresses: list[Address] | None = None
    birthday: Maybe[Date] = None
    emails: list[Email] | None = None
    org: Organisation | None = None
    phones: list[Phone] | None = None
    urls: list[Url] | None = None
    ims: list[Messenger] | None = None


def _is_some(cards: list[Card]) -> list[Card]:
    if not cards:
        raise refusal(PARAMETER_MISSING, "has no contact")
    return cards


Cards = Annotated[list[Card], pydantic.AfterValidator(_is_some), pydantic.Field(json_schema_extra={"minItems": 1})]
