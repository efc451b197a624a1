"""Interactive messages that only the Cloud API has: a link, a request for contact details, and a carousel.

Lists and forms have higher limits there than in v1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import pydantic

from tidings.wire.codes import FLOW_ID, PARAMETER_INVALID, PARAMETER_MISSING
from webapp.api.messages.fields import PLAIN, Link, Picture
from webapp.api.messages.interactive.flows import FlowAction, FlowMessage, FlowParameters, LocationRequestMessage
from webapp.api.messages.interactive.parts import BodyText, Footer, Header
from webapp.api.messages.interactive.products import CatalogMessage, ProductListMessage, ProductMessage
from webapp.api.messages.interactive.union import ButtonMessage, ListMessage
from webapp.http.bodies import TAG, Body, refusal, tag_of, type_of
from webapp.http.constraints import Integer, Length, Maybe

MAX_LIST_BODY = 4096
MIN_CARDS, MAX_CARDS = 2, 10
UNUSED_TOKEN = "unused"  # flow token of a form that is opened without one # noqa: S105


class LongBodyText(BodyText):
    text: Annotated[str, Length(MAX_LIST_BODY)]


class LongListMessage(ListMessage):
    body: LongBodyText


class LinkParameters(Body):
    display_text: Annotated[str, Length(20)]
    url: Link


class LinkAction(Body):
    name: Literal["cta_url"]
    parameters: LinkParameters


class LinkMessage(Body):
    """A message with one button that opens a URL."""

    type: Literal["cta_url"]
    header: Header | None = None
    body: BodyText
    footer: Footer = None
    action: LinkAction


class ContactRequestAction(Body):
    name: Literal["request_contact_info"]


class ContactRequestMessage(Body):
    """A message whose button shares the recipient's contact details."""

    type: Literal["request_contact_info"]
    body: BodyText
    footer: Footer = None
    action: ContactRequestAction


class NamedFlowParameters(FlowParameters):
    """Parameters of a form: it is named by its id or by its name, and may have no token."""

    flow_token: Maybe[Annotated[str, Length(1024)]] = UNUSED_TOKEN  # type: ignore[assignment]
    flow_id: Maybe[Annotated[str, Length(64, over=FLOW_ID, empty=FLOW_ID)]] = None  # type: ignore[assignment]
    flow_name: Maybe[Annotated[str, Length(200)]] = None
    flow_cta: Annotated[str, Length(30)]

    @pydantic.model_validator(mode="after")
    def _names_its_form(self) -> NamedFlowParameters:
        if (self.flow_id is None) == (self.flow_name is None):
            raise refusal(FLOW_ID, "should have either flow_id or flow_name")
        return self


class NamedFlowAction(FlowAction):
    parameters: NamedFlowParameters


class NamedFlowMessage(FlowMessage):
    action: NamedFlowAction


class CardHeader(Body):
    """Picture or film of a card."""

    type: Literal["image", "video"]
    image: Picture | None = None
    video: Picture | None = None

    @pydantic.model_validator(mode="after")
    def _has_its_content(self) -> CardHeader:
        if getattr(self, self.type) is None:
            raise refusal(PARAMETER_MISSING, "{kind} is missing, which type {kind} needs", kind=self.type)
        return self


class ProductCardAction(Body):
    catalog_id: Annotated[str, Length(100), PLAIN]
    product_retailer_id: Annotated[str, Length(100), PLAIN]


class CarouselCard(Body):
    """A card with a link or a product."""

    card_index: Annotated[Integer, pydantic.Field(ge=0, lt=MAX_CARDS)]
    type: Literal["cta_url", "product"]
    header: CardHeader | None = None
    body: BodyText | None = None
    action: LinkAction | ProductCardAction

    @pydantic.model_validator(mode="after")
    def _fits_its_type(self) -> CarouselCard:
        if isinstance(self.action, LinkAction) != (self.type == "cta_url"):
            raise refusal(PARAMETER_INVALID, "action does not fit type {kind}", kind=self.type)
        if self.type == "cta_url" and self.header is None:
            raise refusal(PARAMETER_MISSING, "header is missing, which type cta_url needs")
        return self


def _are_a_carousel(cards: Sequence[CarouselCard]) -> Sequence[CarouselCard]:
    if not MIN_CARDS <= len(cards) <= MAX_CARDS:
        raise refusal(
            PARAMETER_INVALID,
            "has {count} entries, {least} to {most} are allowed",
            count=len(cards),
            least=MIN_CARDS,
            most=MAX_CARDS,
        )
    if sorted(card.card_index for card in cards) != list(range(len(cards))):
        raise refusal(PARAMETER_INVALID, "should number its cards from 0 by card_index")
    if len({card.type for card in cards}) > 1:
        raise refusal(PARAMETER_INVALID, "should have cards of one type")
    return cards


class CarouselAction(Body):
    cards: Annotated[list[CarouselCard], pydantic.AfterValidator(_are_a_carousel)]


class CarouselMessage(Body):
    type: Literal["carousel"]
    body: BodyText
    action: CarouselAction


Type = Literal[
    "list",
    "button",
    "product",
    "product_list",
    "catalog_message",
    "flow",
    "location_request_message",
    "cta_url",
    "request_contact_info",
    "carousel",
]
_TYPES = frozenset(Type.__args__)  # type: ignore[attr-defined]


class UnknownType(Body):
    """Model for a missing or unknown type. Its validation always fails, with an error that names the known types."""

    type: Type


CloudInteractive = Annotated[
    Annotated[LongListMessage, pydantic.Tag(f"{TAG}list")]
    | Annotated[ButtonMessage, pydantic.Tag(f"{TAG}button")]
    | Annotated[ProductMessage, pydantic.Tag(f"{TAG}product")]
    | Annotated[ProductListMessage, pydantic.Tag(f"{TAG}product_list")]
    | Annotated[CatalogMessage, pydantic.Tag(f"{TAG}catalog_message")]
    | Annotated[NamedFlowMessage, pydantic.Tag(f"{TAG}flow")]
    | Annotated[LocationRequestMessage, pydantic.Tag(f"{TAG}location_request_message")]
    | Annotated[LinkMessage, pydantic.Tag(f"{TAG}cta_url")]
    | Annotated[ContactRequestMessage, pydantic.Tag(f"{TAG}request_contact_info")]
    | Annotated[CarouselMessage, pydantic.Tag(f"{TAG}carousel")]
    | Annotated[UnknownType, pydantic.Tag(f"{TAG}none")],
    pydantic.Discriminator(lambda value: tag_of(type_of(value), _TYPES)),
]
