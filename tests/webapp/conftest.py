"""Webapp served over a real socket, with a scripted Coreapp behind it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import functools
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.webapp.coreapp_links import Link
from tests.webapp.fake_coreapp import LINK_KEY, FakeCoreapp
from tidings.aio import service
from tidings.aio.clock import Clock, SystemClock
from tidings.egress import addresses
from tidings.egress.settings import OutgoingSettings
from tidings.http.hosts import Hosts
from tidings.installation.settings import DatabaseSettings
from tidings.objects.directory import DirectoryStore
from tidings.secrets.first_password import FirstPassword
from tidings.secrets.process_secrets import SecretKeys, WebappSecrets
from tidings.storage.database import Database
from webapp import services
from webapp.api.health import service as health
from webapp.api.users.passwords import Hasher
from webapp.coreapps.links import CoreappLinks
from webapp.coreapps.shard_map import FixedShardMap, ShardMap
from webapp.http import server
from webapp.settings import Settings

PASSWORD = "Tidings-2026!"
BODIES = Path(__file__).parents[1] / "data" / "api"


@pytest.fixture
def database_engine() -> str:
    """Kind of database. `tests/storage` tests the SQL on every database."""
    return "sqlite"


def body(name: str) -> Any:
    """Return a JSON file below `tests/data/api`."""
    return json.loads((BODIES / f"{name}.json").read_text())


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def errors(response: httpx.Response) -> list[dict[str, Any]]:
    """Return the errors of a response, after checking its format."""
    payload = response.json()
    assert response.status_code >= 400
    assert set(payload) == {"errors", "meta"}
    assert payload["meta"] == {"version": "2.57.2", "api_status": "stable"}
    assert payload["errors"]
    for error in payload["errors"]:
        assert set(error) == {"code", "title", "details"}
        assert isinstance(error["code"], int)
        assert error["title"]
        assert error["details"]
    check_headers(response)
    found: list[dict[str, Any]] = payload["errors"]
    return found


def check_headers(response: httpx.Response) -> None:
    assert response.headers["Cache-Control"] == "no-cache, private"
    assert response.headers["X-Request-ID"]


def code(response: httpx.Response) -> tuple[int, int]:
    """Return the HTTP status and the first error's code."""
    return response.status_code, errors(response)[0]["code"]


@dataclasses.dataclass
class Served:
    """One running Webapp. `http` is logged in once `log_in` was called."""

    parts: services.Parts
    settings: Settings
    http: httpx.AsyncClient
    port: int
    first_password: str | None  # generated at its start; None when it was set already

    async def log_in(self) -> None:
        """Log in as the administrator, and change the first password if that is still required."""
        response = await self.http.post("/v1/users/login", headers=basic("admin", PASSWORD))
        if response.status_code != 200:
            response = await self.http.post(
                "/v1/users/login", headers=basic("admin", "secret"), json={"new_password": PASSWORD}
            )
        assert response.status_code == 200, response.text
        self.http.headers["Authorization"] = "Bearer " + response.json()["users"][0]["token"]

    async def send(self, **fields: Any) -> httpx.Response:
        """Send a valid message, with some fields changed."""
        return await self.http.post("/v1/messages", json=body("message_text") | fields)


Serve = Callable[..., Awaitable[Served]]


@functools.cache
def _temporary(url: str) -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tidings-media-")


def _directory_of(url: str) -> Path:
    """Return the directory of a SQLite file. A database of a server has one for all tests that use its schema."""
    file = url.partition(":///")[2]
    return Path(file).parent if file else Path(_temporary(url).name)


def make_settings(database: Database, **changes: Any) -> Settings:
    """Return settings with files in an existing directory, next to a database of SQLite."""
    media_dir = changes.pop("media_dir", None) or _directory_of(database.settings.url) / "media"
    media_dir.mkdir(exist_ok=True)
    settings = Settings(
        data_dir=media_dir.parent,
        address=("127.0.0.1", 0),
        account="15550000000",
        database=DatabaseSettings(database.settings.url),
        secrets=make_secrets(),
        messages_rate=0,
        messages_burst=80,
        contacts_rate=0,
        contacts_burst=40,
        first_password=FirstPassword("", True),
        outgoing_webhooks=OutgoingSettings(addresses.LOOPBACK),
        media_dir=media_dir,
        media_reserve=0,
    )
    return settings.model_copy(update=changes)


def make_secrets() -> WebappSecrets:
    return WebappSecrets(jwt_key="j" * 32, link_key=LINK_KEY, settings_key=SecretKeys.of(b"s" * 32))


@pytest.fixture
async def coreapp() -> AsyncIterator[FakeCoreapp]:
    fake = await FakeCoreapp().start()
    yield fake
    await fake.stop()


@pytest.fixture
async def database(database_factory: Callable[[str], Awaitable[Database]]) -> Database:
    return await database_factory("business")


@pytest.fixture
async def serve(coreapp: FakeCoreapp, database: Database) -> AsyncIterator[Serve]:
    """Function that starts Webapps on the test's database: `await serve(**changes of the settings)`.

    All Webapps stop with the test. With `over_socket` the Webapp listens on a socket; without it, requests reach the
    application in this process.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            clock: Clock | None = None, shard_map: ShardMap | None = None, over_socket: bool = False, **changes: Any
        ) -> Served:
            settings = make_settings(database, **changes)
            hasher = Hasher(memory_kib=8)
            stack.callback(hasher.close)
            shard_map = shard_map or FixedShardMap("127.0.0.1", coreapp.port)
            files = DirectoryStore(settings.media_dir, reserve=settings.media_reserve)
            parts = services.assemble(settings, database, shard_map, hasher, clock or SystemClock(), files=files)
            made = await parts.logins.start()
            running: list[service.Service] = [parts.links.connections]
            transport: httpx.AsyncBaseTransport = httpx.ASGITransport(parts.app)
            port = 0
            started = asyncio.Event()
            if over_socket:
                listener = server.listen("127.0.0.1", 0)
                port = listener.getsockname()[1]
                hosts = Hosts(settings.http_hosts)
                running.append(
                    server.HTTPServer(
                        parts.app,
                        [listener],
                        started.set,
                        limiter=parts.limiter,
                        hosts=hosts,
                        dialect=parts.facade,
                    )
                )
                transport = httpx.AsyncHTTPTransport(verify=False)
            else:
                started.set()
            stop = asyncio.Event()
            task = asyncio.create_task(service.run_services(running, stop))

            async def end() -> None:
                stop.set()
                await task

            stack.push_async_callback(end)
            client = await stack.enter_async_context(
                httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False, transport=transport)
            )
            await started.wait()
            return Served(parts, settings, client, port, made)

        yield start


async def _logged_in(served: Served, coreapp: FakeCoreapp) -> Served:
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    return served


@pytest.fixture
async def api(serve: Serve, coreapp: FakeCoreapp) -> Served:
    """Webapp without rate limits, logged in and connected to `coreapp`; called without a socket."""
    return await _logged_in(await serve(), coreapp)


@pytest.fixture
async def served_api(serve: Serve, coreapp: FakeCoreapp) -> Served:
    """The `api` fixture over a real socket."""
    return await _logged_in(await serve(over_socket=True), coreapp)


@pytest.fixture
def no_earlier_health(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never return an earlier result of a health check, which requests on a slow machine get otherwise."""
    monkeypatch.setattr(health, "_RECENT", -1.0)


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            shard_map: ShardMap, key: str = LINK_KEY, owner_timeout: float = 5.0, timeout: float = 5.0, **options: Any
        ) -> CoreappLinks:
            links = CoreappLinks(shard_map, key, owner_timeout=owner_timeout, timeout=timeout, **options)
            stop = asyncio.Event()
            running = asyncio.create_task(links.connections.run(stop))

            async def end() -> None:
                stop.set()
                await running

            stack.push_async_callback(end)
            return links

        yield start
