"""Modules that a receipt passes through: from the network's frame to the callback that the webhook has accepted."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from tests.coreapp.conftest import World
from tests.test_import_direction import ROOT
from tidings.wire import core
from tidings.wire import device as frames

NUMBER = "15550110001"
PRODUCT = tuple(f"{ROOT / name}/" for name in ("coreapp", "tidings"))
# Tasks of a Coreapp that run whether or not a receipt arrives.
BESIDE = {
    "config",
    "heartbeat",
    "job-expiry",
    "limit-events",
    "look",
    "membership",
    "prekeys",
    "renew",
    "shards",
    "template-events",
    "tier-rises",
    "undecrypted",
    "used-keys",
    "watch",
}
# Likewise, in tasks without a name: the runs of services that `service.repeat` starts.
RUNS_BESIDE = {"LimitEvents.run_once", "PreKeyMaintenance._pass", "TemplateEvents.run_once", "TierRises.run_once"}


def _coroutine(task: asyncio.Task[object]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", ""))


@contextlib.contextmanager
def entered() -> Iterator[set[str]]:
    """Collect the product's files in which a function starts or resumes, except in tasks that run beside."""
    found: set[str] = set()

    def called(frame: FrameType, event: str, arg: object) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(PRODUCT):
            return
        with contextlib.suppress(RuntimeError):
            task = asyncio.current_task()
            if task is not None and (task.get_name() in BESIDE or _coroutine(task) in RUNS_BESIDE):
                return
        found.add(str(Path(name).relative_to(ROOT)))

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


async def test_a_receipt_enters_at_most_46_files(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start(heartbeat_seconds=4.0)
    await world.connected(running)
    # The first start makes these in threads, which belong to no task.
    await world.network.signals.until(lambda: any(keys.get("kyber_prekeys") for keys in world.network.uploads))
    await running.client.check(NUMBER)
    response = await running.client.send(NUMBER)
    assert isinstance(response, core.Accepted)
    await world.sink.signals.until(lambda: world.sink.labels() == [(response.id, "sent")])
    await world.until_jobs(0)

    with entered() as files:
        world.network.deliver(NUMBER, frames.DELIVERED, id="receipt", refs=[response.id])
        await world.sink.signals.until(lambda: len(world.sink.taken()) == 2)
        await world.network.signals.until(lambda: world.network.acknowledged == ["receipt"])

    assert world.sink.labels()[1] == (response.id, "delivered")
    assert {"coreapp/receiving/inbox.py", "coreapp/journal/journal.py", "coreapp/webhook/poster.py"} <= files
    assert len(files) <= 46, "\n".join(sorted(files))
