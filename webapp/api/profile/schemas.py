"""Request bodies and responses of the profile endpoints."""

from __future__ import annotations

from typing import Annotated

import pydantic

from webapp.http.bodies import Body
from webapp.http.constraints import WEB_ADDRESS, Matches
from webapp.http.openapi.document import Meta

MAX_ABOUT = 139  # characters
MAX_PHOTO = 5 * 1024 * 1024  # bytes


Website = Annotated[
    str,
    pydantic.Field(max_length=256, examples=["https://example.com"]),
    Matches(f"^{WEB_ADDRESS}$", "should begin with http:// or https://"),
]


class About(Body):
    """The text that is shown below the business's name."""

    text: Annotated[str, pydantic.Field(max_length=MAX_ABOUT, examples=["We are here from 9 to 5"])]


class BusinessProfile(Body):
    """A business profile. It replaces the whole previous profile, so absent fields become empty."""

    address: Annotated[str, pydantic.Field(max_length=256)] | None = None
    description: Annotated[str, pydantic.Field(max_length=256)] | None = None
    email: Annotated[str, pydantic.Field(max_length=128, examples=["desk@example.com"])] | None = None
    vertical: Annotated[str, pydantic.Field(max_length=128, examples=["Other"])] | None = None
    websites: Annotated[list[Website], pydantic.Field(max_length=2)] | None = None


class AboutText(pydantic.BaseModel):
    """The about text. It is empty when none was set."""

    text: str = pydantic.Field(examples=["We are here from 9 to 5"])


class AboutProfile(pydantic.BaseModel):
    """Section of the response, nested as in the On-Premises API."""

    about: AboutText


class AboutSettings(pydantic.BaseModel):
    """Section of the response, nested as in the On-Premises API."""

    profile: AboutProfile


class AboutResponse(pydantic.BaseModel):
    """Response with the about text."""

    settings: AboutSettings
    meta: Meta


class PhotoLink(pydantic.BaseModel):
    """URL of the photo. Downloading it requires a token, too."""

    link: str = pydantic.Field(examples=["http://127.0.0.1:9090/v1/settings/profile/photo"])


class PhotoProfile(pydantic.BaseModel):
    """Section of the response, nested as in the On-Premises API."""

    photo: PhotoLink


class PhotoSettings(pydantic.BaseModel):
    """Section of the response, nested as in the On-Premises API."""

    profile: PhotoProfile


class PhotoResponse(pydantic.BaseModel):
    """Response to a request with `?format=link`."""

    settings: PhotoSettings
    meta: Meta


class BusinessFields(pydantic.BaseModel):
    """The business profile. Values that were not set are empty."""

    address: str = pydantic.Field(examples=["1 Main Street"])
    description: str = pydantic.Field(examples=["Parcels"])
    email: str = pydantic.Field(examples=["desk@example.com"])
    vertical: str = pydantic.Field(examples=["Other"])
    websites: list[str] = pydantic.Field(examples=[["https://example.com"]])


class BusinessSection(pydantic.BaseModel):
    """Section of the response, nested as in the On-Premises API."""

    profile: BusinessFields


class BusinessSettings(pydantic.BaseModel):
    """Section of the response, nested as in the On-Premises API."""

    business: BusinessSection


class BusinessResponse(pydantic.BaseModel):
    """Response with the business profile."""

    settings: BusinessSettings
    meta: Meta
