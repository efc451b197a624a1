"""`POST /v1/settings/backup` and `POST /v1/settings/restore`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response

from webapp.api.backup import schemas
from webapp.api.backup.service import Backups
from webapp.auth.authenticator import Administrator
from webapp.http import answers
from webapp.http.bodies import json_body
from webapp.http.dependencies import part
from webapp.http.openapi.document import RESPONSES, MetaAnswer

router = APIRouter(tags=["settings"], responses=RESPONSES)
Service = Annotated[Backups, part(Backups)]


@router.post(
    "/v1/settings/backup",
    summary="Back up settings and keys, encrypted with a password",
    response_model=schemas.BackupAnswer,
)
async def make_backup(
    caller: Administrator, body: Annotated[schemas.BackupRequest, json_body(schemas.BackupRequest)], backups: Service
) -> Response:
    return answers.answer({"settings": {"data": await backups.make(caller, body.password)}})


@router.post("/v1/settings/restore", summary="Restore a backup", response_model=MetaAnswer)
async def restore(
    caller: Administrator,
    body: Annotated[schemas.RestoreRequest, json_body(schemas.RestoreRequest, schemas.MAX_BACKUP)],
    backups: Service,
) -> Response:
    await backups.restore(caller, body.password, body.data)
    return answers.answer({})
