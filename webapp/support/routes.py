"""`GET /v1/support`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from webapp import answers
from webapp.authenticator import AnyCaller
from webapp.dependencies import part
from webapp.openapi import RESPONSES
from webapp.support import schemas
from webapp.support.service import Support

router = APIRouter(tags=["support"], responses=RESPONSES)
Service = Annotated[Support, part(Support)]


@router.get("/v1/support", summary="The state of the installation", response_model=schemas.SupportAnswer)
async def get_support(caller: AnyCaller, support: Service) -> Response:
    return answers.answer({"support": await support.describe(caller)})
