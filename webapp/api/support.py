"""`/v1/support`: information for support staff."""

from __future__ import annotations

import datetime
import platform
import shutil
from pathlib import Path
from typing import Annotated, Any

import pydantic
from fastapi import APIRouter, Response

from tidings import __version__
from tidings.aio.clock import Clock
from tidings.storage import schema
from tidings.storage.business import accounts, registrations, shard_blocks, shards
from tidings.storage.database import Database
from tidings.wire import core
from webapp.auth.authenticator import AnyCaller
from webapp.auth.tokens import Caller
from webapp.coreapps.interfaces import AllCoreapps
from webapp.http import responses
from webapp.http.dependencies import part
from webapp.http.errors import CoreappUnavailable
from webapp.http.openapi.document import RESPONSES, Meta
from webapp.http.responses import API_VERSION


class SupportResponse(pydantic.BaseModel):
    """Response with one object, or with several Coreapps one object per Coreapp under its name."""

    support: dict[str, Any] = pydantic.Field(examples=[{"debug_info": "15550000000", "socket_conn": "UP"}])
    meta: Meta


# Seconds that each Coreapp has to respond.
_TIMEOUT = 3.0
# Stores of the On-Premises API. Here they are tables of one family with one revision.
_STORES = ("axolotl", "callback", "cluster", "config", "contact", "jobqueue", "message")


class Support:
    """State of the installation from the point of view of this Webapp."""

    def __init__(
        self, database: Database, coreapps: AllCoreapps, *, data_dir: Path, media_dir: Path, clock: Clock
    ) -> None:
        self._database = database
        self._coreapps = coreapps
        self._data_dir = data_dir
        self._media_dir = media_dir
        self._clock = clock

    async def describe(self, caller: Caller) -> dict[str, Any]:
        """Return one object, or with several Coreapps an object per name."""
        common = await self._common(caller)
        coreapps, account = self._coreapps.of(caller.account), caller.account
        health_of_each = await coreapps.call_each(
            lambda n: core.GetHealth(n=n, account=account), core.Health, timeout=_TIMEOUT
        )
        if len(health_of_each) <= 1:
            return common | {
                "multi_connect": False,
                "socket_conn": _socket(health_of_each[0][1] if health_of_each else None),
            }
        return {
            coreapp.name: common
            | {
                "multi_connect": True,
                "role": coreapp.role,
                "shards": [] if isinstance(health, CoreappUnavailable) else [[shard, shard] for shard in health.shards],
                "socket_conn": _socket(health),
            }
            for coreapp, health in health_of_each
        }

    async def _common(self, caller: Caller) -> dict[str, Any]:
        async with self._database.reading() as connection:
            registration = await registrations.find_registration(connection, caller.account)
            registration_id = await accounts.find_registration_id(connection, caller.account)
            block = self._coreapps.of(caller.account).block
            owners = [
                owner for owner in await shards.list_owners(connection) if shard_blocks.block_of(owner.shard) == block
            ]
        count = "1 shard" if len(owners) == 1 else f"{len(owners)} shards"
        revision = await schema.revision(self._database)
        now = datetime.datetime.fromtimestamp(self._clock.now(), datetime.UTC)
        free = shutil.disk_usage(self._data_dir).free
        free_for_media = shutil.disk_usage(self._media_dir).free
        return {
            "context": "tidings",
            "db_engine": self._database.settings.engine.upper(),
            "db_info": f"family {self._database.family}, revision {revision}",
            "debug_info": caller.account,
            "description": f"Tidings {__version__}, speaks v{API_VERSION}, {count}",
            "device_iso8601": now.isoformat(timespec="seconds"),
            "e2e": {
                "identity_timestamp": registration.registered_at // 1000,
                "registration_id": registration_id,
            },
            "env": "production",
            "expire_timestamp": 0,
            "free_space_data": free,
            "free_space_logs": free,
            "free_space_media_incoming": free_for_media,
            "free_space_media_outgoing": free_for_media,
            "lc": "US",
            "lg": "en",
            "os_name": platform.system(),
            "os_version": platform.release(),
            "schema": dict.fromkeys(_STORES, int(revision or 0)),
        }


def _socket(health: core.Health | CoreappUnavailable | None) -> str:
    if health is None or isinstance(health, CoreappUnavailable):
        return "UNK"
    return "UP" if health.gateway_status == "connected" else "DN"


router = APIRouter(tags=["support"], responses=RESPONSES)
Service = Annotated[Support, part(Support)]


@router.get("/v1/support", summary="Get the state of the installation", response_model=SupportResponse)
async def get_support(caller: AnyCaller, support: Service) -> Response:
    return responses.success({"support": await support.describe(caller)})
