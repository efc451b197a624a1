"""What `/v1/health` answers."""

from __future__ import annotations

from typing import Literal

import pydantic

from webapp.openapi import Meta

GatewayStatus = Literal["connected", "connecting", "disconnected", "uninitialized", "unregistered"]


class Health(pydantic.BaseModel):
    """`disconnected` when no Coreapp answers."""

    gateway_status: GatewayStatus


class NodeHealth(Health):
    """Of one Coreapp among several."""

    role: Literal["primary_master", "secondary_master", "coreapp"]


class HealthAnswer(pydantic.BaseModel):
    """One Coreapp; or several, each by its name."""

    health: Health | dict[str, NodeHealth]
    meta: Meta
