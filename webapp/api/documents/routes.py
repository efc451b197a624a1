"""`GET /openapi.json` and `GET /docs`, with the files of that page."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from webapp.api.documents import assets
from webapp.api.documents.assets import Assets
from webapp.api.documents.service import OpenApiDocument
from webapp.auth import authenticator
from webapp.http.dependencies import part
from webapp.http.errors import UnknownPath

router = APIRouter(include_in_schema=False, dependencies=[Depends(authenticator.neighbour)])
Service = Annotated[OpenApiDocument, part(OpenApiDocument)]


@router.get("/openapi.json")
async def get_openapi(document: Service, request: Request) -> Response:
    return Response(document.render(request.app), media_type="application/json")


@router.get("/docs")
async def get_docs() -> Response:
    return Response(assets.PAGE, media_type="text/html", headers={"Content-Security-Policy": assets.POLICY})


@router.get("/docs/{name}")
async def get_asset(found: Annotated[Assets, part(Assets)], name: str) -> Response:
    asset = found.find(name)
    if asset is None:
        raise UnknownPath(f"/docs/{name}")
    return Response(asset.content, media_type=asset.kind, headers={"X-Content-Type-Options": "nosniff"})
