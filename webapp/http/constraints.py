"""Numbers and strings whose validation and OpenAPI description come from one definition."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.config import JsonDict, JsonValue
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from tidings.wire import addresses
from tidings.wire.codes import PARAMETER_INVALID
from webapp.http.bodies import refusal

# Bounds of integers in JSON that are accepted.
_LEAST, _MOST = -(2**63), 2**63 - 1
_GIVEN: JsonDict = {"not": {"type": "null"}}
# For a string that counts as absent when it is empty, or that must not be empty.
_NOT_EMPTY: JsonDict = {"not": {"enum": [None, ""]}}
_ABSENT: JsonDict = {"type": "null"}
_BLANKS = " .()\u00a0-"
_SEPARATORS = str.maketrans("", "", _BLANKS)

MAX_URL = 2048  # characters
# Excludes the characters of Unicode category Cc, including a final \n.
NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f]*$"
# Checks little more than the scheme. The code that fetches the URL checks the rest.
WEB_ADDRESS = r"[Hh][Tt][Tt][Pp][Ss]?://[^\x00-\x20\x7f-\xa0\u2028\u2029]*"
_GAP = r"[ \t\r\n]*"
_SIGN = rf"(?:[A-Za-z0-9+/]{_GAP})"
# Line breaks are allowed, as the command `base64` writes them.
BASE64 = rf"^{_GAP}(?:{_SIGN}{{4}})*(?:{_SIGN}{{2}}={_GAP}={_GAP}|{_SIGN}{{3}}={_GAP}|{_SIGN}{{4}})$"


@dataclasses.dataclass(frozen=True, slots=True)
class Length:
    """Bounds on the length of a string."""

    most: int  # characters
    over: int = PARAMETER_INVALID  # error code for a string that is too long
    empty: int = PARAMETER_INVALID  # error code for an empty string
    least: int = 1  # characters

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"minLength": self.least, "maxLength": self.most}

    def check(self, text: str) -> str:
        if len(text) > self.most:
            raise refusal(self.over, "has {length} characters, the limit is {limit}", length=len(text), limit=self.most)
        if len(text) < self.least:
            raise refusal(self.empty, "should not be empty")
        return text


@dataclasses.dataclass(frozen=True, slots=True)
class Matches:
    """String that matches `pattern` as a whole, in the syntax that Python and JSON Schema share."""

    pattern: str
    reason: str  # expectation, for error texts
    code: int = PARAMETER_INVALID  # error code

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        fits = re.compile(self.pattern).fullmatch

        def check(text: str) -> str:
            if fits(text) is None:
                raise refusal(self.code, self.reason if text else "should not be empty")
            return text

        return core_schema.no_info_after_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(schema) | {"pattern": self.pattern}


@dataclasses.dataclass(frozen=True, slots=True)
class Digits:
    """String of `low` to `high` digits, or number with as many. Only the digits are kept."""

    low: int
    high: int
    separated: bool = False  # accept a leading + and spaces, dots, brackets or hyphens between digits

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.no_info_after_validator_function(self._check, handler(source))
        return core_schema.no_info_before_validator_function(number_as_text, text)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        blanks = f"[{_BLANKS}]*" if self.separated else ""
        plus = rf"{blanks}\+?" if self.separated else ""
        text = {"pattern": f"^{plus}(?:{blanks}[0-9]){{{self.low},{self.high}}}{blanks}$"}
        number = {"type": "integer", "minimum": 10 ** (self.low - 1), "maximum": 10**self.high - 1}
        return {"anyOf": [handler(schema) | text, number]}

    def _check(self, text: str) -> str:
        digits = text.translate(_SEPARATORS).removeprefix("+") if self.separated else text
        if not addresses.is_digits(digits, self.low, self.high):
            if self.low == self.high:
                raise refusal(PARAMETER_INVALID, "should be {high} digits", high=self.high)
            raise refusal(PARAMETER_INVALID, "should be {low} to {high} digits", low=self.low, high=self.high)
        return digits


def number_as_text(value: object) -> object:
    """Convert a non-negative whole number to its digits. Other values are returned unchanged."""
    # JSON Schema treats 12.0 as the integer 12.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # A minus sign would be accepted as a separator.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else value


def either(*names: str) -> JsonDict:
    """Return `json_schema_extra` for a model that requires exactly one of these fields."""
    choices: list[JsonValue] = []
    for name in names:
        fields: JsonDict = {other: _GIVEN if other == name else _ABSENT for other in names}
        choices.append({"required": [name], "properties": fields})
    return {"anyOf": choices}


def either_or_both(*names: str) -> JsonDict:
    """Return `json_schema_extra` for a model that requires at least one of these fields."""
    choices: list[JsonValue] = [{"required": [name], "properties": {name: _NOT_EMPTY}} for name in names]
    return {"anyOf": choices}


def given(*names: str) -> JsonDict:
    """Return `json_schema_extra` for a model that requires fields whose type is optional."""
    return {"allOf": [{"required": [*names], "properties": dict.fromkeys(names, _NOT_EMPTY)}]}


def needs(field: str, of: Mapping[str, Sequence[str]]) -> JsonDict:
    """Return `json_schema_extra` for a model in which the value of `field` decides which other fields are required."""
    choices: list[JsonValue] = []
    for value, names in of.items():
        fields: JsonDict = {field: {"const": value}, **dict.fromkeys(names, _NOT_EMPTY)}
        choices.append({"required": [field, *names], "properties": fields})
    return {"anyOf": choices}


def _empty_is_absent(value: object) -> object:
    return None if value == "" else value


def _or_empty(schema: JsonDict) -> None:
    choices = schema["anyOf"]
    assert isinstance(choices, list)
    choices.append({"const": ""})


Given = TypeVar("Given")
# Optional field for which "" counts as absent, because many clients send it for no value.
Maybe = Annotated[Given | None, BeforeValidator(_empty_is_absent), Field(json_schema_extra=_or_empty)]


def nullable(schema: JsonDict) -> None:
    """Change the schema of a field with a default so that null counts as absent."""
    outside = ("title", "description", "default", "examples")
    inner: JsonDict = {name: schema.pop(name) for name in list(schema) if name not in outside}
    schema["anyOf"] = [inner, {"type": "null"}]


class _IntegerSchema:
    """Integer, as a number or a string, but not a boolean."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        number = core_schema.no_info_before_validator_function(_reject_boolean, handler(source))
        return core_schema.no_info_after_validator_function(_within_64_bits, number)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        number = handler(schema)
        # Pydantic does not convert the bounds of a type that a function validates.
        least, most = number.pop("ge", _LEAST), number.pop("le", _MOST)
        number |= {"minimum": least, "maximum": most}
        return {"anyOf": [number, {"type": "string", "pattern": _digits_within(least, most)}]}


def _digits_within(least: int, most: int) -> str:
    """Return a pattern of the numbers within these bounds. It omits some of the largest ones."""
    zeros = len(str(most)) - 2
    sign = "-?" if least <= -most else ""
    return (
        f"^{sign}[{0 if least <= 0 else 1}-9][0-9]{{0,{zeros}}}$"
        if zeros > 0
        else f"^[{max(least, 0)}-{min(most, 9)}]$"
    )


def _within_64_bits(value: int) -> int:
    if not _LEAST <= value <= _MOST:
        raise refusal(PARAMETER_INVALID, f"should be from {_LEAST} to {_MOST}")
    return value


def _reject_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise refusal(PARAMETER_INVALID, "should be a whole number")
    return value


Integer = Annotated[int, _IntegerSchema()]
