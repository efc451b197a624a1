"""Content of a template message: the template, and the parameters that fill its placeholders."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import pydantic
from pydantic.config import JsonDict

from tidings.wire.codes import NAMESPACE_EMPTY, PARAMETER_INVALID, PARAMETER_MISSING
from webapp.api.messages.template_parameters import Parameter
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Length, Maybe

MAX_CARDS = 10

Namespace = Annotated[str, Length(64, empty=NAMESPACE_EMPTY)]
LanguageCode = Annotated[str, Length(16), pydantic.Field(examples=["en_US"])]


class Language(Body):
    """Language of the template. `policy` is always `deterministic`: no other language is used."""

    policy: Maybe[Literal["deterministic"]] = None
    code: LanguageCode


def _in_lower_case(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _digit(value: object) -> object:
    """Convert an index that is sent as a string."""
    if isinstance(value, str) and len(value) == 1 and value.isascii() and value.isdigit():
        return int(value)
    return value


Index = Annotated[
    int,
    pydantic.BeforeValidator(_digit),
    pydantic.Field(strict=True, ge=0, le=9),
    pydantic.WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "string", "pattern": "^[0-9]$"}]}
    ),
]


def _one_or_more(value: object) -> object:
    """Wrap a single parameter, which may be sent without a list."""
    return [value] if isinstance(value, dict) else value


def _or_one(schema: JsonDict) -> None:
    choices = schema["anyOf"]
    assert isinstance(choices, list)
    several = choices[0]
    assert isinstance(several, dict)
    one = several["items"]
    assert isinstance(one, dict)
    choices.insert(1, {**one, "type": "object"})


_BUTTON_SAYS_WHICH: JsonDict = {
    "anyOf": [
        {"properties": {"type": {"not": {"const": "button"}}}},
        {"required": ["sub_type"], "properties": {"sub_type": {"not": {"enum": [None, ""]}}}},
    ]
}


class Part(Body):
    """Parameters of one part of a template. A button also names which button it is.

    `index` may be absent when the template has one button of this `sub_type`.
    """

    sub_type: Maybe[
        Annotated[
            Literal["quick_reply", "url", "copy_code", "catalog", "flow"], pydantic.BeforeValidator(_in_lower_case)
        ]
    ] = None
    index: Index | None = None
    parameters: Annotated[
        list[Parameter] | None,
        pydantic.BeforeValidator(_one_or_more),
        pydantic.Field(json_schema_extra=_or_one),
    ] = None


def _require_sub_type(kind: str, part: Part) -> None:
    if kind == "button" and part.sub_type is None:
        raise refusal(PARAMETER_MISSING, "sub_type is missing, which type button needs")


class CardComponent(Part):
    """Parameters of one part of a card."""

    model_config = pydantic.ConfigDict(json_schema_extra=_BUTTON_SAYS_WHICH)

    type: Annotated[Literal["header", "body", "button"], pydantic.BeforeValidator(_in_lower_case)]

    @pydantic.model_validator(mode="after")
    def _has_sub_type(self) -> CardComponent:
        _require_sub_type(self.type, self)
        return self


def _key(part: CardComponent | Component) -> tuple[object, ...]:
    if part.type != "button":
        return (part.type,)
    return (part.type, part.sub_type) if part.index is None else (part.type, part.index)


def _are_one_of_each(parts: list[AnyPart]) -> list[AnyPart]:
    if len({_key(part) for part in parts}) < len(parts):
        raise refusal(PARAMETER_INVALID, "names the same component twice")
    return parts


class Card(Body):
    """A card of a carousel. Without `card_index` its position in the list counts."""

    card_index: Index | None = None
    components: Annotated[list[CardComponent], pydantic.AfterValidator(_are_one_of_each)] | None = None


class Component(Part):
    """Parameters of one part of the template, or its cards."""

    model_config = pydantic.ConfigDict(json_schema_extra=_BUTTON_SAYS_WHICH)

    type: Annotated[
        Literal["header", "body", "button", "carousel", "limited_time_offer"], pydantic.BeforeValidator(_in_lower_case)
    ]
    cards: Annotated[list[Card], pydantic.Field(max_length=MAX_CARDS)] | None = None

    @pydantic.model_validator(mode="after")
    def _has_sub_type(self) -> Component:
        _require_sub_type(self.type, self)
        return self


AnyPart = TypeVar("AnyPart", CardComponent, Component)


class Template(Body):
    """A template. `namespace` may be absent. When it is present it must be the template's."""

    namespace: Namespace | None = None
    name: Annotated[str, Length(512), pydantic.Field(examples=["order_confirmation"])]
    language: Language
    components: Annotated[list[Component], pydantic.AfterValidator(_are_one_of_each)] | None = None
