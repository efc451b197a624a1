"""Handsets while the disk of their record is full, or one stored row is damaged."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from handset import errors
from handset.application import ReceivedMessage
from handset.devices.context import FleetContext
from handset.receiving.items import Delivery, OutgoingMessage
from handset.receiving.message_store import MessageStore
from handset.shown_log import ShownLog
from tests.handset.harness import SEALER, bench
from tests.handset.scripted import BUSINESS, Business
from tests.handset.test_shown_log import message
from tests.manual_clock import ManualClock
from tidings.storage.handset import inbox
from tidings.wire import content

READER = "15550110001"


class Origin:
    def acknowledge(self, deliveries: Sequence[Any]) -> None: ...


def full(messages: Sequence[ReceivedMessage]) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_a_send_is_not_reported_as_failed_when_only_the_display_failed(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world:
        business = Business()
        (device,) = await world.devices()
        async with world.running():
            business.open(device, world.keys[READER])
            await world.network.until_acked(world.network.deliver(business.seal(READER, "hello")))
        world.phone.show = full  # type: ignore[method-assign]
        store = await MessageStore.open(
            FleetContext("fleet", world.database, SEALER, world.clock, world.limits),
            {READER: device},
            world.phone,
            renew_session=lambda *_: None,
            exchange_keys=lambda *_: None,
        )
        # Both are in one batch.
        store.deliver(Delivery(Origin(), device, business.seal(READER, "again")))
        is_stored = True
        try:
            await store.send(OutgoingMessage(device, BUSINESS, content.encode_text("pay 5 euros")))
        except errors.NotStored:
            is_stored = False
        await store.close()
        # `NotStored` means that it will not be sent. The next message store sends what is in the outbox.
        assert any(row.body for row in await world.outbox()) == is_stored


async def test_a_fleet_waits_while_no_shown_message_can_be_recorded(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world:
        left, show = [2], world.phone.show

        def full_twice(messages: Sequence[ReceivedMessage]) -> None:
            if left[0]:
                left[0] -= 1
                full(messages)
            show(messages)

        world.phone.show = full_twice  # type: ignore[method-assign]
        business = Business()
        (device,) = await world.devices()
        async with world.running():
            business.open(device, world.keys[READER])
            world.network.deliver(business.seal(READER, "hello"))
            async with asyncio.timeout(10):
                await world.phone.until(lambda: bool(world.phone.shown))
        assert [message.text for message in world.phone.shown] == ["hello"]


async def test_a_damaged_row_that_was_not_shown_does_not_stop_the_fleet(tmp_path: Path) -> None:
    async with bench(tmp_path, READER) as world:
        good, bad = (SEALER.seal_text(READER, BUSINESS, id_, "hello") for id_ in ("m2", "m1"))
        bad = bad[:-6] + ("A" if bad[-6] != "A" else "B") + bad[-5:]
        rows = [
            inbox.InboxRow("fleet", n, READER, BUSINESS, f"m{n}", inbox.TEXT, 1_700_000_000_000, text)
            for n, text in enumerate((bad, good), 1)
        ]
        async with world.database.transaction() as connection:
            await inbox.add(connection, rows)
        async with world.running():
            pass
        assert [message.id for message in world.phone.shown] == ["m2"]


def test_a_line_that_a_full_disk_cut_short_does_not_spoil_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = ShownLog(tmp_path / "robots.jsonl", ManualClock())
    write, calls = os.write, 0

    def fills_up(file: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:40])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fills_up)
        with pytest.raises(OSError, match="No space"):
            record.append([message(1)])
    # The disk has space again, and the message store repeats the message.
    record.append([message(1)])
    assert record.list_shown([message(1)]) == {("15550110001", "m1")}
    record.close()
    assert [json.loads(line)["id"] for line in (tmp_path / "robots.jsonl").read_text().splitlines()] == ["m1"]
