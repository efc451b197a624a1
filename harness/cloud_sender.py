"""Installation whose number sends through a Cloud API, wherever that is."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.client import UnexpectedResponse
from harness.cloud_client import ACCOUNT
from harness.installation import Installation
from harness.local_only import sitecustomize
from harness.mariadb import MariaDB
from tidings.wire.cloud import identity

# It has no network and no robots.
PROCESSES = ("webapp", "coreapp")
# Highest rate that the command accepts, messages per second.
MOST_RATE = 1000


class CloudSender(Installation):
    """Installation of a number that sends through a Cloud API once it is switched."""

    def __init__(
        self, directory: Path, mariadb: MariaDB | None, environment: Mapping[str, str], *, rate: int, schemas: str = "a"
    ) -> None:
        """rate: messages per second of the number; beyond `MOST_RATE` it is set in the database"""
        directory.mkdir(parents=True, exist_ok=True)
        super().__init__(directory, mariadb, {"TIDINGS_CLOUD_PAIR_PACING": "0", **environment}, schemas=schemas)
        self.ids = identity.derive(ACCOUNT)
        self._rate = rate

    async def switch(self, token: str, secret: str, base_url: str, *options: str) -> str:
        """Send the number's messages through the Cloud API. Returns what the command prints.

        secret: app secret
        options: further ones of `tidings number upstream`
        """
        printed = await self.run(
            *("number", "upstream", ACCOUNT, "cloud", "--base-url", base_url),
            *("--phone-number-id", self.ids.phone_number_id, "--waba-id", self.ids.waba_id),
            *("--messages-per-second", str(min(self._rate, MOST_RATE))),
            *options,
            TIDINGS_CLOUD_TOKEN=token,
            TIDINGS_CLOUD_APP_SECRET=secret,
        )
        if self._rate > MOST_RATE:
            await asyncio.to_thread(self.change, "business", [f"UPDATE upstreams SET rate = {self._rate}"])
        return printed

    async def run(self, *command: str, **variables: str) -> str:
        """Run a command. Returns what it prints. Raises `UnexpectedResponse`."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli.main", *command),
            env={**os.environ, **sitecustomize.environment(), **self.common, **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        printed, wrong = await process.communicate()
        if process.returncode != 0:
            raise UnexpectedResponse(f"tidings {' '.join(command)}: {wrong.decode()}")
        return printed.decode()


def printed_field(printed: str, name: str) -> str:
    """Return a value that `tidings number upstream` has printed. Raises `UnexpectedResponse`."""
    found = re.search(rf"^{name} +(\S+)$", printed, re.MULTILINE)
    if found is None:
        raise UnexpectedResponse(f"no {name} in {printed}")
    return found[1]
