"""The client library whatsapp-business-rs, from crates, sends to and receives from a real installation. Needs Cargo."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cargo_programs import CargoProgram
from harness.mariadb import free_port
from tests.cloud_clients import support
from tests.media_samples import PNG

pytestmark = pytest.mark.whole_system

CLIENT = CargoProgram(Path(__file__).parent / "rust")
# The library has this name built in.
HOST = "graph.facebook.com"


async def test_the_rust_client_registers_its_server_sends_and_verifies_webhooks(tmp_path: Path) -> None:
    built = CLIENT.built()
    picture = tmp_path / "a.png"
    picture.write_bytes(PNG)
    async with support.serving(tmp_path) as server, support.as_proxy(server, tmp_path, HOST) as proxy:
        variables = {**server.variables(free_port()), **proxy, "FILE": str(picture)}
        async with support.running([built], tmp_path, variables) as program:
            kinds = ["text", "quoted", "image", "location", "buttons", "list", "link", "reaction"]
            done = ["token", "url", "error", "text", "read", "typing", "deleted"]
            await support.exchange(server, program, kinds, done)
