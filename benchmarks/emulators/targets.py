"""Programs that emulate the Cloud API, each started in its own directory with one webhook."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import psutil

from benchmarks.rig.run import RunFailed
from harness import cloud_client, spawn
from harness.mariadb import free_port
from tidings.wire.cloud import identity

ROOT = Path(__file__).parents[2]
TOKEN, SECRET, VERIFY_TOKEN = "any", "emulators-app-secret", "mine"
RECIPIENTS = 16
MOST_SECONDS = 120.0  # for a start
POLL = 0.01  # seconds
# Node of the other emulator, and why it may be missing.
NODE = "node"
MISSING = "no checkout of whaloc was given (`--whaloc FOLDER`): it is in no registry, and needs Node 24 and a build"


@dataclasses.dataclass(frozen=True, slots=True)
class Ids:
    """Ids that an emulator gives its first number, and recipients who read each message."""

    number: str
    waba: str
    app: str
    recipients: str  # what their numbers begin with; two digits follow

    @property
    def recipient(self) -> str:
        """Number of the first recipient."""
        return self.one_of(0)

    def one_of(self, index: int) -> str:
        """Return the number of one of `RECIPIENTS` recipients."""
        return f"{self.recipients}{index % RECIPIENTS:02d}"


class EmulatorTarget:
    """Emulator that can be started, killed and started again on the same data.

    name:    for the report
    command: command line
    url:     base URL with a version
    """

    def __init__(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], directory: Path, *, url: str, ids: Ids
    ) -> None:
        self.name = name
        self.url = url
        self.ids = ids
        self.directory = directory
        self._command = command
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> float:
        """Start it, and return the seconds until it responds to a request for its number. Raises `RunFailed`."""
        started = time.monotonic()
        with (self.directory / f"{self.name}.log").open("ab") as log:
            environment = {**os.environ, **self._environment}
            self._process = spawn.start(self._command, env=environment, cwd=ROOT, stdout=log, stderr=log)
        async with self.client() as http:
            while time.monotonic() - started < MOST_SECONDS:
                if self._process.poll() is not None:
                    break
                with contextlib.suppress(httpx.HTTPError):
                    if (await http.get(f"/{self.ids.number}")).status_code == 200:
                        return time.monotonic() - started
                await asyncio.sleep(POLL)
        raise RunFailed(f"{self.name} did not start: see {self.directory / self.name}.log")

    def client(self) -> httpx.AsyncClient:
        """Return a client of its API."""
        return httpx.AsyncClient(base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30.0)

    async def prepare(self, webhook: str) -> str:
        """Let it post to a webhook, and return the secret of its signatures."""
        raise NotImplementedError

    def kill9(self) -> None:
        """Kill all of its processes at once."""
        if self._process is None:
            return
        try:
            parent = psutil.Process(self._process.pid)
            everyone = [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            everyone = []
        for process in everyone:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        self._process = None

    def memory(self) -> int:
        """Return the bytes of memory of all of its processes."""
        if self._process is None:
            return 0
        parent = psutil.Process(self._process.pid)
        return sum(process.memory_info().rss for process in [parent, *parent.children(recursive=True)])


class TidingsTarget(EmulatorTarget):
    """`tidings up` on SQLite, which accepts any token."""

    def __init__(self, directory: Path) -> None:
        port = free_port()
        found = identity.derive(cloud_client.ACCOUNT)
        parts = ("NETWORK_HTTP", "NETWORK_TCP", "COREAPP", "COREAPP_METRICS")
        self._variables = {
            **{f"TIDINGS_{part}_ADDRESS": f"127.0.0.1:{free_port()}" for part in parts},
            "TIDINGS_API_ADDRESS": f"127.0.0.1:{port}",
            "TIDINGS_DATA_DIR": str(directory / "data"),
            "TIDINGS_CLOUD_OPEN": "1",
            "TIDINGS_MESSAGES_RATE": "0",
            "TIDINGS_STATUS_DELAY_MS": "0",
            "TIDINGS_ROBOTS_KINDS": "11",
            "TIDINGS_ROBOTS_PER_KIND": str(RECIPIENTS),
        }
        super().__init__(
            "tidings",
            [sys.executable, "-m", "cli.main", "up"],
            self._variables,
            directory,
            url=f"http://127.0.0.1:{port}/v25.0",
            ids=Ids(found.phone_number_id, found.waba_id, found.app_id, "155501100"),
        )

    async def prepare(self, webhook: str) -> str:
        body = {
            "object": "whatsapp_business_account",
            "callback_url": webhook,
            "verify_token": VERIFY_TOKEN,
            "fields": "messages",
        }
        async with self.client() as http:
            (await http.post(f"/{self.ids.app}/subscriptions", json=body)).raise_for_status()
            (await http.post(f"/{self.ids.waba}/subscribed_apps", json={})).raise_for_status()
        return await cloud_client.app_secret(self._variables)


class WhalocTarget(EmulatorTarget):
    """whaloc with its state in a file, from a checkout that is built."""

    def __init__(self, directory: Path, checkout: Path, webhook: str, node: str = NODE) -> None:
        port = free_port()
        program = checkout / "packages" / "server" / "dist" / "main.js"
        if not program.exists() or shutil.which(node) is None:
            raise RunFailed(f"{program} or {node} is missing: run `npm ci` and `npm run build` in {checkout}")
        environment = {
            "WHALOC_HOST": "127.0.0.1",
            "WHALOC_PORT": str(port),
            "WHALOC_PUBLIC_URL": f"http://127.0.0.1:{port}",
            "WHALOC_WEBHOOK_URL": webhook,
            "WHALOC_APP_SECRET": SECRET,
            "WHALOC_WEBHOOK_VERIFY_TOKEN": VERIFY_TOKEN,
            "WHALOC_STATUS_DELAYS": "sent:0,delivered:0,read:0",
            "WHALOC_DB_PATH": str(directory / "whaloc.db"),
            "WHALOC_MEDIA_DIR": str(directory / "media"),
        }
        super().__init__(
            "whaloc",
            [node, "--disable-warning=ExperimentalWarning", str(program)],
            environment,
            directory,
            url=f"http://127.0.0.1:{port}/v25.0",
            # Derived by it from its default seed; it accepts any id of an app.
            ids=Ids("573542517421694", "666635535888644", "3711468565284653", "55719900000"),
        )

    async def prepare(self, webhook: str) -> str:
        return SECRET
