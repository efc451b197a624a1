"""Fields that several message types share: bounded strings, links and media objects."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import pydantic
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from tidings.wire.codes import (
    CHARACTER_POLICY,
    MESSAGE_TOO_LONG,
    PARAMETER_INVALID,
    PARAMETER_MISSING,
    PARAMETER_NOT_REQUIRED,
)
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import MAX_URL, Length, Maybe

MAX_CAPTION = 1024


def _is_id(text: str) -> str:
    if text != text.strip() or not text.isprintable():
        raise refusal(CHARACTER_POLICY, "should have no blanks around it and no control characters")
    return text


def _is_link(link: str) -> str:
    try:
        parts = urlsplit(link)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable or any(character.isspace() or not character.isprintable() for character in link):
        raise refusal(PARAMETER_INVALID, "should be an absolute URL that begins with http:// or https://")
    return link


PLAIN = pydantic.AfterValidator(_is_id)  # validator of ids that the webhook returns

Link = Annotated[
    str,
    Length(MAX_URL),
    pydantic.AfterValidator(_is_link),
    pydantic.Field(
        json_schema_extra={"format": "uri", "pattern": "^https?://"}, examples=["https://example.com/a.png"]
    ),
]
Caption = Maybe[Annotated[str, Length(MAX_CAPTION, over=MESSAGE_TOO_LONG)]]


_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?", re.ASCII)


@dataclasses.dataclass(frozen=True, slots=True)
class Degrees:
    """Number, or string that contains one, from -`most` to `most` degrees."""

    most: Literal[90, 180]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        number = {"type": "number", "minimum": -self.most, "maximum": self.most}
        below = "[0-8]?[0-9]" if self.most == 90 else "[0-9]{1,2}|1[0-7][0-9]"
        text = rf"^-?(({below})(\.[0-9]{{1,20}})?|{self.most}(\.0{{1,20}})?)$"
        return {"anyOf": [number, {"type": "string", "pattern": text}]}

    def check(self, value: object) -> float:
        number = math.nan
        # `float` accepts more: digits of other scripts, underscores and white space.
        is_text = isinstance(value, str) and len(value) <= 40 and _NUMBER.fullmatch(value) is not None
        if is_text or (isinstance(value, int | float) and not isinstance(value, bool)):
            try:
                number = float(value)  # type: ignore[arg-type]
            except (ValueError, OverflowError):
                number = math.nan
        if not -self.most <= number <= self.most:
            raise refusal(PARAMETER_INVALID, "should be a number from -{most} to {most}", most=self.most)
        return number


_EMPTY: JsonDict = {"enum": [None, ""]}
_NOT_EMPTY: JsonDict = {"not": _EMPTY}


def with_empty_field(name: str) -> JsonDict:
    """Return a schema for an object whose field `name` is an empty string."""
    return {"type": "object", "required": [name], "properties": {name: {"const": ""}}}


def absent_without(name: str) -> tuple[pydantic.BeforeValidator, Any]:
    """Return annotations for an optional object that counts as absent while its string `name` is empty."""

    def check(value: object) -> object:
        return None if isinstance(value, dict) and value.get(name) == "" else value

    def describe(schema: JsonDict) -> None:
        choices = schema["anyOf"]
        assert isinstance(choices, list)
        choices.append(with_empty_field(name))

    return pydantic.BeforeValidator(check), pydantic.Field(json_schema_extra=describe)


# A media object has either `id` or `link`.
SOURCES: JsonDict = {
    "anyOf": [
        {
            "required": ["id"],
            "properties": {
                "id": _NOT_EMPTY,
                "link": _EMPTY,
                "provider": {"anyOf": [{"type": "null"}, with_empty_field("name")]},
            },
        },
        {"required": ["link"], "properties": {"id": _EMPTY, "link": _NOT_EMPTY}},
    ]
}


MediaId = Annotated[str, Length(64), PLAIN, pydantic.Field(examples=["0d0e1a6a-38bb-4a7b-9d59-37ba5eee6a5e"])]


class Provider(Body):
    """Name of the media provider with whose credentials the link is fetched."""

    name: Annotated[str, Length(255)]


class Media(Body):
    """A file, by the `id` of an uploaded one or by a `link`."""

    model_config = pydantic.ConfigDict(json_schema_extra=SOURCES)

    id: Maybe[MediaId] = None
    link: Maybe[Link] = None
    provider: Annotated[Provider | None, *absent_without("name")] = None

    @pydantic.model_validator(mode="after")
    def _has_one_source(self) -> Media:
        if self.id is None and self.link is None:
            raise refusal(PARAMETER_MISSING, "id or link is missing")
        if self.id is not None and self.link is not None:
            raise refusal(PARAMETER_NOT_REQUIRED, "link is not required beside id")
        if self.provider is not None and self.link is None:
            raise refusal(PARAMETER_NOT_REQUIRED, "provider is not required without link")
        return self


def _refuse(value: object) -> None:
    if value is not None and value != "":
        raise refusal(PARAMETER_NOT_REQUIRED, "is not required here")


def _describe_empty(schema: JsonDict) -> None:
    del schema["type"]
    schema.update(_EMPTY)


Refused = Annotated[None, pydantic.BeforeValidator(_refuse), pydantic.Field(json_schema_extra=_describe_empty)]


def _refuse_unsupported(value: object) -> None:
    if value not in (None, "", {}):
        raise refusal(PARAMETER_NOT_REQUIRED, "is not supported")


def _describe_unsupported(schema: JsonDict) -> None:
    schema.pop("type", None)
    schema["enum"] = [None, "", {}]


# A known field that has no effect here. Requests that set it are refused.
Unsupported = Annotated[
    None, pydantic.BeforeValidator(_refuse_unsupported), pydantic.Field(json_schema_extra=_describe_unsupported)
]


class Sound(Media):
    """A file without caption and file name."""

    caption: Refused = None
    filename: Refused = None


class Picture(Media):
    """A file with a caption."""

    caption: Caption = None
    filename: Refused = None


class Document(Media):
    """A file with a caption and a file name."""

    caption: Caption = None
    filename: Maybe[Annotated[str, Length(255)]] = None
