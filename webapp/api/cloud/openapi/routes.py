"""`/cloud/openapi.json`: the description of the Cloud API for programs."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response

from webapp.api.cloud.openapi import document
from webapp.auth import authenticator

router = APIRouter(include_in_schema=False, dependencies=[Depends(authenticator.caller_unless_local)])


@router.get("/cloud/openapi.json")
async def get_cloud_document() -> Response:
    return Response(document.render(), media_type="application/json")
