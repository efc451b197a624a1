"""Two installations: A sends through the Cloud API that B serves. B's network and robots are those of both."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from harness.client import Business, Unexpected
from harness.cloud_client import ACCOUNT, VERSION, app_secret
from harness.installation import Installation
from harness.mariadb import MariaDB
from tidings.wire.cloud import identity

# A has no network and no robots.
PROCESSES = ("webapp", "coreapp")
_ANYBODY = "15550110001"


class CloudPair:
    """Installations `a` and `b`, as an asynchronous context manager that stops them at its end."""

    def __init__(
        self,
        directory: Path,
        *,
        a: Mapping[str, str] | None = None,
        b: Mapping[str, str] | None = None,
        rate: int = 80,
        mariadb: MariaDB | None = None,
    ) -> None:
        """a, b: variables of the installations.

        rate: messages per second of A's number
        mariadb: server with the tables of both, in databases of their own; None for SQLite
        """
        self._rate = rate
        self.a = Installation(
            _made(directory / "a"), mariadb, {"TIDINGS_CLOUD_PAIR_PACING": "0", **(a or {})}, schemas="a"
        )
        self.b = Installation(_made(directory / "b"), mariadb, {"TIDINGS_CLOUD_API": "1", **(b or {})}, schemas="b")
        self._ids = identity.derive(ACCOUNT)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.a.stop()
        await self.b.stop()

    @property
    def base_url(self) -> str:
        """URL of the Cloud API of B."""
        return f"http://127.0.0.1:{self.b.api_port}/{VERSION}"

    async def start(self, base_url: str = "", callback_origin: str = "") -> Business:
        """Start both and connect them. Returns the business at A, logged in.

        base_url: URL at which A calls the Cloud API; empty for B's own
        callback_origin: origin to which B posts events; empty for A's own
        """
        await self.b.start()
        owner = await self.b.business()
        await self.run("migrate")
        shown = await self.switch(owner.token, base_url or self.base_url)
        await self.a.start(PROCESSES)
        callback = {
            "object": "whatsapp_business_account",
            "callback_url": f"{callback_origin or f'http://127.0.0.1:{self.a.api_port}'}{_field(shown, 'callback')}",
            "verify_token": _field(shown, "verify token"),
            "fields": "messages",
        }
        await owner.must("POST", f"/{VERSION}/{self._ids.app_id}/subscriptions", callback)
        await owner.must("POST", f"/{VERSION}/{self._ids.waba_id}/subscribed_apps", {})
        business = await self.a.business()
        # Waits until the Webapp has reached the Coreapp, so that settings are in force when they are answered.
        await business.check_contacts([_ANYBODY])
        return business

    async def switch(self, token: str, base_url: str) -> str:
        """Send A's messages through the Cloud API. Returns what the command prints."""
        return await self.run(
            *("number", "upstream", ACCOUNT, "cloud", "--base-url", base_url),
            *("--phone-number-id", self._ids.phone_number_id, "--waba-id", self._ids.waba_id),
            *("--messages-per-second", str(self._rate)),
            TIDINGS_CLOUD_TOKEN=token,
            TIDINGS_CLOUD_APP_SECRET=await app_secret(self.b.common),
        )

    async def run(self, *command: str, **variables: str) -> str:
        """Run a command of A. Returns what it prints. Raises `Unexpected`."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli.main", *command),
            env={**os.environ, **self.a.common, **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, wrong = await process.communicate()
        if process.returncode != 0:
            raise Unexpected(f"tidings {' '.join(command)}: {wrong.decode()}")
        return printed.decode()


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _field(shown: str, name: str) -> str:
    """Return a value that `tidings number upstream` prints."""
    found = re.search(rf"^{name} +(\S+)$", shown, re.MULTILINE)
    if found is None:
        raise Unexpected(f"no {name} in {shown}")
    return found[1]
