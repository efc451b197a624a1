"""Passwords guessed by unauthenticated clients: how many are hashed, and the delay for logins with the right password.

The rate is that of a few clients. Floods of requests of any kind are the subject of other tests.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from tests.security.attack import Attack
from tests.security.figures import Form
from tests.security.scene import Target

# Guesses that are hashed, from docs/api.md: at once, and then per second. Not read from the product, because its
# limits are what is tested.
AT_ONE_USER, AT_ANY_USERS = (10, 1 / 10), (3, 1 / 4)
# Guesses per second. Hashing each of them would take a quarter of a core.
PACE = 8
_guesses = itertools.count(1)


async def guess(target: Target, address: str, name: str) -> int:
    """Send a guess that was not made before, and return the status."""
    credentials = base64.b64encode(f"{name}:Guess-{next(_guesses)}!".encode())
    reader, writer = await target.dial("webapp", address)
    try:
        writer.write(
            b"POST /v1/users/login HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nAuthorization: Basic %b\r\n\r\n"
            % credentials
        )
        return int((await reader.readuntil(b"\r\n")).split(b" ", 2)[1])
    finally:
        writer.transport.abort()


async def keep_guessing(target: Target, addresses: Sequence[str], names: Iterable[str], found: Counter[int]) -> None:
    async def note(address: str, name: str) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            found[await guess(target, address, name)] += 1

    async with asyncio.TaskGroup() as group:
        for address, name in zip(itertools.cycle(addresses), itertools.cycle(names), strict=False):
            group.create_task(note(address, name))
            await asyncio.sleep(1 / PACE)


async def attacked(
    target: Target,
    attack: Attack,
    form: Form,
    *,
    name: str,
    addresses: int,
    names: Sequence[str],
    bound: tuple[float, float],
) -> None:
    hosts = [target.unknown_address() for _ in range(addresses)]
    found: Counter[int] = Counter()
    before = await target.metric("webapp", "tidings_password_checks_total")
    async with attack(name, on="webapp", others=("webapp", "logins")) as strike:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(form.pick(short=2.0, long=20.0)):
                await keep_guessing(target, hosts, names, found)
    hashed = await target.metric("webapp", "tidings_password_checks_total") - before
    # Guesses in flight at the end of the attack are included.
    strike.figure("passwords hashed", hashed, bound[0] + bound[1] * (strike.seconds + 1))
    strike.figure("guesses answered a second", found.total() / strike.seconds, None, "/s")
    assert set(found) <= {401, 429, 503}
    assert found[429] > found[401]


@pytest.mark.parametrize("addresses", [1, 50])
async def test_password_guesses_for_admin_are_limited_and_delay_no_logins(
    target: Target, attack: Attack, form: Form, addresses: int
) -> None:
    name = f"guesses at admin from {addresses} addresses"
    await attacked(target, attack, form, name=name, addresses=addresses, names=["admin"], bound=AT_ONE_USER)


async def test_password_guesses_for_many_users_are_limited_and_delay_no_logins(
    target: Target, attack: Attack, form: Form
) -> None:
    names = [f"user{number}" for number in range(1000)]
    await attacked(target, attack, form, name="guesses at many names", addresses=50, names=names, bound=AT_ANY_USERS)
