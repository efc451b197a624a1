"""`POST /v1/settings/backup` and `POST /v1/settings/restore`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from webapp import answers, bodies, openapi
from webapp.authenticator import Authenticator
from webapp.backup import schemas
from webapp.backup.service import Backups
from webapp.openapi import MetaAnswer


def routes(backups: Backups, authenticator: Authenticator, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["settings"])

    @router.post(
        "/v1/settings/backup",
        summary="Settings and keys under a password",
        response_model=schemas.BackupAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.BackupRequest),
    )
    async def make_backup(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        body = await bodies.read(request, schemas.BackupRequest, limit=max_body)
        return answers.answer({"settings": {"data": await backups.make(caller, body.password)}})

    @router.post(
        "/v1/settings/restore",
        summary="Put a backup in force",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.RestoreRequest),
    )
    async def restore(request: Request) -> Response:
        caller = await authenticator.administrator(request)
        body = await bodies.read(request, schemas.RestoreRequest, limit=schemas.MAX_BACKUP)
        await backups.restore(caller, body.password, body.data)
        return answers.answer({})

    return router
