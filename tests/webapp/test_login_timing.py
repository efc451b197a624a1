"""The duration of a refused login does not reveal whether the user exists.

Logins of a user with wrong passwords alternate with logins of unknown users. If the durations reveal nothing, the login
of the user takes longer in half of all pairs (Mann–Whitney statistic). With 300 logins of each kind its standard error
is 0.024, so 0.5 ± 0.12 is five standard errors.
"""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence

import httpx
import pytest

from tests.manual_clock import ManualClock
from tests.webapp.conftest import Serve, basic
from webapp.api.users.credentials import Credentials
from webapp.http.errors import Unauthenticated

TRIES = 300
TOLERANCE = 0.12
# Seconds of the manual clock after which all rate limits on guesses are reset.
PAUSE = 3_600.0

_guesses = itertools.count(1)


def preponderance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the fraction of all pairs in which the first is greater; ties count half."""
    ordered = sorted(second)
    won = sum((bisect.bisect_left(ordered, each) + bisect.bisect_right(ordered, each)) / 2 for each in first)
    return won / (len(first) * len(second))


async def times(attempts: Sequence[Callable[[], Awaitable[None]]]) -> list[list[float]]:
    """Return the durations of each attempt in seconds. Attempts alternate, in an order that changes every round."""
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
    """Return the fraction of pairs in which the administrator's refused login takes longer than an unknown user's."""
    clock = ManualClock(time.time())
    api = await serve(clock=clock)
    await api.log_in()

    # From an address without a login: guesses from other addresses are admitted without the shared buckets.
    transport = httpx.ASGITransport(api.parts.app, client=("192.0.2.7", 50_000))

    async def guess(name: str) -> None:
        # No limit delays a guess.
        clock.advance(PAUSE)
        response = await stranger.post("/v1/users/login", headers=basic(name, f"Guess-{next(_guesses)}!"))
        assert response.status_code == 401, response.text

    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as stranger:
        return preponderance(*await times([lambda: guess("admin"), lambda: guess("nobdy")]))


async def test_the_duration_of_a_refused_login_does_not_reveal_unknown_users(serve: Serve) -> None:
    assert abs(await compare(serve) - 0.5) <= TOLERANCE


async def test_the_statistic_detects_a_check_without_a_hash_for_unknown_users(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Credentials.check

    async def careless(self: Credentials, username: str, password: str, address: str) -> object:
        if username != "admin":
            raise Unauthenticated("wrong user name or password", scheme="Basic")
        return await check(self, username, password, address)

    monkeypatch.setattr(Credentials, "check", careless)
    assert await compare(serve) > 0.5 + TOLERANCE
