"""Callback queue that fills to its limit of 100,000 while the webhook refuses everything, and is drained afterwards."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness import measure, polling
from tests.load.scene import LoadScene, figures_of, under_load

pytestmark = pytest.mark.whole_system

LIMIT = 100_000
# Callbacks per second; each message has three.
RATE = 500.0
ROBOTS = 500
FILL_SECONDS, DRAIN_SECONDS = 600.0, 600.0


def waiting(scene: LoadScene) -> int:
    """Return the number of callbacks in the queue."""
    return int(measure.metric(scene.installation.metrics()["coreapp"], "callback_queue_size"))


async def test_100_000_callbacks_wait_and_are_all_posted_when_the_webhook_is_back(tmp_path: Path) -> None:
    figures = figures_of("test_callback_queue.py")
    async with under_load(tmp_path, robots=ROBOTS) as scene:
        await scene.sink.respond_with(503)
        started = time.monotonic()
        async with scene.sending(RATE / 3, lambda: scene.rng.choice(scene.numbers)) as sent:
            # Messages in flight at the limit are still accepted, and refused from then on.
            await polling.until(lambda: waiting(scene) >= LIMIT, seconds=FILL_SECONDS, pause=1.0)
            filled = time.monotonic() - started
            status, response = await scene.business.call(
                "POST", "/v1/messages", {"to": scene.numbers[0], "type": "text", "text": {"body": "one too many"}}
            )
        assert (status, response["errors"][0]["code"]) == (503, 1016)
        assert "callback queue" in response["errors"][0]["details"]
        figures.record("queue fills", "callbacks per second", LIMIT / filled, 450.0, "1/s", at_least=True)
        accepted = sum(one.request.accepted for one in sent)
        assert accepted >= LIMIT / 3 * 0.99
        # Only refusals because of the queue.
        assert {one.request.status for one in sent} <= {200, 201, 503}

        await scene.collect()
        await scene.sink.respond_with(200)
        started = time.monotonic()
        await polling.until(lambda: not waiting(scene), seconds=DRAIN_SECONDS, pause=0.5)
        drained = time.monotonic() - started
        figures.record("queue drains", "seconds", drained, DRAIN_SECONDS, "s")
        figures.record("queue drains", "callbacks per second", LIMIT / drained, None, "1/s")
        await scene.settle()
        scene.require_balance()
        # Messages are accepted again.
        await scene.send(scene.numbers[:10], 10.0)
        await scene.settle()
        assert all(one.request.accepted for one in scene.sent[-10:])
