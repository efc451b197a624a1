"""Definitions of a template's components: header, body, footer, buttons, cards and limited-time offer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pydantic
from pydantic.json_schema import SkipJsonSchema

from tidings.wire.codes import PARAMETER_INVALID, PARAMETER_MISSING
from webapp.api.templates import placeholders
from webapp.api.templates.buttons import MAX_CARD_BUTTONS, OTP, UPPER, Button, ButtonsComponent
from webapp.http.bodies import TAG, Body, refusal, tag_of, type_of
from webapp.http.constraints import Integer, Length

MAX_HEADER, MAX_BODY, MAX_FOOTER = 60, 1024, 60
MAX_CARD_BODY, MAX_OFFER_BODY, MAX_OFFER, MAX_CARDS = 160, 600, 16, 10
AUTHENTICATION = "AUTHENTICATION"


class HeaderComponent(Body):
    """A header: of format TEXT with at most one placeholder, or a file or a location, which each message supplies."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["text"], "properties": {"text": {"type": "string"}}},
                {
                    "required": ["format"],
                    "properties": {"format": {"enum": ["IMAGE", "VIDEO", "DOCUMENT", "LOCATION"]}},
                },
            ]
        }
    )

    type: Annotated[Literal["HEADER"], UPPER]
    format: Annotated[Literal["TEXT", "IMAGE", "VIDEO", "DOCUMENT", "LOCATION"], UPPER] = "TEXT"
    text: Annotated[str, Length(MAX_HEADER), pydantic.AfterValidator(placeholders.has_one_placeholder)] | None = None
    example: dict[str, Any] | None = None

    @pydantic.model_validator(mode="after")
    def _has_text(self) -> HeaderComponent:
        if self.format == "TEXT" and self.text is None:
            raise refusal(PARAMETER_MISSING, "text is missing, which format TEXT needs")
        return self


class BodyComponent(Body):
    """A body. Without `text` the standard text of a one-time password is used."""

    type: Annotated[Literal["BODY"], UPPER]
    text: Annotated[str, Length(MAX_BODY), pydantic.AfterValidator(placeholders.has_valid_placeholders)] | None = None
    add_security_recommendation: bool | None = None
    example: dict[str, Any] | None = None


class FooterComponent(Body):
    """A footer: a text, or the minutes after which a one-time password expires."""

    model_config = pydantic.ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
                for name in ("text", "code_expiration_minutes")
            ]
        }
    )

    type: Annotated[Literal["FOOTER"], UPPER]
    text: Annotated[str, Length(MAX_FOOTER), pydantic.AfterValidator(placeholders.has_no_placeholder)] | None = None
    code_expiration_minutes: Annotated[Integer, pydantic.Field(ge=1, le=90)] | None = None

    @pydantic.model_validator(mode="after")
    def _has_content(self) -> FooterComponent:
        if self.text is None and self.code_expiration_minutes is None:
            raise refusal(PARAMETER_MISSING, "text is missing")
        return self


class Offer(Body):
    """An offer. With `has_expiration` each message sets its end."""

    text: Annotated[str, Length(MAX_OFFER), pydantic.AfterValidator(placeholders.has_no_placeholder)]
    has_expiration: bool = False


class OfferComponent(Body):
    type: Annotated[Literal["LIMITED_TIME_OFFER"], UPPER]
    limited_time_offer: Offer


class CardHeader(Body):
    type: Annotated[Literal["HEADER"], UPPER]
    format: Annotated[Literal["IMAGE", "VIDEO"], UPPER]


class CardBody(Body):
    type: Annotated[Literal["BODY"], UPPER]
    text: Annotated[str, Length(MAX_CARD_BODY), pydantic.AfterValidator(placeholders.has_valid_placeholders)]


def _fits_a_card(button: Button) -> Button:
    if button.type not in ("QUICK_REPLY", "URL", "PHONE_NUMBER"):
        raise refusal(PARAMETER_INVALID, "should be of type QUICK_REPLY, URL or PHONE_NUMBER on a card")
    return button


CardButton = Annotated[
    Button,
    pydantic.AfterValidator(_fits_a_card),
    pydantic.Field(json_schema_extra={"properties": {"type": {"enum": ["QUICK_REPLY", "URL", "PHONE_NUMBER"]}}}),
]


class CardButtons(Body):
    type: Annotated[Literal["BUTTONS"], UPPER]
    buttons: Annotated[list[CardButton], pydantic.Field(min_length=1, max_length=MAX_CARD_BUTTONS)]


CardType = Literal["HEADER", "BODY", "BUTTONS"]


class UnknownCardComponent(Body):
    """Model for a missing or unknown type. Its validation always fails, with an error that names the known types."""

    type: CardType


_CARD_TYPES = frozenset(CardType.__args__)  # type: ignore[attr-defined]

CardComponent = Annotated[
    Annotated[CardHeader, pydantic.Tag(f"{TAG}HEADER")]
    | Annotated[CardBody, pydantic.Tag(f"{TAG}BODY")]
    | Annotated[CardButtons, pydantic.Tag(f"{TAG}BUTTONS")]
    | Annotated[SkipJsonSchema[UnknownCardComponent], pydantic.Tag(f"{TAG}none")],
    pydantic.Discriminator(lambda value: tag_of(type_of(value).upper(), _CARD_TYPES)),
]


def _is_a_card(parts: list[CardComponent]) -> list[CardComponent]:
    kinds = [part.type for part in parts]
    if kinds.count("HEADER") != 1:
        raise refusal(PARAMETER_MISSING, "should have one HEADER, an image or a video")
    if len(set(kinds)) < len(kinds):
        raise refusal(PARAMETER_INVALID, "has two components of one type")
    return parts


class Card(Body):
    """A card: an image or a video, with text and buttons."""

    components: Annotated[
        list[CardComponent],
        pydantic.AfterValidator(_is_a_card),
        pydantic.Field(
            json_schema_extra={
                "maxItems": 3,
                "contains": {"type": "object", "required": ["type"], "properties": {"type": {"const": "HEADER"}}},
            }
        ),
    ]

    def shape(self) -> object:
        """Return the properties that all cards of a carousel must have in common."""
        shape: dict[str, object] = {}
        for part in self.components:
            if isinstance(part, CardHeader):
                shape["header"] = part.format
            elif isinstance(part, CardButtons):
                shape["buttons"] = [button.type for button in part.buttons]
            else:
                shape["body"] = True
        return shape


def _are_alike(cards: list[Card]) -> list[Card]:
    if any(card.shape() != cards[0].shape() for card in cards):
        raise refusal(PARAMETER_INVALID, "should have the same components, format and types of buttons on each card")
    return cards


class CarouselComponent(Body):
    type: Annotated[Literal["CAROUSEL"], UPPER]
    cards: Annotated[
        list[Card], pydantic.AfterValidator(_are_alike), pydantic.Field(min_length=1, max_length=MAX_CARDS)
    ]


ComponentType = Literal["HEADER", "BODY", "FOOTER", "BUTTONS", "CAROUSEL", "LIMITED_TIME_OFFER"]
_TYPES = frozenset(ComponentType.__args__)  # type: ignore[attr-defined]


class UnknownType(Body):
    """Model for a missing or unknown type. Its validation always fails, with an error that names the known types."""

    type: ComponentType


Component = Annotated[
    Annotated[HeaderComponent, pydantic.Tag(f"{TAG}HEADER")]
    | Annotated[BodyComponent, pydantic.Tag(f"{TAG}BODY")]
    | Annotated[FooterComponent, pydantic.Tag(f"{TAG}FOOTER")]
    | Annotated[ButtonsComponent, pydantic.Tag(f"{TAG}BUTTONS")]
    | Annotated[CarouselComponent, pydantic.Tag(f"{TAG}CAROUSEL")]
    | Annotated[OfferComponent, pydantic.Tag(f"{TAG}LIMITED_TIME_OFFER")]
    | Annotated[SkipJsonSchema[UnknownType], pydantic.Tag(f"{TAG}none")],
    pydantic.Discriminator(lambda value: tag_of(type_of(value).upper(), _TYPES)),
]


def check(components: Sequence[Any], category: str | None, parameter_format: str | None) -> None:
    """Check the rules between components, and between them and the template. Raises the errors of a validator.

    category: `None` when it is invalid itself
    parameter_format: `None` when it is invalid itself
    """
    parts = {component.type: component for component in components}
    if [component.type for component in components].count("BODY") != 1:
        raise refusal(PARAMETER_MISSING, "should have one BODY")
    if len(parts) < len(components):
        raise refusal(PARAMETER_INVALID, "has two components of one type")
    if category is not None:
        _check_category(parts, category)
    if "CAROUSEL" in parts and len(parts) > 2:
        raise refusal(PARAMETER_INVALID, "should have nothing but a BODY beside a CAROUSEL")
    if "LIMITED_TIME_OFFER" in parts:
        _check_offer(parts)
    if parameter_format is not None:
        _check_format(components, parameter_format)


def _check_category(parts: dict[str, Any], category: str) -> None:
    body, footer, buttons = parts["BODY"], parts.get("FOOTER"), parts.get("BUTTONS")
    if category != AUTHENTICATION:
        if body.text is None:
            raise refusal(PARAMETER_MISSING, "text is missing in BODY; only category AUTHENTICATION has one without")
        if footer is not None and footer.text is None:
            raise refusal(PARAMETER_MISSING, "text is missing in FOOTER; only category AUTHENTICATION has one without")
        if buttons is not None and any(button.type == OTP for button in buttons.buttons):
            raise refusal(PARAMETER_INVALID, "has a button of type OTP, which needs category AUTHENTICATION")
    elif body.text is None and (buttons is None or [button.type for button in buttons.buttons] != [OTP]):
        raise refusal(PARAMETER_MISSING, "should have one button, of type OTP, with a BODY without text")


def _check_offer(parts: dict[str, Any]) -> None:
    header = parts.get("HEADER")
    if "FOOTER" in parts:
        raise refusal(PARAMETER_INVALID, "should have no FOOTER beside a LIMITED_TIME_OFFER")
    if header is not None and header.format not in ("IMAGE", "VIDEO"):
        raise refusal(PARAMETER_INVALID, "should have a HEADER of format IMAGE or VIDEO beside a LIMITED_TIME_OFFER")
    text = parts["BODY"].text
    if text is not None and len(text) > MAX_OFFER_BODY:
        raise refusal(
            PARAMETER_INVALID,
            "should have a BODY of at most {limit} characters beside a LIMITED_TIME_OFFER",
            limit=MAX_OFFER_BODY,
        )


def _check_format(components: Sequence[Any], parameter_format: str) -> None:
    """Check that placeholders of texts have the template's format. The one at the end of a URL has none."""
    for component in components:
        texts = [component]
        if isinstance(component, CarouselComponent):
            texts = [part for card in component.cards for part in card.components]
        for part in texts:
            for name in placeholders.find_placeholders(getattr(part, "text", None) or ""):
                if name.isdigit() != (parameter_format == "POSITIONAL"):
                    raise refusal(
                        PARAMETER_INVALID,
                        "has the variable {name} in {type}, which parameter_format {format} does not allow",
                        name=f"{{{{{name}}}}}",
                        type=part.type,
                        format=parameter_format,
                    )
