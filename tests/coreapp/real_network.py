"""Our own network for a Coreapp under test, and a phone's registration at it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from network import services
from network.settings import BlobSettings, Settings
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import World
from tests.coreapp.phones import Phone
from tests.coreapp.signals import TIMEOUT
from tidings.storage.database import Database


@dataclasses.dataclass(frozen=True)
class RealNetwork:
    """Addresses, keys and database of the network."""

    http: str
    tcp: tuple[str, int]
    database: Database
    registration_key: str

    async def register(self, phone: Phone) -> str:
        """Register the phone and return its token."""

        def text(data: bytes) -> str:
            return base64.b64encode(data).decode()

        def signed(key: Any) -> dict[str, Any]:
            return {"key_id": key.key_id, "public": text(key.public), "signature": text(key.signature)}

        body = {
            "number": phone.number,
            "registration_id": phone.registration_id,
            "identity_key": text(phone.identity.public),
            "signed_prekey": signed(phone.signed),
            "kyber_prekey": signed(phone.kyber),
            "prekeys": [{"key_id": key.key_id, "public": text(key.public)} for key in phone.prekeys.values()],
        }
        headers = {"Authorization": f"Bearer {self.registration_key}"}
        async with httpx.AsyncClient(base_url=self.http, verify=False, trust_env=False) as client:
            response = await client.post("/v1/registrations", json=body, headers=headers)
        assert response.is_success, response.text
        token: str = response.json()["token"]
        return token


@contextlib.asynccontextmanager
async def real_network(world: World, database_factory: DatabaseFactory, folder: Path) -> AsyncIterator[RealNetwork]:
    """Run the network with the world's secrets. It keeps files in `folder / "blobs"`. Coreapps must be stopped before
    it."""
    database = await database_factory("network")
    settings = Settings(
        database=database.settings,
        secrets=world.settings.secrets,
        data_dir=folder,
        blobs=BlobSettings(directory=folder / "blobs"),
        http_address=("127.0.0.1", 0),
        tcp_address=("127.0.0.1", 0),
        embedded=True,
    )
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(services.run(settings, stop, ready.set_result))
    try:
        async with asyncio.timeout(TIMEOUT):
            addresses = await ready
        http = f"http://{addresses.http[0]}:{addresses.http[1]}"
        yield RealNetwork(http, addresses.tcp, database, world.settings.secrets.registration_key)
    finally:
        stop.set()
        await serving
