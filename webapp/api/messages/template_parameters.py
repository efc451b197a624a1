"""Parameters of a template message, which fill a placeholder, a header or a button."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from pydantic.json_schema import SkipJsonSchema

from tidings.wire.codes import PARAMETER_MISSING
from webapp.api.messages import flat_media
from webapp.api.messages.fields import Document, Picture
from webapp.api.messages.flat_media import DocumentBesideType, ImageBesideType, VideoBesideType, is_flat
from webapp.api.messages.location import Location
from webapp.http.bodies import TAG, Body, tag_of, type_of
from webapp.http.constraints import Integer, Length, Matches, Maybe


class Currency(Body):
    """An amount of money. `fallback_value` is the text that is shown. `amount_1000` is the amount times 1,000."""

    fallback_value: Annotated[str, Length(1024)]
    code: Annotated[str, Matches("^[A-Za-z]{3}$", "should be three letters, like EUR")]
    amount_1000: Integer


class DateTime(Body):
    """A point in time. `fallback_value` is the text that is shown. The other fields are passed on."""

    fallback_value: Annotated[str, Length(1024)]
    day_of_week: Maybe[Integer | str] = None
    day_of_month: Integer | None = None
    year: Integer | None = None
    month: Integer | None = None
    hour: Integer | None = None
    minute: Integer | None = None
    calendar: Maybe[str] = None
    timestamp: Integer | None = None


# Name of the placeholder to fill, in templates whose placeholders have names.
ParameterName = Maybe[Annotated[str, Length(64), pydantic.Field(examples=["first_name"])]]


class TextParameter(Body):
    type: Literal["text"]
    parameter_name: ParameterName = None
    text: Annotated[str, pydantic.Field(json_schema_extra={"minLength": 1}), Length(32_768, empty=PARAMETER_MISSING)]


class CurrencyParameter(Body):
    type: Literal["currency"]
    parameter_name: ParameterName = None
    currency: Currency


class DateTimeParameter(Body):
    type: Literal["date_time"]
    parameter_name: ParameterName = None
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


def _image(flat: ImageBesideType) -> ImageParameter:
    return ImageParameter(type="image", image=flat_media.picture(flat))


def _video(flat: VideoBesideType) -> VideoParameter:
    return VideoParameter(type="video", video=flat_media.picture(flat))


def _document(flat: DocumentBesideType) -> DocumentParameter:
    return DocumentParameter(type="document", document=flat_media.document(flat))


class LocationParameter(Body):
    type: Literal["location"]
    location: Location


class PayloadParameter(Body):
    """Payload that a quick reply returns."""

    type: Literal["payload"]
    payload: Annotated[str, Length(1024, least=0)]


class CouponParameter(Body):
    type: Literal["coupon_code"]
    coupon_code: Annotated[str, Length(15)]


class Action(Body):
    """Action of a button.

    It opens a form, with data and a token that the webhook returns, or it shows a product.
    """

    flow_token: Maybe[Annotated[str, Length(1024)]] = None
    flow_action_data: dict[str, Any] | None = None
    thumbnail_product_retailer_id: Maybe[Annotated[str, Length(100)]] = None


class ActionParameter(Body):
    type: Literal["action"]
    action: Action


class Expiration(Body):
    """Expiry of an offer. `expiration_time_ms` is in Unix milliseconds."""

    expiration_time_ms: Annotated[Integer, pydantic.Field(ge=0)]


class OfferParameter(Body):
    type: Literal["limited_time_offer"]
    limited_time_offer: Expiration


ParameterType = Literal[
    "text",
    "currency",
    "date_time",
    "image",
    "video",
    "document",
    "location",
    "payload",
    "coupon_code",
    "action",
    "limited_time_offer",
]
_TYPES = frozenset(ParameterType.__args__)  # type: ignore[attr-defined]


class UnknownType(Body):
    """Model for a missing or unknown type. Its validation always fails, with an error that names the known types."""

    type: ParameterType


def _tag(value: Any) -> str:
    tag = tag_of(type_of(value), _TYPES)
    return f"{tag} beside" if is_flat(value) else tag


Parameter = Annotated[
    Annotated[TextParameter, pydantic.Tag(f"{TAG}text")]
    | Annotated[CurrencyParameter, pydantic.Tag(f"{TAG}currency")]
    | Annotated[DateTimeParameter, pydantic.Tag(f"{TAG}date_time")]
    | Annotated[ImageParameter, pydantic.Tag(f"{TAG}image")]
    | Annotated[VideoParameter, pydantic.Tag(f"{TAG}video")]
    | Annotated[DocumentParameter, pydantic.Tag(f"{TAG}document")]
    | Annotated[Annotated[ImageBesideType, pydantic.AfterValidator(_image)], pydantic.Tag(f"{TAG}image beside")]
    | Annotated[Annotated[VideoBesideType, pydantic.AfterValidator(_video)], pydantic.Tag(f"{TAG}video beside")]
    | Annotated[
        Annotated[DocumentBesideType, pydantic.AfterValidator(_document)], pydantic.Tag(f"{TAG}document beside")
    ]
    | Annotated[LocationParameter, pydantic.Tag(f"{TAG}location")]
    | Annotated[PayloadParameter, pydantic.Tag(f"{TAG}payload")]
    | Annotated[CouponParameter, pydantic.Tag(f"{TAG}coupon_code")]
    | Annotated[ActionParameter, pydantic.Tag(f"{TAG}action")]
    | Annotated[OfferParameter, pydantic.Tag(f"{TAG}limited_time_offer")]
    | Annotated[SkipJsonSchema[UnknownType], pydantic.Tag(f"{TAG}none")],
    pydantic.Discriminator(_tag),
]
