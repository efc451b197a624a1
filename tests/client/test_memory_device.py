"""Devices in memory exchange messages over a real network."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.client.support import TIMEOUT
from tests.network.support import REGISTRATION_KEY, Network
from tidings import e2ee
from tidings.client.errors import NetworkRefusal
from tidings.client.memory_device import MemoryDevice
from tidings.wire import content, device

ANN, BEN, NOBODY = "15550100001", "15550100002", "15550100003"


class Person(MemoryDevice):
    """Person who keeps the messages received."""

    def __init__(self, url: str, number: str) -> None:
        super().__init__(url, number)
        self.online = asyncio.Event()
        self.messages: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def ready(self) -> None:
        self.online.set()

    def received(self, peer: str, plaintext: bytes) -> None:
        text = content.decode(plaintext).text
        assert text is not None
        self.messages.put_nowait((peer, text.body))

    async def next_message(self) -> tuple[str, str]:
        async with asyncio.timeout(TIMEOUT):
            return await self.messages.get()


@contextlib.asynccontextmanager
async def online(person: Person) -> AsyncIterator[Person]:
    stop = asyncio.Event()
    running = asyncio.create_task(person.run(stop))
    async with asyncio.timeout(TIMEOUT):
        await person.online.wait()
    try:
        yield person
    finally:
        stop.set()
        await running


@pytest.fixture
async def ann(network: Network) -> Person:
    return await registered(network, ANN)


@pytest.fixture
async def ben(network: Network) -> Person:
    return await registered(network, BEN)


async def registered(network: Network, number: str) -> Person:
    person = Person(f"http://127.0.0.1:{network.addresses.http[1]}", number)
    await person.register(REGISTRATION_KEY)
    return person


async def test_two_devices_without_a_session_converse(ann: Person, ben: Person) -> None:
    async with online(ann), online(ben):
        for number in range(3):
            await ann.send(BEN, content.encode_text(f"hello {number}"))
            assert await ben.next_message() == (ANN, f"hello {number}")
            ben.reply(ANN, content.encode_text(f"hi {number}"))
            assert await ann.next_message() == (BEN, f"hi {number}")
        await ann.send(BEN, content.NULL_CONTENT)
        await ann.send(BEN, content.encode_text("and a null message is nobody's"))
        assert await ben.next_message() == (ANN, "and a null message is nobody's")


async def test_a_reply_written_offline_is_sent_once_at_the_next_login(ann: Person, ben: Person) -> None:
    async with online(ben):
        async with online(ann):
            await ann.send(BEN, content.encode_text("first"))
            assert await ben.next_message() == (ANN, "first")
        ann.reply(BEN, content.encode_text("later"))
        async with online(ann):
            assert await ben.next_message() == (ANN, "later")
            await ann.send(BEN, content.encode_text("last"))
            assert await ben.next_message() == (ANN, "last")


async def test_sending_to_an_unregistered_number_and_replying_without_a_session_fail(ann: Person) -> None:
    async with online(ann):
        with pytest.raises(NetworkRefusal) as refused:
            await ann.send(NOBODY, content.encode_text("hello?"))
        assert refused.value.reason == device.NO_SUCH_NUMBER
        with pytest.raises(e2ee.NoSession):
            ann.reply(BEN, content.encode_text("who are you?"))
