"""Bodies and answers of backup and restore."""

from __future__ import annotations

from typing import Annotated

import pydantic

from webapp.bodies import Body
from webapp.openapi import Meta

# A photo of 5 MB, twice in base64, and the rest.
MAX_BACKUP = 12 * 1024 * 1024  # bytes of a body

BackupPassword = Annotated[str, pydantic.Field(min_length=8, max_length=1024, examples=["Tidings-2026!"])]
# Of backups that were made before their passwords had a least length, too.
RestorePassword = Annotated[str, pydantic.Field(min_length=1, max_length=1024, examples=["Tidings-2026!"])]


class BackupRequest(Body):
    """Whoever has the password and the backup has the number's keys."""

    password: BackupPassword


class RestoreRequest(Body):
    """`data` as `POST /v1/settings/backup` answered it."""

    password: RestorePassword
    data: Annotated[str, pydantic.Field(min_length=1, examples=["dGlkaW5ncy1iYWNrdXA="])]


class BackupData(pydantic.BaseModel):
    """Base64."""

    data: str = pydantic.Field(examples=["dGlkaW5ncy1iYWNrdXA="])


class BackupAnswer(pydantic.BaseModel):
    """Keep it where messages are not kept."""

    settings: BackupData
    meta: Meta
