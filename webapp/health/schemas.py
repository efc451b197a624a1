"""Answers of `/v1/health`."""

from __future__ import annotations

from typing import Literal

import pydantic

from webapp.openapi import Meta

GatewayStatus = Literal["connected", "connecting", "disconnected", "uninitialized", "unregistered"]


class Health(pydantic.BaseModel):
    """`disconnected` when no Coreapp answers, or a database that messages go through cannot be used.

    statuses_dropped: since no webhook URL has been set, for want of room; left out while there are none.
    """

    gateway_status: GatewayStatus
    statuses_dropped: int = pydantic.Field(default=0, ge=1)


class NodeHealth(Health):
    """Of one Coreapp among several.

    role: `primary_master` owns the first shard, `secondary_master` others, `coreapp` stands by or is lost.
    silent_for_s: of one that is lost, the seconds since its last sign of life.
    """

    role: Literal["primary_master", "secondary_master", "coreapp"]
    silent_for_s: int = pydantic.Field(default=0, ge=1)


class HealthAnswer(pydantic.BaseModel):
    """One Coreapp; or several, each by its name."""

    health: Health | dict[str, NodeHealth]
    meta: Meta
