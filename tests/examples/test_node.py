"""The client and the receiver in Node work on a real installation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.support import send_and_receive

pytestmark = pytest.mark.whole_system


async def test_the_node_client_sends_and_the_receiver_prints_statuses_and_reply(
    tmp_path: Path,
) -> None:
    await send_and_receive(tmp_path, "node", ".mjs")
