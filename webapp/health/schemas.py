"""Answers of `/v1/health`."""

from __future__ import annotations

from typing import Literal

import pydantic

from webapp.openapi import Meta

GatewayStatus = Literal["connected", "connecting", "disconnected", "uninitialized", "unregistered"]


class Health(pydantic.BaseModel):
    """`disconnected` when no Coreapp answers, or a database that messages go through cannot be used.

    statuses_dropped: since no webhook URL has been set, for want of room; left out while there are none.
    registered_elsewhere: the network refuses the number's token, since somebody else has registered it; left out
                          otherwise. `gateway_status` is `unregistered` then.
    shards, active_shards, moved: only while the number of shards is being changed, as of `GET /v1/account/shards`.
    """

    gateway_status: GatewayStatus
    statuses_dropped: int = pydantic.Field(default=0, ge=1)
    registered_elsewhere: bool = False
    shards: int = pydantic.Field(default=0, ge=1)
    active_shards: int = pydantic.Field(default=0, ge=1)
    moved: int = pydantic.Field(default=0, ge=0)


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


class Live(pydantic.BaseModel):
    """The process runs and answers."""

    status: Literal["live"]


class LiveAnswer(pydantic.BaseModel):
    """For whoever starts a process again that does not answer."""

    health: Live
    meta: Meta


class Ready(pydantic.BaseModel):
    """What sending a message needs. coreapps: an owner of each shard that can be reached; media: the store of files is
    the one that the database records."""

    status: Literal["ready", "not ready"]
    database: Literal["ok", "away"]
    coreapps: Literal["ok", "away"]
    network: Literal["ok", "away"]
    media: Literal["ok", "away"]


class ReadyAnswer(pydantic.BaseModel):
    """For whoever sends requests only where they can be served."""

    health: Ready
    meta: Meta
