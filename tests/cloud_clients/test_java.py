"""The client library restfb, from Maven, sends to and receives from a real installation. Needs Java and Maven."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.mariadb import free_port
from harness.maven_packages import Jar
from tests.cloud_clients import support

pytestmark = pytest.mark.whole_system

JAVA = Path(__file__).parent / "java"
RESTFB = Jar("com.restfb:restfb:2025.15.0", "180177b926f3368b4b9338696c7ed01e9ddc0766f0b6d27da852684921dde2c1")


async def test_the_java_client_sends_manages_and_parses_signed_webhooks(tmp_path: Path) -> None:
    jar = RESTFB.fetched()
    async with support.serving(tmp_path) as server, support.linked_file() as link:
        variables = {**server.variables(free_port()), "FILE_URL": link}
        command = ["java", "-Dfile.encoding=UTF-8", "-cp", str(jar), "RestFb.java"]
        async with support.running(command, JAVA, variables) as program:
            kinds = ["text", "quoted", "image", "location", "contacts", "buttons", "template", "reaction"]
            done = ["token", "number", "template", "template deleted", "error", "text", "read", "deleted"]
            await support.exchange(server, program, kinds, done)
