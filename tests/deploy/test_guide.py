"""Guide to the first message with Compose: its commands are executed exactly as the page shows them."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import polling
from tests.deploy import images
from tests.deploy.business import PASSWORD, Business
from tests.deploy.podman import ROOT, Podman
from tests.deploy.project import Project, leftovers
from tests.deploy.terminal import Terminal, code_blocks

PAGE = ROOT / "docs" / "deploy" / "compose.md"
BEGIN, END = "## The first message behind Compose", "### Settings"
COMPOSE = ROOT / "docker" / "docker-compose.yml"
READY_SECONDS = 240.0


def blocks() -> list[str]:
    """Return the blocks of commands of the guide, in order."""
    text = PAGE.read_text(encoding="utf-8")
    return code_blocks(text[text.index(BEGIN) : text.index(END)])


@pytest.fixture
def terminals(podman: Podman, tmp_path: Path) -> Iterator[list[Terminal]]:
    """Three terminals, in which `docker` is the tests' podman. Their containers are removed at the end."""
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.deploy.docker_command {podman.directory} "$@"\n')
    docker.chmod(0o755)
    environment = {
        **podman.environment,
        "PATH": f"{tmp_path}:{podman.environment['PATH']}",
        **images.VARIABLES,
        "TIDINGS_ROBOTS_PER_KIND": "20",
        "PYTHONUNBUFFERED": "1",
    }
    opened = [Terminal(environment) for _ in range(3)]
    try:
        yield opened
    finally:
        for terminal in opened:
            terminal.close()
        project = Project(podman, COMPOSE, os.environ)
        # podman-compose removes only one container of each service.
        project.remove("coreapp")
        project.down()
    assert leftovers(podman) == []


def test_the_guide_s_commands_send_a_message_and_add_a_second_coreapp(
    terminals: list[Terminal], tmp_path: Path
) -> None:
    first, second, third = terminals
    begun = time.monotonic()

    def passed(what: str) -> None:
        print(f"        guide, after {time.monotonic() - begun:.0f} s: {what}", flush=True)

    start, login, listen, send, handset, code, write, scale = blocks()
    # A directory without data of an earlier installation.
    handset = handset.replace("data/compose", str(tmp_path / "handset"))
    first.run(start, 420)
    first.run(login, READY_SECONDS)
    second.type(listen)
    second.wait("waiting for callbacks", 120)
    sent = re.search(r'"messages":\s*\[\{"id":\s*"([^"]+)"', first.run(send, 60))
    assert sent is not None, first.output
    for status in ("sent", "delivered", "read"):
        second.wait(rf"status +{status} +{sent[1]} to 15550140001", 60)
    second.wait('message +text +.* from 15550140001: "Hello!"', 60)
    passed("a message was delivered, and its callbacks came to this machine")

    third.type(handset)
    third.wait("has printed a code", 120)
    issued = json.loads(first.run(code, 30).splitlines()[0])
    third.type(issued["code"])
    third.wait("^Connected", 60)
    written = re.search(r'"messages":\s*\[\{"id":\s*"([^"]+)"', first.run(write, 60))
    assert written is not None, first.output
    second.wait(rf"status +delivered +{written[1]} to 15550190001", 60)
    third.wait("Hello, handset!", 60)
    third.type("Hello, business!")
    second.wait('message +text +.* from 15550190001: "Hello, business!"', 60)
    passed("a handset on this machine received a message and replied")

    assert '"shards":2' in first.run(scale, 120).replace(" ", "")
    business = Business("https://127.0.0.1:9090")
    assert business.login(PASSWORD)[0] == 200
    seen: list[str] = []

    def both_work() -> bool:
        health = business.call("GET", "/v1/health")[1]["health"]
        seen[:] = sorted(str(node["role"]) for node in health.values() if isinstance(node, dict) and "role" in node)
        return seen == ["primary_master", "secondary_master"]

    polling.wait_until(both_work, seconds=120, pause=1.0, failure=lambda: str(seen))
    for number in range(6):
        message = business.send(f"1555014000{number}", "Both shards")
        second.wait(rf"status +read +{message} to", 60)
    passed("a second Coreapp has taken the second shard")
