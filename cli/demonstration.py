"""Simulation of a business: sends messages over HTTP to a whole installation and checks the recipient's inbox."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from cli import callback_receiver, guard
from cli.installation import InstallationAddresses
from handset.devices.row_sealer import RowSealer
from tidings.egress import urls
from tidings.installation.settings import DatabaseSettings
from tidings.secrets import process_secrets
from tidings.secrets.first_password import ADMINISTRATOR
from tidings.secrets.process_secrets import HandsetSecrets
from tidings.storage.database import Database
from tidings.storage.handset import inbox

READER = "15550110001"
ECHO = "15550140001"
TEXT = "Hello from Tidings 👋"
ECHO_TEXT = "Please echo this"
NEW_PASSWORD = "Demo-1-password"  # noqa: S105
POLL_SECONDS = 0.1

STATUSES = ("sent", "delivered", "read")


def environment(own: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Return the environment of an installation that shares no port, file or setting with others on this machine."""
    variables = {name: value for name, value in own.items() if not name.startswith(("TIDINGS_", "WA", "COREAPP_"))}
    api, http, tcp, link, metrics = (f"127.0.0.1:{port}" for port in free_ports(5))
    return {
        **variables,
        "TIDINGS_DATA_DIR": str(directory),
        "TIDINGS_API_ADDRESS": api,
        "TIDINGS_NETWORK_HTTP_ADDRESS": http,
        "TIDINGS_NETWORK_TCP_ADDRESS": tcp,
        "TIDINGS_COREAPP_ADDRESS": link,
        "TIDINGS_COREAPP_METRICS_ADDRESS": metrics,
        "TIDINGS_HANDSET_WEB": "0",
        "TIDINGS_ROBOTS_PER_KIND": "3",
        "TIDINGS_ROBOTS_LOG": str(directory / "robots.jsonl"),
    }


def free_ports(count: int) -> list[int]:
    """Return `count` different loopback ports that are free at this moment."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class Demonstration:
    """Sends one message to a robot that reads and one to a robot that replies, and waits for all expected events."""

    def __init__(self, where: InstallationAddresses, data_dir: Path, print_line: Callable[[str], None]) -> None:
        self._where = where
        self._data_dir = data_dir
        self._print_line = print_line
        self._ids: dict[str, str] = {}  # message id by recipient
        self._statuses: set[tuple[str, str]] = set()
        self._shown = ""
        self._reply = ""
        self._changed = asyncio.Event()

    def missing(self) -> list[str]:
        """Return the expected events that have not happened yet."""
        missing = [
            f"the callback “{name}” of the message to {number}"
            for number in (READER, ECHO)
            for name in STATUSES
            if (self._ids.get(number, ""), name) not in self._statuses
        ]
        if self._shown != TEXT:
            missing.append(f"the text that {READER} decrypted")
        if self._reply != ECHO_TEXT:
            missing.append(f"the reply of {ECHO}")
        return missing

    async def run(self, timeout: float) -> list[str]:
        """Run the demonstration. Returns the expected events that are missing after `timeout` seconds.

        Raises `CommandFailure` when a request is refused or the API cannot be reached.
        """
        try:
            async with (
                callback_receiver.receiving("127.0.0.1", 0, self._callback) as (host, port),
                asyncio.timeout(timeout),
            ):
                async with httpx.AsyncClient(base_url=self._where.api_url, timeout=timeout, trust_env=False) as http:
                    await self._send_messages(http, f"http://{host}:{port}/callback")
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._poll_inbox())
                    group.create_task(self._wait_for_all())
        except TimeoutError:
            pass
        except httpx.TransportError as error:
            raise guard.CommandFailure(f"the API does not respond: {error}") from error
        return self.missing()

    async def _wait_for_all(self) -> None:
        while self.missing():
            await self._changed.wait()
            self._changed.clear()

    async def _send_messages(self, http: httpx.AsyncClient, callback_url: str) -> None:
        body = {"new_password": NEW_PASSWORD}
        basic = urls.basic(f"{ADMINISTRATOR}:{self._where.first_password}")
        answer = await self._call(http, "POST", "/v1/users/login", basic, body)
        self._print_line(f"logged in as {ADMINISTRATOR}, with the first password changed")
        bearer = f"Bearer {answer['users'][0]['token']}"
        settings = {"webhooks": {"url": callback_url}, "sent_status": True}
        await self._call(http, "PATCH", "/v1/settings/application", bearer, settings)
        self._print_line(f"callbacks go to {callback_url}")
        wanted = {"blocking": "wait", "contacts": [f"+{READER}", f"+{ECHO}"]}
        answer = await self._call(http, "POST", "/v1/contacts", bearer, wanted)
        for contact in answer["contacts"]:
            self._print_line(f"contact {contact['input']} is {contact['status']}")
        for to, text in ((READER, TEXT), (ECHO, ECHO_TEXT)):
            message = {"to": to, "type": "text", "text": {"body": text}}
            answer = await self._call(http, "POST", "/v1/messages", bearer, message)
            self._ids[to] = answer["messages"][0]["id"]
            self._print_line(f"message to {to} accepted as {self._ids[to]}: “{text}”")

    async def _call(
        self, http: httpx.AsyncClient, method: str, path: str, authorization: str, body: Any
    ) -> dict[str, Any]:
        response = await http.request(method, path, json=body, headers={"Authorization": authorization})
        if not response.is_success:
            raise guard.CommandFailure(f"{method} {path} was answered {response.status_code}: {response.text[:300]}")
        answer: dict[str, Any] = response.json()
        return answer

    def _callback(self, content: bytes) -> None:
        body = json.loads(content)
        for status in body.get("statuses", []):
            self._print_line(f"callback: {status['id']} is {status['status']}")
            self._statuses.add((status["id"], status["status"]))
        for message in body.get("messages", []):
            text = message.get("text", {}).get("body", "")
            self._print_line(f"callback: {message['from']} wrote “{text}”")
            if message["from"] == ECHO:
                self._reply = text
        self._changed.set()

    async def _poll_inbox(self) -> None:
        """Poll the recipient's database for the decrypted text, whose SHA-256 must also be in the robots' log."""
        database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{self._data_dir / 'handset.db'}"), "handset")
        secrets = process_secrets.read(HandsetSecrets, {}, self._data_dir)
        sealer = RowSealer(secrets.handset_key.keys[0])
        try:
            while not self._shown:
                await asyncio.sleep(POLL_SECONDS)
                async with database.reading() as connection:
                    messages = await inbox.list_messages(connection, "robots", 0, 1000)
                logged = await asyncio.to_thread(_read, Path(self._where.robots_log))
                for message in messages:
                    if (message.number, message.id) != (READER, self._ids.get(READER, "")):
                        continue
                    text = sealer.open_text(message.number, message.peer, message.id, message.content)
                    fingerprint = hashlib.sha256(text.encode()).hexdigest()
                    if fingerprint in logged:
                        self._print_line(f"handset {READER} decrypted: “{text}” (in its log as {fingerprint[:12]}…)")
                        self._shown = text
        finally:
            await database.close()
        self._changed.set()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""
