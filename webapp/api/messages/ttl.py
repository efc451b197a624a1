"""Time to live of a message: integer seconds or an ISO 8601 duration."""

from __future__ import annotations

import math
import re
from typing import Annotated

import pydantic
from pydantic.config import JsonDict

from tidings.wire.codes import PARAMETER_NOT_REQUIRED
from webapp.http.bodies import refusal

# Maximum time to live, in seconds. The network's own limit is usually lower.
LONGEST = 365 * 24 * 3600

_NUMBER = r"\d{1,9}(?:[.,]\d{1,9})?"
_PATTERN = (
    rf"P(?=[0-9T])(?:({_NUMBER})Y)?(?:({_NUMBER})M)?(?:({_NUMBER})W)?(?:({_NUMBER})D)?"
    rf"(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_DURATION = re.compile(_PATTERN, re.ASCII)
_DAY = 24 * 3600
# Seconds per designator of a duration, in order. A year has 365 days and a month 30.
_SECONDS = (365 * _DAY, 30 * _DAY, 7 * _DAY, _DAY, 3600, 60, 1)


def parse(value: object) -> int | None:
    """Return whole seconds, at most `LONGEST`; `None` for an absent or empty value. Raises `refusal`."""
    if value is None or value == "" or value == {}:
        return None
    seconds: float = 0
    if isinstance(value, int) and not isinstance(value, bool):
        seconds = value
    elif isinstance(value, str) and (found := _DURATION.fullmatch(value)) is not None:
        amounts = [float(amount.replace(",", ".")) if amount else 0.0 for amount in found.groups()]
        seconds = sum(amount * unit for amount, unit in zip(amounts, _SECONDS, strict=True))
    if seconds <= 0:
        details = "should be a positive integer of seconds or an ISO 8601 duration, like P1D"
        raise refusal(PARAMETER_NOT_REQUIRED, details)
    return min(math.ceil(seconds), LONGEST)


def _describe(schema: JsonDict) -> None:
    schema.pop("type", None)
    schema["anyOf"] = [
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": r"^P(?:[1-9][0-9]{0,3}D|T[1-9][0-9]{0,8}[HMS])$"},
        {"enum": [None, "", {}]},
    ]


TimeToLive = Annotated[int | None, pydantic.BeforeValidator(parse), pydantic.Field(json_schema_extra=_describe)]
