"""A phone that is switched off while it connects."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from handset.web.phones import PowerSwitch


async def test_a_phone_that_is_switched_off_while_it_connects_does_not_go_online() -> None:
    begun, finish = asyncio.Event(), asyncio.Event()

    async def dial(handler: Any) -> Any:
        begun.set()
        await finish.wait()
        return mock.Mock()

    switch = PowerSwitch(dial, is_on=True)
    dialling = asyncio.create_task(switch(mock.Mock()))
    await begun.wait()
    switch.is_on = False
    finish.set()
    with pytest.raises(ConnectionRefusedError):
        await dialling
