"""`GET /v1/support`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from webapp.api.support import schemas
from webapp.api.support.service import Support
from webapp.auth.authenticator import AnyCaller
from webapp.http import answers
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES

router = APIRouter(tags=["support"], responses=RESPONSES)
Service = Annotated[Support, part(Support)]


@router.get("/v1/support", summary="The state of the installation", response_model=schemas.SupportAnswer)
async def get_support(caller: AnyCaller, support: Service) -> Response:
    return answers.answer({"support": await support.describe(caller)})
