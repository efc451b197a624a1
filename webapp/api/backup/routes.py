"""`POST /v1/settings/backup` and `POST /v1/settings/restore`."""

from __future__ import annotations

from typing import Annotated

import pydantic
from fastapi import APIRouter, Response

from webapp.api.backup.service import Backups
from webapp.auth.authenticator import Administrator
from webapp.http import responses
from webapp.http.bodies import Body, json_body
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES, Meta, MetaResponse

# Room for a photo of 5 MB that is encoded in base64 twice, and the other parts.
MAX_BACKUP = 12 * 1024 * 1024  # bytes of a body

BackupPassword = Annotated[str, pydantic.Field(min_length=8, max_length=1024, examples=["Tidings-2026!"])]
# Shorter passwords are accepted for backups from before the minimum length.
RestorePassword = Annotated[str, pydantic.Field(min_length=1, max_length=1024, examples=["Tidings-2026!"])]


class BackupRequest(Body):
    """Password of a new backup. The password and the backup together give access to the number's keys."""

    password: BackupPassword


class RestoreRequest(Body):
    """Backup to put in force. `data` is the value that `POST /v1/settings/backup` returned."""

    password: RestorePassword
    data: Annotated[str, pydantic.Field(min_length=1, examples=["dGlkaW5ncy1iYWNrdXA="])]


class BackupData(pydantic.BaseModel):
    """The backup in base64."""

    data: str = pydantic.Field(examples=["dGlkaW5ncy1iYWNrdXA="])


class BackupResponse(pydantic.BaseModel):
    """Response with the backup. Keep it apart from stored messages."""

    settings: BackupData
    meta: Meta


router = APIRouter(tags=["settings"], responses=RESPONSES)
Service = Annotated[Backups, part(Backups)]


@router.post(
    "/v1/settings/backup",
    summary="Back up settings and keys, encrypted with a password",
    response_model=BackupResponse,
)
async def make_backup(
    caller: Administrator, body: Annotated[BackupRequest, json_body(BackupRequest)], backups: Service
) -> Response:
    return responses.success({"settings": {"data": await backups.make(caller, body.password)}})


@router.post("/v1/settings/restore", summary="Restore a backup", response_model=MetaResponse)
async def restore(
    caller: Administrator,
    body: Annotated[RestoreRequest, json_body(RestoreRequest, MAX_BACKUP)],
    backups: Service,
) -> Response:
    await backups.restore(caller, body.password, body.data)
    return responses.success({})
