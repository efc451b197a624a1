"""Fixtures: a real network, a scripted one, and devices that this package's client has registered."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator

import pytest

from tests.client.support import ScriptedNetwork
from tests.conftest import DatabaseFactory
from tests.network.support import REGISTRATION_KEY, Network
from tidings import e2ee
from tidings.client import keys
from tidings.client.http import NetworkApi

TOKEN = "a-token-that-nobody-may-read"


@pytest.fixture
def database_engine() -> str:
    return "sqlite"


@dataclasses.dataclass
class Registered:
    number: str
    token: str | None
    identity: e2ee.IdentityKeyPair


def unregistered_device(token: str = TOKEN) -> Registered:
    """Return a device that is not registered."""
    return Registered("15550001111", token, e2ee.IdentityKeyPair.generate())


@pytest.fixture
async def network(database_factory: DatabaseFactory) -> AsyncIterator[Network]:
    network = Network((await database_factory("network")).settings, "tcp")
    await network.start()
    yield network
    await network.remove()


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedNetwork]:
    network = ScriptedNetwork()
    yield network
    network.stop()


@pytest.fixture
async def api(network: Network) -> AsyncIterator[NetworkApi]:
    async with NetworkApi(f"http://127.0.0.1:{network.addresses.http[1]}") as api:
        yield api


async def register(api: NetworkApi, number: str, *, one_time: int = 0, kyber_one_time: int = 0) -> Registered:
    identity = e2ee.IdentityKeyPair.generate()
    made, _ = keys.generate(identity, 1, one_time=one_time, kyber_one_time=kyber_one_time, lasting=True)
    body = made.registration(number, keys.generate_registration_id(), identity.public)
    return Registered(number, await api.register(body, registration_key=REGISTRATION_KEY), identity)
