"""What `/v1/health` answers."""

from __future__ import annotations

from typing import Literal

import pydantic

from webapp.openapi import Meta

GatewayStatus = Literal["connected", "connecting", "disconnected", "uninitialized", "unregistered"]


class Health(pydantic.BaseModel):
    """`disconnected` when no Coreapp answers."""

    gateway_status: GatewayStatus


class HealthAnswer(pydantic.BaseModel):
    """The shape of a single installation."""

    health: Health
    meta: Meta
