"""`POST /v1/media`, and `GET` and `DELETE /v1/media/{id}`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from webapp.api.media import schemas, service
from webapp.api.media.service import MediaStore
from webapp.api.media.transfer import FileResponse, received
from webapp.auth.authenticator import AnyCaller
from webapp.auth.idempotency import IdempotencyKey
from webapp.http import headers, responses
from webapp.http.dependencies import RequestId, part
from webapp.http.errors import BodyTooLarge
from webapp.http.openapi import document
from webapp.http.openapi.document import RESPONSES, MetaResponse

MediaId = Annotated[
    str, Path(description="Id from `POST /v1/media` or from a webhook", json_schema_extra={"format": "uuid"})
]


router = APIRouter(tags=["media"], responses=RESPONSES)
Service = Annotated[MediaStore, part(MediaStore)]


@router.post(
    "/v1/media",
    summary="Upload a file",
    response_model=schemas.MediaResponse,
    openapi_extra=document.REPEATABLE | {"requestBody": schemas.UPLOAD},
)
async def upload(
    caller: AnyCaller, key: IdempotencyKey, media: Service, request_id: RequestId, request: Request
) -> Response:
    raw = headers.find(request.scope, b"content-type")
    media_type = service.read_type(None if raw is None else raw.decode("latin-1"))
    declared = headers.find(request.scope, b"content-length")
    if declared is not None and declared.isdigit() and (len(declared) > 12 or int(declared) > media_type.limit):
        raise BodyTooLarge(media_type.limit)
    media_id = await media.upload(caller, media_type, received(request), request_id=request_id, key=key)
    return responses.success({"media": [{"id": media_id}]})


@router.get("/v1/media/{media_id}", summary="A file", response_class=Response, responses={200: schemas.DOWNLOAD})
async def download(caller: AnyCaller, media: Service, request: Request, media_id: MediaId) -> Response:
    media.downloads.take()
    try:
        found, file = await media.open(caller, media_id)
    except BaseException:
        media.downloads.release()
        raise
    with_body = not getattr(request.state, "without_body", False)
    return FileResponse(file, found.size, found.mime_type, done=media.downloads.release, with_body=with_body)


@router.delete("/v1/media/{media_id}", summary="Delete a file", response_model=MetaResponse)
async def delete(caller: AnyCaller, media: Service, media_id: MediaId) -> Response:
    await media.delete(caller, media_id)
    return responses.success({})
