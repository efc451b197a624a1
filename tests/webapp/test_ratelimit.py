"""Rate limits: the bucket itself, and the independence of endpoints."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.manual_clock import ManualClock
from tests.webapp.conftest import Serve, Served, code
from webapp.rate_limits import buckets
from webapp.rate_limits.buckets import TokenBucket


def test_a_burst_passes_and_then_the_rate_applies() -> None:
    clock = ManualClock()
    bucket = TokenBucket(rate=10, burst=3, clock=clock)
    assert [bucket.take() for _ in range(3)] == [0, 0, 0]
    assert math.isclose(bucket.take(), 0.1)
    clock.advance(0.05)
    assert math.isclose(bucket.take(), 0.05)
    clock.advance(0.06)
    assert bucket.take() == 0
    assert bucket.take() > 0


def test_a_rate_of_zero_is_no_limit() -> None:
    bucket = TokenBucket(rate=0, burst=1, clock=ManualClock())
    assert not any(bucket.take() for _ in range(10_000))


@given(
    rate=st.floats(0.5, 500),
    burst=st.floats(1, 500),
    pauses=st.lists(st.floats(0, 3), min_size=1, max_size=200),
)
def test_tokens_never_exceed_the_burst_plus_the_rate(rate: float, burst: float, pauses: list[float]) -> None:
    clock = ManualClock()
    bucket = TokenBucket(rate, burst, clock)
    taken = 0
    for pause in pauses:
        clock.advance(pause)
        wait = bucket.take()
        taken += wait == 0
        assert wait <= 1 / rate + 1e-9
        assert taken <= burst + clock.monotonic() * rate + 1e-6


@given(st.floats(0.0001, 1000))
def test_waiting_for_retry_after_yields_a_token(rate: float) -> None:
    clock = ManualClock()
    bucket = TokenBucket(rate, 1, clock)
    bucket.take()
    clock.advance(buckets.retry_after(bucket.take()))
    assert bucket.take() == 0


def test_retry_after_is_whole_seconds_and_at_least_one() -> None:
    assert [buckets.retry_after(seconds) for seconds in (0.001, 1, 1.01, 12)] == [1, 1, 2, 12]


async def spend(api: Served, path: str, count: int) -> list[int]:
    return [(await api.http.post(path, json={})).status_code for _ in range(count)]


async def test_messages_and_contacts_have_separate_rate_limits(serve: Serve) -> None:
    clock = ManualClock()
    api = await serve(clock=clock, messages_rate=5, messages_burst=5, contacts_rate=3, contacts_burst=3)
    await api.log_in()
    assert await spend(api, "/v1/messages", 6) == [400] * 5 + [429]
    assert await spend(api, "/v1/contacts", 4) == [400] * 3 + [429]
    clock.advance(1)
    assert await spend(api, "/v1/contacts", 4) == [400] * 3 + [429]
    assert await spend(api, "/v1/messages", 6) == [400] * 5 + [429]
    assert (await api.http.get("/v1/health")).status_code == 200


async def test_read_marks_and_sending_have_separate_rate_limits(serve: Serve) -> None:
    clock = ManualClock()
    api = await serve(clock=clock, messages_rate=2, messages_burst=2)
    await api.log_in()
    marks = [(await api.http.put("/v1/messages/x", json={})).status_code for _ in range(3)]
    assert marks == [400, 400, 429]
    assert await spend(api, "/v1/messages", 3) == [400] * 2 + [429]


async def test_a_request_beyond_the_limit_gets_429_with_retry_after(serve: Serve) -> None:
    api = await serve(clock=ManualClock(), messages_rate=0.25, messages_burst=1)
    await api.log_in()
    assert (await api.send()).status_code == 201
    response = await api.send()
    assert code(response) == (429, 1015)
    assert response.json()["errors"][0]["title"] == "Too many requests"
    assert response.headers["Retry-After"] == "4"


async def test_calls_without_a_valid_token_do_not_consume_the_limit(serve: Serve) -> None:
    api = await serve(clock=ManualClock(), messages_rate=1, messages_burst=1)
    await api.log_in()
    for _ in range(3):
        response = await api.http.post("/v1/messages", json={}, headers={"Authorization": "Bearer x"})
        assert response.status_code == 401
    assert (await api.send()).status_code == 201
