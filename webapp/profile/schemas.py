"""Bodies and answers of the profile endpoints."""

from __future__ import annotations

from typing import Annotated

import pydantic

from webapp.bodies import Body
from webapp.constraints import WEB_ADDRESS, Matches
from webapp.openapi import Meta

MAX_ABOUT = 139  # characters
MAX_PHOTO = 5 * 1024 * 1024  # bytes


Website = Annotated[
    str,
    pydantic.Field(max_length=256, examples=["https://example.com"]),
    Matches(f"^{WEB_ADDRESS}$", "should begin with http:// or https://"),
]


class About(Body):
    """The text below the business's name."""

    text: Annotated[str, pydantic.Field(max_length=MAX_ABOUT, examples=["We are here from 9 to 5"])]


class BusinessProfile(Body):
    """Takes the place of the whole profile: what is absent is empty then."""

    address: Annotated[str, pydantic.Field(max_length=256)] | None = None
    description: Annotated[str, pydantic.Field(max_length=256)] | None = None
    email: Annotated[str, pydantic.Field(max_length=128, examples=["desk@example.com"])] | None = None
    vertical: Annotated[str, pydantic.Field(max_length=128, examples=["Other"])] | None = None
    websites: Annotated[list[Website], pydantic.Field(max_length=2)] | None = None


class AboutText(pydantic.BaseModel):
    """Empty when none was set."""

    text: str = pydantic.Field(examples=["We are here from 9 to 5"])


class AboutProfile(pydantic.BaseModel):
    """Nested as in the original."""

    about: AboutText


class AboutSettings(pydantic.BaseModel):
    """Nested as in the original."""

    profile: AboutProfile


class AboutAnswer(pydantic.BaseModel):
    """The about text."""

    settings: AboutSettings
    meta: Meta


class PhotoLink(pydantic.BaseModel):
    """Where the bytes are; that address takes a token, too."""

    link: str = pydantic.Field(examples=["http://127.0.0.1:9090/v1/settings/profile/photo"])


class PhotoProfile(pydantic.BaseModel):
    """Nested as in the original."""

    photo: PhotoLink


class PhotoSettings(pydantic.BaseModel):
    """Nested as in the original."""

    profile: PhotoProfile


class PhotoAnswer(pydantic.BaseModel):
    """With `?format=link`."""

    settings: PhotoSettings
    meta: Meta


class BusinessFields(pydantic.BaseModel):
    """Empty where nothing was set."""

    address: str = pydantic.Field(examples=["1 Main Street"])
    description: str = pydantic.Field(examples=["Parcels"])
    email: str = pydantic.Field(examples=["desk@example.com"])
    vertical: str = pydantic.Field(examples=["Other"])
    websites: list[str] = pydantic.Field(examples=[["https://example.com"]])


class BusinessSection(pydantic.BaseModel):
    """Nested as in the original."""

    profile: BusinessFields


class BusinessSettings(pydantic.BaseModel):
    """Nested as in the original."""

    business: BusinessSection


class BusinessAnswer(pydantic.BaseModel):
    """The business profile."""

    settings: BusinessSettings
    meta: Meta
