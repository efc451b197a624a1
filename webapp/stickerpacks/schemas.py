"""Bodies and answers of `/v1/stickerpacks`."""

from __future__ import annotations

from typing import Annotated

import pydantic

from webapp.bodies import Body
from webapp.constraints import NO_CONTROLS, WEB_ADDRESS, Matches
from webapp.openapi import Meta

_PLAIN = Matches(NO_CONTROLS, "should have no control characters")
Words = Annotated[str, pydantic.Field(min_length=1, max_length=128, examples=["Cats"]), _PLAIN]
StoreLink = Annotated[
    str,
    pydantic.Field(max_length=1024, examples=["https://apps.example.com/pack"]),
    Matches(f"^(?:{WEB_ADDRESS})?$", "should begin with http:// or https://, or be empty"),
]
MediaId = Annotated[
    str, pydantic.Field(min_length=1, max_length=128, examples=["0d0e1a6a-38bb-4a7b-9d59-37ba5eee6a5e"]), _PLAIN
]
Emoji = Annotated[str, pydantic.Field(min_length=1, max_length=16, examples=["🎉"]), _PLAIN]
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

    id: str = pydantic.Field(examples=["583b6a66-dba8-4f80-82cd-15b5b0ae50dd"])


class StickerpackIdsAnswer(pydantic.BaseModel):
    """The packs that there are, or the one that was made."""

    stickerpacks: list[StickerpackId]
    meta: Meta


class StickerpackEntry(pydantic.BaseModel):
    """One pack."""

    id: str = pydantic.Field(examples=["583b6a66-dba8-4f80-82cd-15b5b0ae50dd"])
    publisher: str = pydantic.Field(examples=["Tidings Ltd."])
    name: str = pydantic.Field(examples=["Cats"])
    ios_app_store_link: str = pydantic.Field(examples=[""])
    android_app_store_link: str = pydantic.Field(examples=["https://apps.example.com/pack"])


class StickerpackAnswer(pydantic.BaseModel):
    """Exactly one element in `stickerpacks`."""

    stickerpacks: list[StickerpackEntry]
    meta: Meta


class StickerIndex(pydantic.BaseModel):
    """Of the sticker that was made."""

    index: int = pydantic.Field(examples=[0])


class StickerIndexAnswer(pydantic.BaseModel):
    """Exactly one element in `stickers`."""

    stickers: list[StickerIndex]
    meta: Meta


class StickerEntry(pydantic.BaseModel):
    """`id` is the index as text."""

    id: str = pydantic.Field(examples=["0"])
    index: int = pydantic.Field(examples=[0])
    emojis: list[str] = pydantic.Field(examples=[["🎉"]])
    image_data_id: str = pydantic.Field(examples=["0d0e1a6a-38bb-4a7b-9d59-37ba5eee6a5e"])


class StickersAnswer(pydantic.BaseModel):
    """The stickers of a pack, or the one asked for."""

    stickers: list[StickerEntry]
    meta: Meta
