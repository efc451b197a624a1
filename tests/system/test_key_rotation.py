"""Key rotation while messages flow: the command is killed halfway, then the Coreapp, and nothing is lost."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

from harness import polling
from harness.installation import Installation
from tests.system.webhook import Webhook

pytestmark = pytest.mark.whole_system

READER = "15550110000"


def rotate(installation: Installation, **variables: str) -> subprocess.CompletedProcess[str]:
    environment: Mapping[str, str] = {"PATH": "/usr/bin:/bin", **installation.common, **variables}
    return subprocess.run(
        [sys.executable, "-m", "cli.main", "keys", "rotate"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def keys(installation: Installation) -> list[str]:
    found: str = json.loads((installation.data_dir / "secrets" / "coreapp.json").read_text())["master_key"]
    return found.split()


async def test_a_key_rotation_under_load_survives_kills_without_loss(
    installation: Installation, webhook: tuple[Webhook, str]
) -> None:
    sink, url = webhook
    await installation.start()
    business = await installation.business()
    await business.set_webhook(f"{url}?token=kept")
    await business.check_contacts([READER])
    texts: list[str] = []
    done = asyncio.Event()

    async def send() -> None:
        while not done.is_set():
            texts.append(f"message {len(texts)}")
            body = {"to": READER, "type": "text", "text": {"body": texts[-1]}}
            await business.check_call("POST", "/v1/messages", body)
            # Below the rate limit of 80 messages per second.
            await asyncio.sleep(0.015)

    sending = asyncio.create_task(send())
    killed = await asyncio.to_thread(rotate, installation, TIDINGS_CRASH_AT="after-rewrapped-row")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    halfway = keys(installation)
    assert len(halfway) == 2
    again = await asyncio.to_thread(rotate, installation)
    assert again.returncode == 0, again.stderr
    assert keys(installation) == halfway, "the key that was begun is the one that is finished"
    assert "0 rows under another" in again.stdout
    done.set()
    await sending
    # The next owner has the new key, and the old one only for the rows that are still sealed under it.
    await installation.processes["coreapp"].kill9()
    await installation.start(["coreapp"])
    texts.append("the last one")
    await business.check_call("POST", "/v1/messages", {"to": READER, "type": "text", "text": {"body": texts[-1]}})
    wanted = sorted(hashlib.sha256(text.encode()).hexdigest() for text in texts)
    await polling.until(lambda: sorted(shown.digest for shown in installation.list_shown()) == wanted, seconds=60)
    await sink.all_read(len(texts))
    settings = await business.check_call("GET", "/v1/settings/application")
    assert "token=kept" in str(settings)
