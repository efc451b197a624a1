"""Test runs of a client and a receiver of `docs/examples` on a real installation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import httpx

from harness.installation import Installation
from harness.mariadb import free_port

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
ECHO = "15550140000"
SECONDS = 60.0
PASSWORD = "Tidings-2026!"


class Receiver:
    """Running receiver, with its URL and the lines that it has printed."""

    def __init__(self, url: str, output: asyncio.StreamReader) -> None:
        self.url = url
        self._output = output
        self.lines: list[str] = []

    async def read_until(self, wanted: set[str]) -> None:
        """Read lines until all wanted ones have been printed, in any order. Raises `TimeoutError`."""
        async with asyncio.timeout(SECONDS):
            while not wanted <= set(self.lines):
                line = await self._output.readline()
                assert line, self.lines
                self.lines.append(line.decode().strip())


@contextlib.asynccontextmanager
async def running(command: Sequence[str], secret: str) -> AsyncIterator[Receiver]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env=_environment(WEBHOOK_SECRET=secret, PORT=str(port))
    )
    assert process.stdout is not None
    try:
        receiver = Receiver(f"http://127.0.0.1:{port}/", process.stdout)
        await receiver.read_until({"ready"})
        yield receiver
    finally:
        process.kill()
        await process.wait()


async def run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a client until it ends, and return its output."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=_environment(**environment)
    )
    try:
        async with asyncio.timeout(SECONDS):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    return output.decode().strip()


async def send_and_receive(directory: Path, program: str, suffix: str) -> None:
    """Log in, send, receive statuses and a reply; then log in again and repeat the message under its key."""
    client, receiver = ([program, str(EXAMPLES / f"{name}{suffix}")] for name in ("client", "receiver"))
    async with Installation(directory, None, {"TIDINGS_ROBOTS_PER_KIND": "1"}) as installation:
        await installation.start(["network"])
        await asyncio.gather(installation.start(["robots"]), installation.start(["coreapp", "webapp"]))
        async with running(receiver, installation.webhook_secret) as webhook:
            environment = {
                "API_URL": f"http://127.0.0.1:{installation.api_port}",
                "API_PASSWORD": PASSWORD,
                "WEBHOOK_URL": webhook.url,
            }
            words = [ECHO, "Good morning", "order-4711"]
            message_id = await run([*client, *words], {**environment, "API_FIRST_PASSWORD": "secret"})
            assert re.fullmatch(r"gBE\w+[\w-]*", message_id)
            expected = {f"status {status} {message_id}" for status in ("sent", "delivered", "read")}
            await webhook.read_until({*expected, f"message text {ECHO} Good morning"})

            assert await run([*client, *words], environment) == message_id
            assert len(installation.list_shown()) == 1
            await _check_refusal(webhook.url)


async def _check_refusal(url: str) -> None:
    """Check that a callback with a wrong signature is refused."""
    headers = {"webhook-id": "1", "webhook-timestamp": "1795233600", "webhook-signature": "v1,AAAA"}
    async with httpx.AsyncClient() as http:
        assert (await http.post(url, content=b"{}", headers=headers)).status_code == 401
        assert (await http.post(url, content=b"{}")).status_code == 401


def _environment(**chosen: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], **chosen}
