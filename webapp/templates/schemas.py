"""What `/v1/configs/templates` takes and answers: the definition of a template."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pydantic
from pydantic.json_schema import SkipJsonSchema

from tidings.storage import templates
from webapp.bodies import TAG, Body, refusal
from webapp.errors import PARAMETER_INVALID, PARAMETER_MISSING
from webapp.exact import WEB_ADDRESS, Matches, needs
from webapp.messages.fields import MAX_URL, Length
from webapp.openapi import Meta

MAX_HEADER, MAX_BODY, MAX_FOOTER, MAX_BUTTONS = 60, 1024, 60, 10

_GAP = re.compile(r"\{\{([^{}]*)\}\}")
_NAMESPACES = uuid.UUID("5c2d4f5e-9f0b-4c58-9d0c-2f1d1c8a7b10")

Status = Literal["APPROVED", "PENDING", "REJECTED", "PAUSED", "DISABLED"]
Category = Literal["MARKETING", "UTILITY", "AUTHENTICATION"]


def default_namespace(account: str) -> str:
    """The namespace of an account's templates, always the same."""
    return str(uuid.uuid5(_NAMESPACES, account)).replace("-", "_")


def gaps(text: str) -> int:
    """How many parameters a text takes: its gaps are `{{1}}` … `{{n}}`. Raises what a validator raises."""
    numbers = set()
    for name in _GAP.findall(text):
        if not (name.isascii() and name.isdigit() and 1 <= len(name) <= 2):
            raise refusal(
                PARAMETER_INVALID,
                "has the gap {gap}; gaps are {first}, {second} …",
                gap=f"{{{{{name[:50]}}}}}",
                first="{{1}}",
                second="{{2}}",
            )
        numbers.add(int(name))
    if numbers != set(range(1, len(numbers) + 1)):
        raise refusal(PARAMETER_INVALID, "should number its gaps from 1 without leaving one out")
    return len(numbers)


def _has_good_gaps(text: str) -> str:
    gaps(text)
    return text


def _has_one_gap(text: str) -> str:
    if gaps(text) > 1:
        raise refusal(PARAMETER_INVALID, "has more than one gap")
    return text


def _has_no_gap(text: str) -> str:
    if gaps(text):
        raise refusal(PARAMETER_INVALID, "should have no gaps")
    return text


def _ends_with_its_gap(url: str) -> str:
    _has_one_gap(url)
    if "{{" in url and not url.endswith("{{1}}"):
        raise refusal(PARAMETER_INVALID, "should have its gap at the end")
    return url


def _in_upper_case(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


UPPER = pydantic.BeforeValidator(_in_upper_case)
ButtonText = Annotated[str, Length(25), pydantic.AfterValidator(_has_no_gap)]


class HeaderComponent(Body):
    """Of format TEXT with one gap at most, or a file that each message brings along."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["text"], "properties": {"text": {"type": "string"}}},
                {"required": ["format"], "properties": {"format": {"enum": ["IMAGE", "VIDEO", "DOCUMENT"]}}},
            ]
        }
    )

    type: Annotated[Literal["HEADER"], UPPER]
    format: Annotated[Literal["TEXT", "IMAGE", "VIDEO", "DOCUMENT"], UPPER] = "TEXT"
    text: Annotated[str, Length(MAX_HEADER), pydantic.AfterValidator(_has_one_gap)] | None = None

    @pydantic.model_validator(mode="after")
    def _has_text(self) -> HeaderComponent:
        if self.format == "TEXT" and self.text is None:
            raise refusal(PARAMETER_MISSING, "text is missing, which format TEXT needs")
        return self


class BodyComponent(Body):
    type: Annotated[Literal["BODY"], UPPER]
    text: Annotated[str, Length(MAX_BODY), pydantic.AfterValidator(_has_good_gaps)]


class FooterComponent(Body):
    type: Annotated[Literal["FOOTER"], UPPER]
    text: Annotated[str, Length(MAX_FOOTER), pydantic.AfterValidator(_has_no_gap)]


class Button(Body):
    """`url` may end with one gap; the code to copy comes with each message."""

    model_config = pydantic.ConfigDict(
        json_schema_extra=needs(
            "type",
            {
                "QUICK_REPLY": ["text"],
                "URL": ["text", "url"],
                "PHONE_NUMBER": ["text", "phone_number"],
                "COPY_CODE": [],
                "CATALOG": ["text"],
            },
        )
    )

    type: Annotated[Literal["QUICK_REPLY", "URL", "PHONE_NUMBER", "COPY_CODE", "CATALOG"], UPPER]
    text: ButtonText | None = None
    url: (
        Annotated[
            str,
            Length(MAX_URL),
            Matches(f"^{WEB_ADDRESS}$", "should begin with http:// or https:// and have no blanks"),
            pydantic.AfterValidator(_ends_with_its_gap),
        ]
        | None
    ) = None
    phone_number: Annotated[str, pydantic.Field(pattern=r"^\+?[0-9]{5,20}$")] | None = None

    @pydantic.model_validator(mode="after")
    def _has_what_its_type_needs(self) -> Button:
        needed = {"URL": ("text", "url"), "PHONE_NUMBER": ("text", "phone_number"), "COPY_CODE": ()}
        for name in needed.get(self.type, ("text",)):
            if getattr(self, name) is None:
                raise refusal(
                    PARAMETER_MISSING, "{name} is missing, which type {type} needs", name=name, type=self.type
                )
        return self


class ButtonsComponent(Body):
    type: Annotated[Literal["BUTTONS"], UPPER]
    buttons: Annotated[list[Button], pydantic.Field(min_length=1, max_length=MAX_BUTTONS)]


ComponentType = Literal["HEADER", "BODY", "FOOTER", "BUTTONS"]
_TYPES = frozenset(ComponentType.__args__)  # type: ignore[attr-defined]


class OfNoKnownType(Body):
    """Says what is wrong with a type that is missing or none of ours; nothing passes it."""

    type: ComponentType


def _tag(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    known = isinstance(kind, str) and kind.upper() in _TYPES
    return f"{TAG}{kind.upper()}" if known and isinstance(kind, str) else f"{TAG}none"


Component = Annotated[
    Annotated[HeaderComponent, pydantic.Tag(f"{TAG}HEADER")]
    | Annotated[BodyComponent, pydantic.Tag(f"{TAG}BODY")]
    | Annotated[FooterComponent, pydantic.Tag(f"{TAG}FOOTER")]
    | Annotated[ButtonsComponent, pydantic.Tag(f"{TAG}BUTTONS")]
    | Annotated[SkipJsonSchema[OfNoKnownType], pydantic.Tag(f"{TAG}none")],
    pydantic.Discriminator(_tag),
]


def _is_complete(components: Sequence[Any]) -> Sequence[Any]:
    kinds = [component.type for component in components]
    if kinds.count("BODY") != 1:
        raise refusal(PARAMETER_MISSING, "should have one BODY")
    if len(set(kinds)) < len(kinds):
        raise refusal(PARAMETER_INVALID, "has two components of one type")
    return components


class Definition(Body):
    """A template in one language. Without a namespace it gets that of the account."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "order_confirmation",
                    "language": "en_US",
                    "category": "UTILITY",
                    "components": [
                        {"type": "BODY", "text": "Hello {{1}}, your order comes on {{2}}."},
                        {"type": "BUTTONS", "buttons": [{"type": "QUICK_REPLY", "text": "Thanks"}]},
                    ],
                }
            ]
        }
    )

    name: Annotated[str, pydantic.Field(pattern="^[a-z0-9_]{1,512}$", examples=["order_confirmation"])]
    language: Annotated[str, pydantic.Field(pattern="^[a-z]{2,3}(_[A-Za-z]{2,4})?$", examples=["en_US"])]
    namespace: Annotated[str, pydantic.Field(pattern="^[A-Za-z0-9_-]{1,64}$")] | None = None
    category: Annotated[Category, UPPER] = "UTILITY"
    status: Annotated[Status, UPPER] = "APPROVED"
    components: Annotated[
        list[Component],
        pydantic.AfterValidator(_is_complete),
        pydantic.Field(
            json_schema_extra={
                "maxItems": 4,
                "contains": {"type": "object", "required": ["type"], "properties": {"type": {"const": "BODY"}}},
            }
        ),
    ]

    def row(self, account: str, now: int) -> templates.Template:
        """As it is stored. now: Unix milliseconds."""
        document = self.model_dump(exclude_none=True)
        return templates.Template(
            account=account,
            name=self.name,
            language=self.language,
            namespace=self.namespace or default_namespace(account),
            category=self.category,
            status=self.status,
            components=document["components"],
            created_at=now,
        )


def describe(template: templates.Template) -> dict[str, Any]:
    """A stored template as the API shows it."""
    return {
        "name": template.name,
        "language": template.language,
        "namespace": template.namespace,
        "category": template.category,
        "status": template.status,
        "components": template.components,
    }


class Described(pydantic.BaseModel):
    """One template as it is stored."""

    name: str = pydantic.Field(examples=["order_confirmation"])
    language: str = pydantic.Field(examples=["en_US"])
    namespace: str = pydantic.Field(examples=["0d0e1a6a_38bb_4a7b_9d59_37ba5eee6a5e"])
    category: str = pydantic.Field(examples=["UTILITY"])
    status: str = pydantic.Field(examples=["APPROVED"])
    components: list[dict[str, Any]]


class TemplatesAnswer(pydantic.BaseModel):
    """By name and language."""

    templates: list[Described]
    meta: Meta
