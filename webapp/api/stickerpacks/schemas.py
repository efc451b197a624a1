"""Request bodies and responses of `/v1/stickerpacks`."""

from __future__ import annotations

from typing import Annotated

import pydantic

from webapp.http.bodies import Body
from webapp.http.constraints import NO_CONTROLS, WEB_ADDRESS, Matches
from webapp.http.openapi.document import Meta

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
    """A new pack, without stickers."""

    publisher: Words
    name: Words
    ios_app_store_link: StoreLink | None = None
    android_app_store_link: StoreLink | None = None


class StickerpackChange(Body):
    """Any subset of the fields. Absent fields keep their value."""

    publisher: Words | None = None
    name: Words | None = None
    ios_app_store_link: StoreLink | None = None
    android_app_store_link: StoreLink | None = None


class NewSticker(Body):
    """A new sticker. `image_data_id` is the id of an uploaded sticker."""

    image_data_id: MediaId
    emojis: Emojis | None = None


class StickerChange(Body):
    """Any subset of the fields. Absent fields keep their value."""

    image_data_id: MediaId | None = None
    emojis: Emojis | None = None


class StickerpackId(pydantic.BaseModel):
    """Id of a pack."""

    id: str = pydantic.Field(examples=["583b6a66-dba8-4f80-82cd-15b5b0ae50dd"])


class StickerpackIdsResponse(pydantic.BaseModel):
    """Response with all packs, or with the new one."""

    stickerpacks: list[StickerpackId]
    meta: Meta


class StickerpackEntry(pydantic.BaseModel):
    """A sticker pack."""

    id: str = pydantic.Field(examples=["583b6a66-dba8-4f80-82cd-15b5b0ae50dd"])
    publisher: str = pydantic.Field(examples=["Tidings Ltd."])
    name: str = pydantic.Field(examples=["Cats"])
    ios_app_store_link: str = pydantic.Field(examples=[""])
    android_app_store_link: str = pydantic.Field(examples=["https://apps.example.com/pack"])


class StickerpackResponse(pydantic.BaseModel):
    """Response with a pack. `stickerpacks` has exactly one element."""

    stickerpacks: list[StickerpackEntry]
    meta: Meta


class StickerIndex(pydantic.BaseModel):
    """Index of the new sticker."""

    index: int = pydantic.Field(examples=[0])


class StickerIndexResponse(pydantic.BaseModel):
    """Response with the index of the new sticker. `stickers` has exactly one element."""

    stickers: list[StickerIndex]
    meta: Meta


class StickerEntry(pydantic.BaseModel):
    """A sticker. `id` is the index as a string."""

    id: str = pydantic.Field(examples=["0"])
    index: int = pydantic.Field(examples=[0])
    emojis: list[str] = pydantic.Field(examples=[["🎉"]])
    image_data_id: str = pydantic.Field(examples=["0d0e1a6a-38bb-4a7b-9d59-37ba5eee6a5e"])


class StickersResponse(pydantic.BaseModel):
    """Response with the stickers of a pack, or with the requested one."""

    stickers: list[StickerEntry]
    meta: Meta
