"""`/v1/stickerpacks` and what is below it."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic
from fastapi import APIRouter, Query, Request, Response

from tidings.storage.business.stickerpacks import Pack, Sticker
from tidings.wire.codes import PARAMETER_INVALID
from webapp import answers, bodies, openapi
from webapp.authenticator import Authenticator
from webapp.errors import InvalidRequest
from webapp.openapi import MetaAnswer
from webapp.stickerpacks import schemas
from webapp.stickerpacks.service import Stickerpacks

PATH = "/v1/stickerpacks"
# Packs of the service itself, of which there are none here.
FIRST_PARTY = "whatsapp"
Namespace = Annotated[str | None, Query(), pydantic.WithJsonSchema({"type": "string", "enum": [FIRST_PARTY]})]


def routes(packs: Stickerpacks, authenticator: Authenticator, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["stickerpacks"])
    bearer = openapi.operation(openapi.BEARER)

    @router.get(PATH, summary="All sticker packs", response_model=schemas.StickerpackIdsAnswer, openapi_extra=bearer)
    async def list_packs(request: Request, namespace: Namespace = None) -> Response:
        caller = await authenticator.caller(request)
        if namespace not in (None, FIRST_PARTY):
            raise InvalidRequest.because(PARAMETER_INVALID, f"namespace: should be {FIRST_PARTY}, or absent")
        found = [] if namespace else await packs.list(caller)
        return answers.answer({"stickerpacks": [{"id": pack.id} for pack in found]})

    @router.post(
        PATH,
        summary="Make a sticker pack",
        status_code=201,
        response_model=schemas.StickerpackIdsAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.NewStickerpack),
    )
    async def create_pack(request: Request) -> Response:
        caller = await authenticator.caller(request)
        body = await bodies.read(request, schemas.NewStickerpack, limit=max_body)
        return answers.answer({"stickerpacks": [{"id": await packs.create(caller, body)}]}, status=201)

    @router.get(
        PATH + "/{id}", summary="One sticker pack", response_model=schemas.StickerpackAnswer, openapi_extra=bearer
    )
    async def get_pack(request: Request, id: str) -> Response:
        pack = await packs.get(await authenticator.caller(request), id)
        return answers.answer({"stickerpacks": [_pack(pack)]})

    @router.patch(
        PATH + "/{id}",
        summary="Change a sticker pack",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.StickerpackChange),
    )
    async def change_pack(request: Request, id: str) -> Response:
        caller = await authenticator.caller(request)
        await packs.change(caller, id, await bodies.read(request, schemas.StickerpackChange, limit=max_body))
        return answers.answer({})

    @router.delete(
        PATH + "/{id}", summary="Delete a pack with its stickers", response_model=MetaAnswer, openapi_extra=bearer
    )
    async def delete_pack(request: Request, id: str) -> Response:
        await packs.delete(await authenticator.caller(request), id)
        return answers.answer({})

    @router.get(
        PATH + "/{id}/stickers",
        summary="The stickers of a pack",
        response_model=schemas.StickersAnswer,
        openapi_extra=bearer,
    )
    async def list_stickers(request: Request, id: str) -> Response:
        found = await packs.list_stickers(await authenticator.caller(request), id)
        return answers.answer({"stickers": [_sticker(sticker) for sticker in found]})

    @router.post(
        PATH + "/{id}/stickers",
        summary="Add a sticker",
        status_code=201,
        response_model=schemas.StickerIndexAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.NewSticker),
    )
    async def add_sticker(request: Request, id: str) -> Response:
        caller = await authenticator.caller(request)
        body = await bodies.read(request, schemas.NewSticker, limit=max_body)
        return answers.answer({"stickers": [{"index": await packs.add_sticker(caller, id, body)}]}, status=201)

    @router.get(
        PATH + "/{id}/stickers/{index}",
        summary="One sticker",
        response_model=schemas.StickersAnswer,
        openapi_extra=bearer,
    )
    async def get_sticker(request: Request, id: str, index: str) -> Response:
        sticker = await packs.get_sticker(await authenticator.caller(request), id, index)
        return answers.answer({"stickers": [_sticker(sticker)]})

    @router.patch(
        PATH + "/{id}/stickers/{index}",
        summary="Change a sticker",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.StickerChange),
    )
    async def change_sticker(request: Request, id: str, index: str) -> Response:
        caller = await authenticator.caller(request)
        body = await bodies.read(request, schemas.StickerChange, limit=max_body)
        await packs.change_sticker(caller, id, index, body)
        return answers.answer({})

    @router.delete(
        PATH + "/{id}/stickers/{index}", summary="Delete a sticker", response_model=MetaAnswer, openapi_extra=bearer
    )
    async def delete_sticker(request: Request, id: str, index: str) -> Response:
        await packs.delete_sticker(await authenticator.caller(request), id, index)
        return answers.answer({})

    return router


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
