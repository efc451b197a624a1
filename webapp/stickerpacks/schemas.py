"""What `/v1/stickerpacks` takes and answers."""

from __future__ import annotations

import unicodedata
from typing import Annotated

import pydantic

from webapp.bodies import Body, refusal
from webapp.errors import PARAMETER_INVALID
from webapp.openapi import Meta


def _is_store_link(text: str) -> str:
    if text and (not text.lower().startswith(("http://", "https://")) or not text.isprintable() or " " in text):
        raise refusal(PARAMETER_INVALID, "should begin with http:// or https://, or be empty")
    return text


def _has_no_controls(text: str) -> str:
    if any(unicodedata.category(character) == "Cc" for character in text):
        raise refusal(PARAMETER_INVALID, "should have no control characters")
    return text


Words = Annotated[str, pydantic.Field(min_length=1, max_length=128), pydantic.AfterValidator(_has_no_controls)]
StoreLink = Annotated[
    str,
    pydantic.Field(max_length=1024, examples=["https://apps.example.com/pack"]),
    pydantic.AfterValidator(_is_store_link),
]
MediaId = Annotated[str, pydantic.Field(min_length=1, max_length=128), pydantic.AfterValidator(_has_no_controls)]
Emoji = Annotated[
    str, pydantic.Field(min_length=1, max_length=16, examples=["🎉"]), pydantic.AfterValidator(_has_no_controls)
]
Emojis = Annotated[list[Emoji], pydantic.Field(max_length=3)]


class NewStickerpack(Body):
    """A pack without stickers as yet."""

    publisher: Words
    name: Words
    ios_app_store_link: StoreLink | None = None
    android_app_store_link: StoreLink | None = None


class StickerpackChange(Body):
    """Any subset; what is absent stays."""

    publisher: Words | None = None
    name: Words | None = None
    ios_app_store_link: StoreLink | None = None
    android_app_store_link: StoreLink | None = None


class NewSticker(Body):
    """`image_data_id` is the id of an uploaded sticker."""

    image_data_id: MediaId
    emojis: Emojis | None = None


class StickerChange(Body):
    """Any subset; what is absent stays."""

    image_data_id: MediaId | None = None
    emojis: Emojis | None = None


class StickerpackId(pydantic.BaseModel):
    """Of a pack."""

    id: str


class StickerpackIdsAnswer(pydantic.BaseModel):
    """The packs that there are, or the one that was made."""

    stickerpacks: list[StickerpackId]
    meta: Meta


class StickerpackEntry(pydantic.BaseModel):
    """One pack."""

    id: str
    publisher: str
    name: str
    ios_app_store_link: str
    android_app_store_link: str


class StickerpackAnswer(pydantic.BaseModel):
    """Exactly one element in `stickerpacks`."""

    stickerpacks: list[StickerpackEntry]
    meta: Meta


class StickerIndex(pydantic.BaseModel):
    """Of the sticker that was made."""

    index: int


class StickerIndexAnswer(pydantic.BaseModel):
    """Exactly one element in `stickers`."""

    stickers: list[StickerIndex]
    meta: Meta


class StickerEntry(pydantic.BaseModel):
    """`id` is the index as text."""

    id: str
    index: int
    emojis: list[str]
    image_data_id: str


class StickersAnswer(pydantic.BaseModel):
    """The stickers of a pack, or the one asked for."""

    stickers: list[StickerEntry]
    meta: Meta
