"""The content of a template message: which template, and what fills its gaps."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from pydantic.config import JsonDict
from pydantic.json_schema import SkipJsonSchema

from webapp.bodies import TAG, Body, refusal
from webapp.errors import NAMESPACE_EMPTY, PARAMETER_INVALID, PARAMETER_MISSING
from webapp.exact import Integer, Maybe
from webapp.messages.fields import Document, Length, Picture

Namespace = Annotated[str, Length(64, empty=NAMESPACE_EMPTY)]
LanguageCode = Annotated[str, Length(16), pydantic.Field(examples=["en_US"])]


class Language(Body):
    """`policy` is always `deterministic`: there is no falling back to another language."""

    policy: Maybe[Literal["deterministic"]] = None
    code: LanguageCode


class Currency(Body):
    """`fallback_value` is what is shown; `amount_1000` is the amount times 1,000."""

    fallback_value: Annotated[str, Length(1024)]
    code: Annotated[str, pydantic.Field(pattern="^[A-Za-z]{3}$")]
    amount_1000: Integer


class DateTime(Body):
    """`fallback_value` is what is shown; the other fields are passed on."""

    fallback_value: Annotated[str, Length(1024)]
    day_of_week: Maybe[Integer | str] = None
    day_of_month: Integer | None = None
    year: Integer | None = None
    month: Integer | None = None
    hour: Integer | None = None
    minute: Integer | None = None
    calendar: Maybe[str] = None
    timestamp: Integer | None = None


class TextParameter(Body):
    type: Literal["text"]
    text: Annotated[str, pydantic.Field(json_schema_extra={"minLength": 1}), Length(32_768, empty=PARAMETER_MISSING)]


class CurrencyParameter(Body):
    type: Literal["currency"]
    currency: Currency


class DateTimeParameter(Body):
    type: Literal["date_time"]
    date_time: DateTime


class ImageParameter(Body):
    type: Literal["image"]
    image: Picture


class VideoParameter(Body):
    type: Literal["video"]
    video: Picture


class DocumentParameter(Body):
    type: Literal["document"]
    document: Document


class PayloadParameter(Body):
    """What a quick reply sends back."""

    type: Literal["payload"]
    payload: Annotated[str, Length(1024, least=0)]


class CouponParameter(Body):
    type: Literal["coupon_code"]
    coupon_code: Annotated[str, Length(15)]


ParameterType = Literal["text", "currency", "date_time", "image", "video", "document", "payload", "coupon_code"]
_TYPES = frozenset(ParameterType.__args__)  # type: ignore[attr-defined]


class OfNoKnownType(Body):
    """Says what is wrong with a type that is missing or none of ours; nothing passes it."""

    type: ParameterType


def _tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return f"{TAG}{kind}" if isinstance(kind, str) and kind in _TYPES else f"{TAG}none"


Parameter = Annotated[
    Annotated[TextParameter, pydantic.Tag(f"{TAG}text")]
    | Annotated[CurrencyParameter, pydantic.Tag(f"{TAG}currency")]
    | Annotated[DateTimeParameter, pydantic.Tag(f"{TAG}date_time")]
    | Annotated[ImageParameter, pydantic.Tag(f"{TAG}image")]
    | Annotated[VideoParameter, pydantic.Tag(f"{TAG}video")]
    | Annotated[DocumentParameter, pydantic.Tag(f"{TAG}document")]
    | Annotated[PayloadParameter, pydantic.Tag(f"{TAG}payload")]
    | Annotated[CouponParameter, pydantic.Tag(f"{TAG}coupon_code")]
    | Annotated[SkipJsonSchema[OfNoKnownType], pydantic.Tag(f"{TAG}none")],
    pydantic.Discriminator(_tag),
]


def _in_lower_case(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _digit(value: object) -> object:
    """An index may come as a string."""
    if isinstance(value, str) and len(value) == 1 and value.isascii() and value.isdigit():
        return int(value)
    return value


_BUTTON_SAYS_WHICH: JsonDict = {
    "anyOf": [
        {"properties": {"type": {"enum": ["header", "body"]}}},
        {
            "required": ["sub_type", "index"],
            "properties": {
                "type": {"const": "button"},
                "sub_type": {"not": {"enum": [None, ""]}},
                "index": {"not": {"type": "null"}},
            },
        },
    ]
}


class Component(Body):
    """The parameters of one part of the template; a button also says which one it is."""

    model_config = pydantic.ConfigDict(json_schema_extra=_BUTTON_SAYS_WHICH)

    type: Annotated[Literal["header", "body", "button"], pydantic.BeforeValidator(_in_lower_case)]
    sub_type: Maybe[
        Annotated[Literal["quick_reply", "url", "copy_code", "catalog"], pydantic.BeforeValidator(_in_lower_case)]
    ] = None
    index: (
        Annotated[
            int,
            pydantic.BeforeValidator(_digit),
            pydantic.Field(strict=True, ge=0, le=9),
            pydantic.WithJsonSchema(
                {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 9}, {"type": "string", "pattern": "^[0-9]$"}]}
            ),
        ]
        | None
    ) = None
    parameters: list[Parameter] | None = None

    @pydantic.model_validator(mode="after")
    def _says_which_button(self) -> Component:
        if self.type == "button":
            for name in ("sub_type", "index"):
                if getattr(self, name) is None:
                    raise refusal(PARAMETER_MISSING, "{name} is missing, which type button needs", name=name)
        return self


def _is_one_of_each(components: list[Component]) -> list[Component]:
    seen = [(component.type, component.index if component.type == "button" else None) for component in components]
    if len(set(seen)) < len(seen):
        raise refusal(PARAMETER_INVALID, "names the same component twice")
    return components


class Template(Body):
    """`namespace` may be left out; when it is given it must be the template's."""

    namespace: Namespace | None = None
    name: Annotated[str, Length(512), pydantic.Field(examples=["order_confirmation"])]
    language: Language
    components: Annotated[list[Component], pydantic.AfterValidator(_is_one_of_each)] | None = None
