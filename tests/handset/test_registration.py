"""Registration of a person's device: failed attempts leave no growing number of keys behind."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

import pytest

from handset.devices import keys
from handset.devices.context import FleetContext
from handset.devices.registration import DeviceRegistry
from handset.devices.row_sealer import RowSealer
from tests.conftest import DatabaseFactory
from tests.handset.conftest import HANDSET_KEY
from tests.manual_clock import ManualClock
from tidings.client.errors import (
    ClientError,
    NetworkTimeout,
    NetworkUnavailable,
    NetworkUnreached,
    Unauthorized,
    WrongCode,
)
from tidings.client.http import NetworkApi
from tidings.storage.handset import devices, prekeys
from tidings.wire.registration import DeviceRegistration

NUMBER = "15550110001"
KEYS = 3 + 2 + 2  # one-time, Kyber and lasting pre-keys


class FailingApi(NetworkApi):
    """Network that responds to each registration with the next of these errors, and then with a token."""

    def __init__(self, *errors: ClientError) -> None:
        super().__init__("http://127.0.0.1:9")
        self.errors = list(errors)
        self.registered: list[list[int]] = []
        self.tokens: list[str] = []
        self.answered: Callable[[], None] | None = None  # called with each answer; `None` for no call

    async def register(self, device: DeviceRegistration, *, registration_key: str = "") -> str:
        self.registered.append([key.key_id for key in device.prekeys])
        self.tokens.append(device.token)
        if self.answered is not None:
            self.answered()
        if self.errors:
            raise self.errors.pop(0)
        return "token"

    async def register_many(self, devices: Sequence[DeviceRegistration], registration_key: str) -> dict[str, str]:
        return {device.number: await self.register(device) for device in devices}


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (NetworkTimeout("no response"), KEYS),
        (NetworkUnavailable("the network is busy"), KEYS),
        (NetworkUnreached("no connection"), 0),
        (WrongCode("wrong_code"), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ClientError) else "",
)
async def test_failed_attempts_do_not_add_up_to_more_keys(
    database_factory: DatabaseFactory, error: ClientError, kept: int
) -> None:
    database = await database_factory("handset")
    context = FleetContext("test", database, RowSealer(HANDSET_KEY), ManualClock(time.time()))
    device = keys.new_device(NUMBER)
    async with FailingApi(error, error, error) as api:
        registry = DeviceRegistry(context, api)
        for attempt in range(4):
            with contextlib.nullcontext() if attempt == 3 else pytest.raises(type(error)):
                await registry.register(device, one_time=3, kyber_one_time=2, code="123456")
            async with database.reading() as connection:
                stored = (await prekeys.list_key_ids(connection, [NUMBER]))[NUMBER]
                is_stored = await devices.find(connection, NUMBER) is not None
            assert len(stored) == (KEYS if attempt == 3 else kept)
            # The page lists stored devices.
            assert is_stored == bool(stored)
        assert stored.issuperset(api.registered[-1])
    assert device.token == "token"


async def test_a_device_that_was_registered_before_outlives_a_refusal(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    context = FleetContext("test", database, RowSealer(HANDSET_KEY), ManualClock(time.time()))
    device = keys.new_device(NUMBER)
    async with FailingApi() as api:
        registry = DeviceRegistry(context, api)
        await registry.register(device, one_time=3, kyber_one_time=2, code="123456")
        # The network no longer knows the registration.
        device.token = None
        api.errors.append(WrongCode("wrong_code"))
        with pytest.raises(WrongCode):
            await registry.register(device, one_time=3, kyber_one_time=2, code="123456")
        found = await registry.load()
        async with database.reading() as connection:
            stored = (await prekeys.list_key_ids(connection, [NUMBER]))[NUMBER]
    assert found[NUMBER].identity.public == device.identity.public
    assert len(stored) == KEYS


async def test_keys_that_the_network_may_have_outlive_a_refusal(database_factory: DatabaseFactory) -> None:
    database = await database_factory("handset")
    context = FleetContext("test", database, RowSealer(HANDSET_KEY), ManualClock(time.time()))
    device = keys.new_device(NUMBER)
    async with FailingApi(NetworkTimeout("no response"), WrongCode("wrong_code")) as api:
        registry = DeviceRegistry(context, api)
        for expected in (NetworkTimeout, WrongCode):
            with pytest.raises(expected):
                await registry.register(device, one_time=3, kyber_one_time=2, code="123456")
        await registry.register(device, one_time=3, kyber_one_time=2, code="654321")
        async with database.reading() as connection:
            stored = (await prekeys.list_key_ids(connection, [NUMBER]))[NUMBER]
    first, second, third = api.registered
    assert first == second
    assert stored.issuperset(first + third)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (NetworkTimeout("no response"), KEYS - 2),
        (NetworkUnreached("no connection"), 0),
        (Unauthorized("unauthorized"), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ClientError) else "",
)
async def test_failed_attempts_to_register_many_do_not_add_up_to_more_keys(
    database_factory: DatabaseFactory, error: ClientError, kept: int
) -> None:
    database = await database_factory("handset")
    context = FleetContext("test", database, RowSealer(HANDSET_KEY), ManualClock(time.time()))
    device = keys.new_device(NUMBER)
    async with FailingApi(error, error, error) as api:
        registry = DeviceRegistry(context, api)
        for attempt in range(4):
            stop = asyncio.Event()
            if isinstance(error, NetworkUnavailable):
                api.answered = stop.set
            with pytest.raises(type(error)) if attempt < 3 and api.answered is None else contextlib.nullcontext():
                await registry.register_many([device], one_time=3, registration_key="key", stop=stop)
            async with database.reading() as connection:
                stored = (await prekeys.list_key_ids(connection, [NUMBER]))[NUMBER]
                is_stored = await devices.find(connection, NUMBER) is not None
            assert len(stored) == (KEYS - 2 if attempt == 3 else kept)
            assert is_stored == bool(stored)
        assert stored.issuperset(api.registered[-1])
    # Tokens that came after the stop are stored, too.
    assert (await registry.load())[NUMBER].token == device.token == "token"


@pytest.mark.parametrize(
    ("error", "kept"), [(NetworkTimeout("no response"), KEYS - 2), (NetworkUnreached("no connection"), 0)], ids=repr
)
async def test_an_attempt_cancelled_between_requests_leaves_only_keys_that_the_network_may_have(
    database_factory: DatabaseFactory, error: ClientError, kept: int
) -> None:
    database = await database_factory("handset")
    context = FleetContext("test", database, RowSealer(HANDSET_KEY), ManualClock(time.time()))
    device = keys.new_device(NUMBER)
    async with FailingApi(error, Unauthorized("unauthorized")) as api:
        registry, answered = DeviceRegistry(context, api), asyncio.Event()
        api.answered = answered.set

        async def register() -> None:
            await registry.register_many([device], one_time=3, registration_key="key", stop=asyncio.Event())

        first = asyncio.create_task(register())
        await answered.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(Unauthorized):
            await register()
        async with database.reading() as connection:
            stored = (await prekeys.list_key_ids(connection, [NUMBER]))[NUMBER]
    assert api.registered[0] == api.registered[1]
    assert len(stored) == kept


async def test_a_registration_whose_response_was_lost_is_repeated_with_the_same_token(
    database_factory: DatabaseFactory,
) -> None:
    """By the token the network recognises the repetition, and adds no one-time key that it has handed out."""
    database = await database_factory("handset")
    context = FleetContext("test", database, RowSealer(HANDSET_KEY), ManualClock(time.time()))
    one, two = keys.new_device(NUMBER), keys.new_device("15550110002")
    async with FailingApi(NetworkTimeout("no response"), NetworkTimeout("no response")) as api:
        registry = DeviceRegistry(context, api)
        with pytest.raises(NetworkTimeout):
            await registry.register(one, one_time=3, kyber_one_time=2, code="123456")
        await registry.register_many([two], one_time=3, registration_key="key", stop=asyncio.Event())
        await registry.register(one, one_time=3, kyber_one_time=2, code="123456")
    first, second, third, fourth = api.tokens
    assert len({first, second}) == 2
    assert (fourth, third) == (first, second)
    assert min(map(len, api.tokens)) >= 43
