"""Responses of the health endpoints."""

from __future__ import annotations

from typing import Literal

import pydantic

from webapp.http.openapi.document import Meta

GatewayStatus = Literal["connected", "connecting", "disconnected", "uninitialized", "unregistered"]


class Health(pydantic.BaseModel):
    """State of the connection to the network.

    - `gateway_status` is `disconnected` when no Coreapp responds, or when a database that messages pass through
      cannot be used.
    - `statuses_dropped` is the number of statuses that were dropped for lack of room since no webhook URL is set.
      It is absent when none were dropped.
    - `registered_elsewhere` is true when the network refuses the number's token because another client registered
      the number. It is absent otherwise. `gateway_status` is `unregistered` then.
    - `shards`, `active_shards` and `moved` are present only while the number of shards is being changed, as in
      `GET /v1/account/shards`.
    """

    gateway_status: GatewayStatus
    statuses_dropped: int = pydantic.Field(default=0, ge=1)
    registered_elsewhere: bool = False
    shards: int = pydantic.Field(default=0, ge=1)
    active_shards: int = pydantic.Field(default=0, ge=1)
    moved: int = pydantic.Field(default=0, ge=0)


class NodeHealth(Health):
    """Health of one of several Coreapps.

    - `role` is `primary_master` for the owner of the first shard, `secondary_master` for the owner of other shards, and
      `coreapp` for a standby or lost Coreapp.
    - `silent_for_s` is the number of seconds since the last heartbeat of a lost Coreapp. It is absent otherwise.
    - `unreached_for_s` is the number of seconds since this Webapp first failed to reach a live Coreapp. It is absent
      while the Coreapp is reached.
    """

    role: Literal["primary_master", "secondary_master", "coreapp"]
    silent_for_s: int = pydantic.Field(default=0, ge=1)
    unreached_for_s: int = pydantic.Field(default=0, ge=1)


class HealthResponse(pydantic.BaseModel):
    """Response with the health of the only Coreapp, or of each of several under its name."""

    health: Health | dict[str, NodeHealth]
    meta: Meta


class Live(pydantic.BaseModel):
    """The process runs and responds."""

    status: Literal["live"]


class LiveResponse(pydantic.BaseModel):
    """Response for supervisors that restart an unresponsive process."""

    health: Live
    meta: Meta


class Ready(pydantic.BaseModel):
    """Availability of the parts that sending a message needs.

    `coreapps` is `ok` when each shard has an owner that can be reached. `media` is `ok` when the file store is
    the one that the database records.
    """

    status: Literal["ready", "not ready"]
    database: Literal["ok", "away"]
    coreapps: Literal["ok", "away"]
    network: Literal["ok", "away"]
    media: Literal["ok", "away"]


class ReadyResponse(pydantic.BaseModel):
    """Response for load balancers, which send requests only to ready processes."""

    health: Ready
    meta: Meta
