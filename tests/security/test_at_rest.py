"""Files on disk while callbacks wait: no text, no credential, no secret of an address in them; readable by the owner
only."""

from __future__ import annotations

import asyncio
import contextlib
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from harness import polling
from harness.installation import Installation
from harness.mariadb import MariaDB
from tests.web_server import serving

pytestmark = pytest.mark.whole_system

ECHO = "1555014"
TEXT = "canary text of a message e53b"
USER, PASSWORD, TOKEN = "canaryuser77", "canary-password-91", "canarytoken4c"
PROVIDER = "canary-provider-credential-d0"
LINK_TOKEN = "canarylinksignature8e"
CANARIES = (TEXT, USER, PASSWORD, TOKEN, PROVIDER, LINK_TOKEN)
PROVIDERS = "/v1/settings/application/media/providers"


class Refusing:
    """Webhook that refuses everything and keeps what it was sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.authorized = 0
        self._news = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.bodies.append(await request.read())
        self.authorized += request.headers.get("Authorization", "").startswith("Basic ")
        self._news.set()
        return web.Response(status=500)

    async def until_posted(self, needle: bytes) -> None:
        async with asyncio.timeout(60):
            while not any(needle in body for body in self.bodies):
                self._news.clear()
                await self._news.wait()


@contextlib.asynccontextmanager
async def refusing() -> AsyncIterator[tuple[Refusing, int]]:
    sink = Refusing()
    app = web.Application()
    app.router.add_post("/", sink.take)
    async with serving(app) as url:
        yield sink, int(url.rpartition(":")[2])


def found_in(content: bytes) -> set[str]:
    """Return the canaries in raw bytes, in plain form or as a database writes them."""
    return {word for word in CANARIES if word.encode() in content or word.encode().hex().encode() in content.lower()}


def files(installation: Installation) -> Iterator[Path]:
    yield from (path for path in installation.directory.rglob("*") if path.is_file())


def dump(server: MariaDB) -> bytes:
    """Return every row of the installation as SQL."""
    rows = b""
    for family in ("business", "network"):
        with server.connect(f"tidings_{family}") as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            for (table,) in cursor.fetchall():
                cursor.execute(f"SELECT * FROM `{table}`")
                for row in cursor.fetchall():
                    rows += b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in row)
    return rows


@pytest.fixture(params=["sqlite", "mariadb"])
def server(request: pytest.FixtureRequest) -> MariaDB | None:
    found: MariaDB | None = None
    if request.param == "mariadb":
        found = request.getfixturevalue("installation_mariadb")
    return found


async def test_no_secret_is_on_disk_while_callbacks_are_queued(tmp_path: Path, server: MariaDB | None) -> None:
    environment = {"TIDINGS_ROBOTS_PER_KIND": "1", "TIDINGS_ROBOTS_KINDS": "14"}
    async with refusing() as (sink, port), Installation(tmp_path, server, environment) as installation:
        await installation.start()
        business = await installation.business()
        await business.set_webhook(f"http://{USER}:{PASSWORD}@127.0.0.1:{port}/?token={TOKEN}")
        provider = {"name": "files", "type": "www", "config": {"bearer": PROVIDER}}
        await business.check_call("POST", PROVIDERS, [provider])
        echo = f"{ECHO}0000"
        await business.check_contacts([echo])
        await business.check_call("POST", "/v1/messages", {"to": echo, "type": "text", "text": {"body": TEXT}})
        link = f"http://192.0.2.1/x.png?signature={LINK_TOKEN}"
        await business.check_call("POST", "/v1/messages", {"to": echo, "type": "image", "image": {"link": link}})
        # The robot's reply has arrived, and its callback waits: it is on disk.
        await sink.until_posted(TEXT.encode())
        assert sink.authorized == len(sink.bodies)
        waiting = "SELECT COUNT(*) FROM callbacks WHERE attempt > 0"
        await polling.until(lambda: bool(installation.read_value("business", waiting)))
        found = {str(path.relative_to(tmp_path)): found_in(path.read_bytes()) for path in files(installation)}
        assert {name: words for name, words in found.items() if words} == {}
        assert any(name.endswith(".db-wal") for name in found)
        if server is not None:
            rows = await asyncio.to_thread(dump, server)
            assert b"status_change" in rows
            assert found_in(rows) == set()
        settings = await business.check_call("GET", "/v1/settings/application")
        assert TOKEN in str(settings), "what was set is returned as it was"
        listed = await asyncio.to_thread(run, installation, "callbacks", "list")
        assert "inbound_message" in listed
        assert found_in(listed.encode()) == set()
        assert_private(installation.data_dir)


def assert_private(data_dir: Path) -> None:
    for path in (data_dir, *data_dir.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))


def run(installation: Installation, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *words],
        env={"PATH": "/usr/bin:/bin", **installation.common},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
