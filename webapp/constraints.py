"""Numbers and strings whose check and whose description in the OpenAPI document are one and the same."""

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
from webapp.bodies import refusal

# Of a JSON number that is read.
_LEAST, _MOST = -(2**63), 2**63 - 1
_GIVEN: JsonDict = {"not": {"type": "null"}}
# Of a string that counts as absent when it is empty, or may not be empty.
_SAID: JsonDict = {"not": {"enum": [None, ""]}}
_ABSENT: JsonDict = {"type": "null"}
_BLANKS = " .()\u00a0-"
_SEPARATORS = str.maketrans("", "", _BLANKS)

MAX_URL = 2048  # characters
# Excludes what Unicode calls Cc; \n at the end, too.
NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f]*$"
# Not much more than its beginning; what is behind it is for those who follow it.
WEB_ADDRESS = r"[Hh][Tt][Tt][Pp][Ss]?://[^\x00-\x20\x7f-\xa0\u2028\u2029]*"
_GAP = r"[ \t\r\n]*"
_SIGN = rf"(?:[A-Za-z0-9+/]{_GAP})"
# Also in lines, as the command `base64` writes it.
BASE64 = rf"^{_GAP}(?:{_SIGN}{{4}})*(?:{_SIGN}{{2}}={_GAP}={_GAP}|{_SIGN}{{3}}={_GAP}|{_SIGN}{{4}})$"


@dataclasses.dataclass(frozen=True, slots=True)
class Length:
    """Bounds of a string in characters. codes: `over` for one that is too long, `empty` for one that is empty."""

    most: int
    over: int = PARAMETER_INVALID
    empty: int = PARAMETER_INVALID
    least: int = 1

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
    """A string that fits `pattern` from end to end, in the syntax that Python and JSON Schema share.

    reason: what it should be, for the caller.
    """

    pattern: str
    reason: str
    code: int = PARAMETER_INVALID

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
    """A string of `low` to `high` digits, or a number that has as many; only the digits are kept.

    separated: as people write numbers down, with a + before and blanks, dots, brackets or dashes between.
    """

    low: int
    high: int
    separated: bool = False

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
    """A whole number that is not negative as its digits; everything else as it is."""
    # 12.0 is the integer 12 in JSON Schema.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    # A sign would pass for a hyphen.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else value


def either(*names: str) -> JsonDict:
    """For `json_schema_extra` of a model that takes one of these fields, and no other of them beside it."""
    choices: list[JsonValue] = []
    for name in names:
        fields: JsonDict = {other: _GIVEN if other == name else _ABSENT for other in names}
        choices.append({"required": [name], "properties": fields})
    return {"anyOf": choices}


def either_or_both(*names: str) -> JsonDict:
    """For `json_schema_extra` of a model that needs at least one of these fields."""
    choices: list[JsonValue] = [{"required": [name], "properties": {name: _SAID}} for name in names]
    return {"anyOf": choices}


def given(*names: str) -> JsonDict:
    """For `json_schema_extra` of a model that needs fields which are not required by their type."""
    return {"allOf": [{"required": [*names], "properties": dict.fromkeys(names, _SAID)}]}


def needs(field: str, of: Mapping[str, Sequence[str]]) -> JsonDict:
    """For `json_schema_extra` of a model where the value of `field` says which others are required."""
    choices: list[JsonValue] = []
    for value, names in of.items():
        fields: JsonDict = {field: {"const": value}, **dict.fromkeys(names, _SAID)}
        choices.append({"required": [field, *names], "properties": fields})
    return {"anyOf": choices}


def _empty_is_absent(value: object) -> object:
    return None if value == "" else value


def _or_empty(schema: JsonDict) -> None:
    choices = schema["anyOf"]
    assert isinstance(choices, list)
    choices.append({"const": ""})


Given = TypeVar("Given")
# An optional field whose type has more than one form; many clients send "" where they have nothing.
Maybe = Annotated[Given | None, BeforeValidator(_empty_is_absent), Field(json_schema_extra=_or_empty)]


def nullable(schema: JsonDict) -> None:
    """For `json_schema_extra` of a field that may be null where it may be absent."""
    outside = ("title", "description", "default", "examples")
    inner: JsonDict = {name: schema.pop(name) for name in list(schema) if name not in outside}
    schema["anyOf"] = [inner, {"type": "null"}]


class _Whole:
    """An integer, as a number or a string, and no truth value."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_no_truth, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        number = handler(schema)
        # Pydantic leaves bounds of what is checked by a function as they are.
        least, most = number.pop("ge", _LEAST), number.pop("le", _MOST)
        number |= {"minimum": least, "maximum": most}
        return {"anyOf": [number, {"type": "string", "pattern": _digits_within(least, most)}]}


def _digits_within(least: int, most: int) -> str:
    """A pattern of strings that are numbers in these bounds; of the largest of them, it leaves some out."""
    zeros = len(str(most)) - 2
    sign = "-?" if least <= -most else ""
    return (
        f"^{sign}[{0 if least <= 0 else 1}-9][0-9]{{0,{zeros}}}$"
        if zeros > 0
        else f"^[{max(least, 0)}-{min(most, 9)}]$"
    )


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise refusal(PARAMETER_INVALID, "should be a whole number")
    return value


Integer = Annotated[int, _Whole()]
