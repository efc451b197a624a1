"""Request bodies and responses of backup and restore."""

from __future__ import annotations

from typing import Annotated

import pydantic

from webapp.http.bodies import Body
from webapp.http.openapi.document import Meta

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


class BackupAnswer(pydantic.BaseModel):
    """Response with the backup. Keep it apart from stored messages."""

    settings: BackupData
    meta: Meta
