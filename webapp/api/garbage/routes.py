"""`PUT /v1/services/message/gc` and `PUT /v1/services/media/gc`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from webapp.api.garbage import schemas
from webapp.api.garbage.service import Collections
from webapp.auth.authenticator import Administrator
from webapp.http import answers
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES

router = APIRouter(tags=["services"], responses=RESPONSES)
Service = Annotated[Collections, part(Collections)]


@router.put("/v1/services/message/gc", summary="Delete old messages", response_model=schemas.CollectionAnswer)
async def collect_messages(caller: Administrator, collections: Service) -> Response:
    return answers.answer(schemas.describe("message", await collections.start(caller, "message")))


@router.put(
    "/v1/services/media/gc", summary="Delete media that were not used for long", response_model=schemas.CollectionAnswer
)
async def collect_media(caller: Administrator, collections: Service) -> Response:
    return answers.answer(schemas.describe("media", await collections.start(caller, "media")))
