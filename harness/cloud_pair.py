"""Two installations: A sends through the Cloud API that B serves. B's network and robots are those of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Self, cast

from harness import ledger
from harness.client import Business
from harness.cloud_client import VERSION, app_secret
from harness.cloud_sender import PROCESSES, CloudSender, printed_field
from harness.installation import Installation
from harness.mariadb import MariaDB

_ANYBODY = "15550110001"
_SENT_BY_A = "SELECT id, callback_data FROM messages WHERE callback_data IS NOT NULL"


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
        directory_of_b = directory / "b"
        directory_of_b.mkdir(parents=True, exist_ok=True)
        self.a = CloudSender(directory / "a", mariadb, a or {}, rate=rate)
        self.b = Installation(directory_of_b, mariadb, {"TIDINGS_CLOUD_API": "1", **(b or {})}, schemas="b")
        # Ids of A by those of B.
        self._ids: dict[str, str] = {}

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
            "callback_url": f"{callback_origin or f'http://127.0.0.1:{self.a.api_port}'}"
            f"{printed_field(shown, 'callback')}",
            "verify_token": printed_field(shown, "verify token"),
            "fields": "messages",
        }
        await owner.check_call("POST", f"/{VERSION}/{self.a.ids.app_id}/subscriptions", callback)
        await owner.check_call("POST", f"/{VERSION}/{self.a.ids.waba_id}/subscribed_apps", {})
        business = await self.a.business()
        # Waits until the Webapp has reached the Coreapp, so that settings are in force when their responses arrive.
        await business.check_contacts([_ANYBODY])
        return business

    async def switch(self, token: str, base_url: str) -> str:
        """Send A's messages through the Cloud API. Returns what the command prints."""
        return await self.a.switch(token, await app_secret(self.b.common), base_url)

    async def run(self, *command: str, **variables: str) -> str:
        """Run a command of A. Returns what it prints. Raises `UnexpectedResponse`."""
        return await self.a.run(*command, **variables)

    def list_shown(self, since: int = 0) -> list[ledger.Shown]:
        """Return the messages that robots have shown, with the ids of A, which A gave to B with each message.

        since: earlier result of `b.shown_bytes`
        """
        shown = self.b.list_shown(since)
        if any(line.message_id not in self._ids for line in shown):
            self._ids = dict(cast("list[tuple[str, str]]", self.b.read_rows("business", _SENT_BY_A)))
        return [dataclasses.replace(line, message_id=self._ids.get(line.message_id, line.message_id)) for line in shown]
