"""`/v1/stickerpacks` and the paths below it."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic
from fastapi import APIRouter, Query, Response

from tidings.storage.business.stickerpacks import Pack, Sticker
from tidings.wire.codes import PARAMETER_INVALID
from webapp.api.stickerpacks import schemas
from webapp.api.stickerpacks.service import Stickerpacks
from webapp.auth.authenticator import AnyCaller
from webapp.http import responses
from webapp.http.bodies import json_body
from webapp.http.dependencies import part
from webapp.http.errors import InvalidRequest
from webapp.http.openapi.document import RESPONSES, MetaResponse

PATH = "/v1/stickerpacks"
# Namespace of the service's own packs. There are none here.
FIRST_PARTY = "whatsapp"
Namespace = Annotated[str | None, Query(), pydantic.WithJsonSchema({"type": "string", "enum": [FIRST_PARTY]})]


router = APIRouter(tags=["stickerpacks"], responses=RESPONSES)
Service = Annotated[Stickerpacks, part(Stickerpacks)]


@router.get(PATH, summary="All sticker packs", response_model=schemas.StickerpackIdsResponse)
async def list_packs(caller: AnyCaller, packs: Service, namespace: Namespace = None) -> Response:
    if namespace not in (None, FIRST_PARTY):
        raise InvalidRequest.because(PARAMETER_INVALID, f"namespace: should be {FIRST_PARTY}, or absent")
    found = [] if namespace else await packs.list(caller)
    return responses.success({"stickerpacks": [{"id": pack.id} for pack in found]})


@router.post(PATH, summary="Create a sticker pack", status_code=201, response_model=schemas.StickerpackIdsResponse)
async def create_pack(
    caller: AnyCaller, body: Annotated[schemas.NewStickerpack, json_body(schemas.NewStickerpack)], packs: Service
) -> Response:
    return responses.success({"stickerpacks": [{"id": await packs.create(caller, body)}]}, status=201)


@router.get(PATH + "/{id}", summary="One sticker pack", response_model=schemas.StickerpackResponse)
async def get_pack(caller: AnyCaller, packs: Service, id: str) -> Response:
    pack = await packs.get(caller, id)
    return responses.success({"stickerpacks": [_pack(pack)]})


@router.patch(PATH + "/{id}", summary="Change a sticker pack", response_model=MetaResponse)
async def change_pack(
    caller: AnyCaller,
    body: Annotated[schemas.StickerpackChange, json_body(schemas.StickerpackChange)],
    packs: Service,
    id: str,
) -> Response:
    await packs.change(caller, id, body)
    return responses.success({})


@router.delete(PATH + "/{id}", summary="Delete a pack with its stickers", response_model=MetaResponse)
async def delete_pack(caller: AnyCaller, packs: Service, id: str) -> Response:
    await packs.delete(caller, id)
    return responses.success({})


@router.get(PATH + "/{id}/stickers", summary="List the stickers of a pack", response_model=schemas.StickersResponse)
async def list_stickers(caller: AnyCaller, packs: Service, id: str) -> Response:
    found = await packs.list_stickers(caller, id)
    return responses.success({"stickers": [_sticker(sticker) for sticker in found]})


@router.post(
    PATH + "/{id}/stickers", summary="Add a sticker", status_code=201, response_model=schemas.StickerIndexResponse
)
async def add_sticker(
    caller: AnyCaller, body: Annotated[schemas.NewSticker, json_body(schemas.NewSticker)], packs: Service, id: str
) -> Response:
    return responses.success({"stickers": [{"index": await packs.add_sticker(caller, id, body)}]}, status=201)


@router.get(PATH + "/{id}/stickers/{index}", summary="One sticker", response_model=schemas.StickersResponse)
async def get_sticker(caller: AnyCaller, packs: Service, id: str, index: str) -> Response:
    sticker = await packs.get_sticker(caller, id, index)
    return responses.success({"stickers": [_sticker(sticker)]})


@router.patch(PATH + "/{id}/stickers/{index}", summary="Change a sticker", response_model=MetaResponse)
async def change_sticker(
    caller: AnyCaller,
    body: Annotated[schemas.StickerChange, json_body(schemas.StickerChange)],
    packs: Service,
    id: str,
    index: str,
) -> Response:
    await packs.change_sticker(caller, id, index, body)
    return responses.success({})


@router.delete(PATH + "/{id}/stickers/{index}", summary="Delete a sticker", response_model=MetaResponse)
async def delete_sticker(caller: AnyCaller, packs: Service, id: str, index: str) -> Response:
    await packs.delete_sticker(caller, id, index)
    return responses.success({})


def _pack(pack: Pack) -> dict[str, Any]:
    return {
        "id": pack.id,
        "publisher": pack.publisher,
        "name": pack.name,
        "ios_app_store_link": pack.ios_app_store_link,
        "android_app_store_link": pack.android_app_store_link,
    }


def _sticker(sticker: Sticker) -> dict[str, Any]:
    return {
        "id": str(sticker.position),
        "index": sticker.position,
        "emojis": sticker.emojis,
        "image_data_id": sticker.image_data_id,
    }
