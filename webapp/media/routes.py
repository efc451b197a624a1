"""`POST /v1/media`, and `GET` and `DELETE /v1/media/{id}`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from webapp import answers, headers, idempotency, openapi
from webapp.authenticator import Authenticator
from webapp.errors import BodyTooLarge
from webapp.media import schemas, service
from webapp.media.service import MediaStore
from webapp.media.transfer import FileAnswer, Slots, received
from webapp.openapi import MetaAnswer

# At the same time; each holds a block in memory.
MAX_DOWNLOADS = 256

MediaId = Annotated[
    str,
    Path(description="As `POST /v1/media` answered, or a webhook told", json_schema_extra={"format": "uuid"}),
]


def routes(media: MediaStore, authenticator: Authenticator) -> APIRouter:
    router = APIRouter(tags=["media"])
    downloads = Slots("downloads", MAX_DOWNLOADS)

    @router.post(
        "/v1/media",
        summary="Upload a file",
        response_model=schemas.MediaAnswer,
        openapi_extra=openapi.repeatable(openapi.operation(openapi.BEARER) | {"requestBody": schemas.UPLOAD}),
    )
    async def upload(request: Request) -> Response:
        caller = await authenticator.caller(request)
        key = idempotency.key_of(request)
        raw = headers.find(request.scope, b"content-type")
        media_type = service.read_type(None if raw is None else raw.decode("latin-1"))
        declared = headers.find(request.scope, b"content-length")
        if declared is not None and declared.isdigit() and (len(declared) > 12 or int(declared) > media_type.limit):
            raise BodyTooLarge(media_type.limit)
        media_id = await media.upload(
            caller, media_type, received(request), request_id=request.state.request_id, key=key
        )
        return answers.answer({"media": [{"id": media_id}]})

    @router.get(
        "/v1/media/{media_id}",
        summary="A file",
        response_class=Response,
        responses={200: schemas.DOWNLOAD},
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def download(request: Request, media_id: MediaId) -> Response:
        caller = await authenticator.caller(request)
        downloads.take()
        try:
            found, file = await media.open(caller, media_id)
        except BaseException:
            downloads.release()
            raise
        with_body = not getattr(request.state, "without_body", False)
        return FileAnswer(file, found.size, found.mime_type, downloads.release, with_body=with_body)

    @router.delete(
        "/v1/media/{media_id}",
        summary="Delete a file",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def delete(request: Request, media_id: MediaId) -> Response:
        await media.delete(await authenticator.caller(request), media_id)
        return answers.answer({})

    return router
