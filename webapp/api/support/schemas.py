"""Responses of `/v1/support`."""

from __future__ import annotations

from typing import Any

import pydantic

from webapp.http.openapi.document import Meta


class SupportAnswer(pydantic.BaseModel):
    """Response with one object, or with several Coreapps one object per Coreapp under its name."""

    support: dict[str, Any] = pydantic.Field(examples=[{"debug_info": "15550000000", "socket_conn": "UP"}])
    meta: Meta
