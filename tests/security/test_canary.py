"""Canary run: secrets are sent to every endpoint and appear in no log, metric, error or crash report.

Everything is logged and the processes write profiles of their stacks. At the end one process is killed in the middle of
its work and one is made to dump its stacks.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from harness.client import PASSWORD
from harness.installation import Installation
from harness.sink_process import SinkProcess
from tests.security.figures import Figures
from tests.web_server import serving

READER, ECHO = "15550110000", "15550140000"
MARK = "Kanari9"  # part of every canary
ENVIRONMENT = {
    "TIDINGS_LOG_LEVEL": "debug",
    "PYTHONFAULTHANDLER": "1",
    "TIDINGS_ROBOTS_KINDS": "11,14",
    "TIDINGS_ROBOTS_PER_KIND": "1",
    "TIDINGS_LINK_KEY": f"link-{MARK}-key",
    "TIDINGS_REGISTRATION_KEY": f"registration-{MARK}-key-of-32-characters",
    "WA_WEB_JWT_CRYPTO_KEY": f"signing-{MARK}-key-of-32-characters-at-least",
    "WA_API_KEY": f"monitoring-{MARK}-key",
    "TIDINGS_OPERATOR_KEY": f"operator-{MARK}-key",
}
METHODS = ("get", "post", "put", "patch", "delete")
# Operations that would end the run for those after them. They are called with invalid input, not omitted.
ENDING = {"/v1/users/logout", "/v1/account", "/v1/settings/restore"}

_counter = itertools.count(1)


def canary(purpose: str) -> str:
    """Return a unique value."""
    return f"{purpose}-{MARK}-{next(_counter)}"


def fill(schema: Mapping[str, Any], parts: Mapping[str, Any], depth: int = 0) -> Any:
    """Return a body with a canary in every string of a schema."""
    if "$ref" in schema:
        return fill(parts[schema["$ref"].rpartition("/")[2]], parts, depth + 1)
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema and depth < 12:
            kinds = [one for one in schema[choice] if one.get("type") != "null"]
            return fill(kinds[0], parts, depth + 1) if kinds else None
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    if schema.get("type") == "object" and depth < 12:
        found = {name: fill(one, parts, depth + 1) for name, one in schema.get("properties", {}).items()}
        # User names may appear in logs.
        return found | ({"username": "somebody"} if "username" in found else {})
    if schema.get("type") == "array" and depth < 12:
        return [fill(schema.get("items", {}), parts, depth + 1)]
    return {"integer": 1, "number": 1, "boolean": True}.get(str(schema.get("type")), canary("body"))


class Traces:
    """Receiver of traces. It keeps what it was sent, as text."""

    def __init__(self) -> None:
        self.text = ""

    async def take(self, request: web.Request) -> web.Response:
        content = await request.read()
        self.text += content.decode("latin-1")
        return web.Response(content_type="application/x-protobuf")


@pytest.fixture
async def receiver() -> AsyncIterator[tuple[Traces, str]]:
    """Yield a receiver and its URL."""
    traces = Traces()
    app = web.Application(client_max_size=50_000_000)
    app.router.add_post("/v1/traces", traces.take)
    async with serving(app) as url:
        yield traces, url


def operators_tools(installation: Installation) -> dict[str, str]:
    """Return the output of the operator's commands."""
    commands = {
        "queue callbacks": ("queue", "callbacks", "--json"),
        "queue jobs": ("queue", "jobs", "--json"),
        "doctor": ("doctor", "--quick", "--json"),
        "top": ("top", "--once", "--json", "--interval", "0.2"),
    }
    environment = {**os.environ, **installation.common}
    return {
        name: "".join(
            subprocess.run(
                [sys.executable, "-m", "cli.main", *words], env=environment, capture_output=True, text=True, timeout=60
            ).stdout
        )
        for name, words in commands.items()
    }


class Run:
    """One installation, with every error response that it gave."""

    def __init__(self, installation: Installation, http: httpx.AsyncClient, traces: Traces) -> None:
        self.installation = installation
        self.traces = traces  # receiver of the traces of the processes
        self.http = http
        self.errors: list[str] = []
        self.calls = 0

    async def call(self, method: str, path: str, **sent: Any) -> httpx.Response:
        response = await self.http.request(method, path, **sent)
        self.calls += 1
        if response.status_code >= 400:
            # A name in a path is no secret, and errors may contain it.
            self.errors.append(f"{method} {path}: {response.text} {dict(response.headers)}")
        return response

    async def every_operation(self) -> None:
        """Send canaries as bodies, in the strings of bodies, as tokens, in headers and queries."""
        document = (await self.call("GET", "/openapi.json")).json()
        parts = document["components"]["schemas"]
        for path, operations in document["paths"].items():
            for method in METHODS:
                if method in operations:
                    await self._operation(method.upper(), path, operations[method], parts)

    async def _operation(self, method: str, path: str, operation: Any, parts: Any) -> None:
        filled = path.replace("{", "").replace("}", "")
        bodies: list[dict[str, Any]] = [{"content": canary("raw").encode()}]
        content = operation.get("requestBody", {}).get("content", {})
        for kind, described in content.items():
            if kind == "application/json":
                bodies.append({"json": fill(described.get("schema", {}), parts)})
            else:
                bodies.append({"content": canary("file").encode(), "headers": {"Content-Type": kind}})
        for body in bodies:
            headers = {**body.pop("headers", {}), "X-Secret": canary("header"), "Cookie": canary("cookie")}
            for authorization in (f"Bearer {canary('token')}", f"Apikey {canary('key')}", _basic(canary("password"))):
                given = headers | {"Authorization": authorization}
                await self.call(method, filled, headers=given, params={"q": canary("query")}, **body)
            if path not in ENDING and not (method == "DELETE" and path == "/v1/settings/application"):
                await self.call(method, filled, headers=headers, params={"q": canary("query")}, **body)

    async def real_work(self, sink: SinkProcess) -> None:
        """Perform the work of a business successfully, with canaries wherever something is private."""
        good = [
            ("POST", "/v1/users", {"username": "observer", "password": f"{canary('Pass')}!aA1"}),
            ("PUT", "/v1/users/observer", {"password": f"{canary('Other')}!aA1"}),
            ("POST", "/v1/settings/application/media/providers", [self._provider()]),
            ("PATCH", "/v1/settings/profile/about", {"text": canary("about")}),
            ("POST", "/v1/settings/backup", {"password": canary("backup")}),
            ("PATCH", "/v1/settings/application", {"webhooks": {"url": _with_secrets(sink.url)}, "sent_status": True}),
            ("POST", "/v1/contacts", {"blocking": "wait", "contacts": [READER, ECHO]}),
        ]
        for method, path, body in good:
            response = await self.call(method, path, json=body)
            assert response.status_code < 300, response.text
        link = f"http://127.0.0.1/{canary('path')}?signature={canary('signature')}"
        messages: list[dict[str, Any]] = [
            {"to": to, "type": "text", "text": {"body": canary("text")}} for to in (READER, ECHO) for _ in range(5)
        ]
        messages += [
            {
                "to": READER,
                "type": "image",
                "image": {"link": link, "provider": {"name": "files"}, "caption": canary("c")},
            },
            {"to": READER, "type": "location", "location": {"latitude": 1, "longitude": 2, "name": canary("place")}},
            {
                "to": READER,
                "type": "contacts",
                "contacts": [{"name": {"formatted_name": canary("x"), "first_name": "x"}}],
            },
        ]
        for message in messages:
            response = await self.call("POST", "/v1/messages", json=message)
            assert response.status_code == 201, response.text

    @staticmethod
    def _provider() -> dict[str, Any]:
        config = {"bearer": canary("bearer"), "hosts": ["127.0.0.1", "*.example.com"]}
        return {"name": "files", "type": "www", "config": config}

    async def crash(self) -> None:
        """Let one process dump its stacks as it dies, and kill one while it works."""
        processes = self.installation.processes
        for name, end in (("webapp", signal.SIGABRT), ("coreapp", signal.SIGKILL)):
            pid = processes[name].pid
            assert pid is not None
            os.kill(pid, end)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(processes[name].wait(), 10)


def _basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"admin:{password}".encode()).decode()


def _with_secrets(url: str) -> str:
    return url.replace("http://", f"http://{canary('user')}:{canary('secret')}@") + f"?token={canary('query')}"


@pytest.fixture
async def run(tmp_path: Path, receiver: tuple[Traces, str]) -> AsyncIterator[Run]:
    traces, url = receiver
    environment = {**ENVIRONMENT, "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    async with Installation(tmp_path, None, environment, profile=True) as installation:
        await installation.start()
        business = await installation.business()
        headers = {"Authorization": f"Bearer {business.token}"}
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{installation.api_port}", headers=headers, timeout=60
        ) as http:
            run = Run(installation, http, traces)
            yield run


def found_in(text: str, secrets: list[str]) -> list[str]:
    """Return the lines that contain a secret."""
    return [line[:300] for line in text.splitlines() if any(secret in line for secret in secrets)]


def kept_secrets(directory: Path) -> list[str]:
    """Return the secrets that the processes generated at their first start."""
    files = [json.loads(path.read_text()) for path in directory.rglob("*.json") if "secret" in str(path)]
    return [value for found in files for value in found.values() if isinstance(value, str) and len(value) >= 32]


def left_behind(directory: Path) -> dict[str, str]:
    """Return the logs, including the output of a crash, and the profiles."""
    files = [*directory.glob("*.log"), *directory.glob("profile-*.txt")]
    return {path.name: path.read_text(errors="replace") for path in files}


async def test_no_secret_appears_in_logs_metrics_errors_or_crash_reports(
    run: Run, tmp_path: Path, figures: Figures
) -> None:
    installation = run.installation
    async with SinkProcess(tmp_path, installation.webhook_secret, verify_every=1) as sink:
        await run.real_work(sink)
        async with asyncio.timeout(60):
            await sink.wait_complete(10)
        await run.every_operation()
        tools = await asyncio.to_thread(operators_tools, installation)
        metrics = await asyncio.to_thread(installation.metrics)
        await run.crash()
        await installation.stop()
    secrets = [MARK, PASSWORD, installation.webhook_secret, run.http.headers["Authorization"].split()[1]]
    secrets += kept_secrets(installation.data_dir)
    texts = left_behind(tmp_path)
    texts |= {f"metrics of {name}": text for name, text in metrics.items()} | {"errors": "\n".join(run.errors)}
    texts |= tools | {"traces": run.traces.text}
    # Otherwise nothing would have been searched.
    assert {"webapp.log", "coreapp.log", "network.log", "errors", "metrics of coreapp"} <= texts.keys()
    assert "Fatal Python error: Aborted" in texts["webapp.log"]
    assert READER in texts["coreapp.log"]
    assert "webhook.post" in texts["traces"]
    assert '"callbacks"' in texts["queue callbacks"]
    assert '"findings"' in texts["doctor"]
    assert '"processes"' in texts["top"]
    for process, event in (("webapp", "http.responded"), ("coreapp", "message.sent"), ("network", "envelope.decided")):
        assert event in texts[f"{process}.log"]
    leaks = [f"{name}: {line}" for name, text in texts.items() for line in found_in(text, secrets)]
    figures.record("canary run", "calls", run.calls, 300, "calls", at_least=True)
    figures.note(
        "canary run", f"secrets found in {len(texts)} logs, metrics, profiles and responses", len(leaks), 0, "lines"
    )
    assert not leaks, "\n".join(leaks)
