"""The time of a refused login does not tell whether there is such a user.

Logins of a user with wrong passwords and logins of unknown users alternate. If the times tell nothing, one of the first
takes longer than one of the second in half of all pairs (the statistic of Mann and Whitney). With 300 of each its
standard error is 0.024, so 0.5 ± 0.12 is five of them.
"""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence

import httpx
import pytest

from tests.webapp.conftest import Serve, basic
from tidings.runtime.clock import ManualClock
from webapp.errors import Unauthenticated
from webapp.users.credentials import Credentials

TRIES = 300
TOLERANCE = 0.12
# Seconds of the manual clock after which every limit on guesses is as if nobody had guessed.
PAUSE = 3_600.0

_guesses = itertools.count(1)


def preponderance(first: Sequence[float], second: Sequence[float]) -> float:
    """The share of all pairs in which the first is greater; ties count half."""
    ordered = sorted(second)
    won = sum((bisect.bisect_left(ordered, each) + bisect.bisect_right(ordered, each)) / 2 for each in first)
    return won / (len(first) * len(second))


async def times(attempts: Sequence[Callable[[], Awaitable[None]]]) -> list[list[float]]:
    """The times of each attempt, which alternate; which one is first changes with every round."""
    found: list[list[float]] = [[] for _ in attempts]
    for round_ in range(TRIES + 10):
        for index in range(len(attempts)):
            which = (index + round_) % len(attempts)
            begun = time.perf_counter()
            await attempts[which]()
            if round_ >= 10:
                found[which].append(time.perf_counter() - begun)
    return found


async def compare(serve: Serve) -> float:
    """How often a login of the administrator with a wrong password takes longer than one of an unknown user."""
    clock = ManualClock(time.time())
    api = await serve(clock=clock)
    await api.log_in()

    # From an address from which nobody has logged in: guesses from others are admitted without the shared buckets.
    transport = httpx.ASGITransport(api.parts.app, client=("192.0.2.7", 50_000))

    async def guess(name: str) -> None:
        # Neither limit holds a guess up.
        clock.advance(PAUSE)
        answer = await stranger.post("/v1/users/login", headers=basic(name, f"Guess-{next(_guesses)}!"))
        assert answer.status_code == 401, answer.text

    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as stranger:
        return preponderance(*await times([lambda: guess("admin"), lambda: guess("nobdy")]))


async def test_the_time_of_a_refused_login_does_not_tell_unknown_users(serve: Serve) -> None:
    assert abs(await compare(serve) - 0.5) <= TOLERANCE


async def test_the_statistic_finds_a_check_that_hashes_nothing_for_unknown_users(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Credentials.check

    async def careless(self: Credentials, username: str, password: str, address: str) -> object:
        if username != "admin":
            raise Unauthenticated("wrong user name or password", scheme="Basic")
        return await check(self, username, password, address)

    monkeypatch.setattr(Credentials, "check", careless)
    assert await compare(serve) > 0.5 + TOLERANCE
