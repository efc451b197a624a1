"""`GET /openapi.json` and `GET /docs`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html

from webapp import authenticator
from webapp.dependencies import part
from webapp.documents.service import Document

router = APIRouter(include_in_schema=False, dependencies=[Depends(authenticator.neighbour)])
Service = Annotated[Document, part(Document)]


@router.get("/openapi.json")
async def get_openapi(document: Service, request: Request) -> Response:
    return Response(document.render(request.app), media_type="application/json")


@router.get("/docs")
async def get_docs() -> Response:
    return get_swagger_ui_html(openapi_url="/openapi.json", title="Tidings")
