"""First probes of an attacker: requests that two servers would parse differently, names that become labels, and texts
for which a regular expression never ends."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import pkgutil
import re
import secrets
import time
from collections.abc import Iterator

import pytest

from tests.security.attack import Attack
from tests.security.figures import Figures, Form
from tests.security.scene import Target

SECOND = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD = b"POST /v1/users/login HTTP/1.1\r\nHost: x\r\n"
# Each has a body that contains a second request for a server that determines the length the other way.
AMBIGUOUS = {
    "a length and chunks": HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "chunks and a length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + SECOND,
    "two lengths": HEAD + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(SECOND) + SECOND,
    "a list of lengths": HEAD + b"Content-Length: 0, %d\r\n\r\n" % len(SECOND) + SECOND,
    "a length with a sign": HEAD + b"Content-Length: +0\r\n\r\n" + SECOND,
    "a length in hexadecimal": HEAD + b"Content-Length: 0x0\r\n\r\n" + SECOND,
    "a length that is none": HEAD + b"Content-Length: 0 0\r\n\r\n" + SECOND,
    "another encoding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SECOND,
    "an encoding after chunks": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SECOND,
    "a blank before the colon": HEAD + b"Content-Length: 4\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "a folded line": HEAD + b"Content-Length: 4\r\nX: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "a chunk's size with a sign": HEAD + b"Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + SECOND,
    "a chunk's size too large": HEAD + b"Transfer-Encoding: chunked\r\n\r\n1" + b"0" * 16 + b"\r\n\r\n" + SECOND,
    "a null in a header": HEAD + b"X: a\x00b\r\nContent-Length: 0\r\n\r\n" + SECOND,
    "a return alone": HEAD + b"X: a\rTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + SECOND,
}
PRODUCT = ("tidings", "webapp", "coreapp", "network", "handset", "cli")
SILENCE_S = 1.5
# Series that unknown names may add to the metrics of a process: kinds of response that did not occur before.
NEW_SERIES = 200
REGULAR_SECONDS = 0.1
LONG_TEXT = 20_000


@pytest.mark.parametrize("place", ["webapp", "network"])
async def test_a_request_of_ambiguous_length_is_never_parsed_as_two(
    target: Target, figures: Figures, place: str
) -> None:
    responses = await asyncio.gather(*(_read_responses(target, place, request) for request in AMBIGUOUS.values()))
    found = [name for name, response in zip(AMBIGUOUS, responses, strict=True) if response.count(b"HTTP/1.1 ") > 1]
    figures.record("smuggling", f"requests found within others by {place}", len(found), 0)


async def test_two_consecutive_requests_get_two_responses(target: Target) -> None:
    """Proof that the test above can fail."""
    for place in ("webapp", "network"):
        # An attack before may have exhausted the rate limit.
        async with asyncio.timeout(60):
            while (await _read_responses(target, place, SECOND + SECOND)).count(b"HTTP/1.1 404") != 2:
                pass


async def _read_responses(target: Target, place: str, request: bytes) -> bytes:
    """Return everything received until the connection ends or stays silent."""
    reader, writer = await target.dial(place)
    writer.write(request)
    responses = b""
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(SILENCE_S):
                data = await reader.read(65_536)
            if not data:
                break
            responses += data
    return responses


async def test_unknown_names_do_not_become_metric_labels(target: Target, attack: Attack, form: Form) -> None:
    before = await _series(target)
    async with attack("strange names", on="webapp", others=("webapp",), cpu=None) as strike:
        for _ in range(form.count(short=100, long=2000)):
            name = secrets.token_urlsafe(12)
            await target.business.call("GET", f"/v1/{name}/{name}")
            await target.business.call("GET", f"/v1/media/{name}")
            await target.business.call("PUT", f"/v1/messages/{name}", {"status": name})
            await target.business.call("POST", "/v1/messages", {"to": name, "type": name, name: {}})
    after = await _series(target)
    for process, count in after.items():
        strike.figure(f"new series of {process}", count - before[process], NEW_SERIES)


async def _series(target: Target) -> dict[str, int]:
    texts = await asyncio.to_thread(target.installation.metrics)
    return {name: sum(not line.startswith("#") for line in text.splitlines()) for name, text in texts.items()}


def _patterns() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes]]]:
    """Yield every regular expression that a module of the product holds."""
    for top in PRODUCT:
        package = importlib.import_module(top)
        for info in pkgutil.walk_packages(package.__path__, f"{top}."):
            for name, value in vars(importlib.import_module(info.name)).items():
                if isinstance(value, re.Pattern):
                    yield f"{info.name}.{name}", value


def _slowest(pattern: re.Pattern[str] | re.Pattern[bytes], size: int = LONG_TEXT) -> float:
    """Return the seconds of CPU for the worst of long texts.

    Each text repeats one or two characters and ends in a different one.
    """
    pieces = ("a", "A", "0", " ", ".", "-", "/", ":", "\\", '"', "{", "}", "\n", "a.", "0-", " \t", "a ", "{{1}}")
    worst = 0.0
    for piece in pieces:
        for start in ("", "a", "+", "{", "https://"):
            text = start + piece * (size // len(piece)) + "\x00"
            given = text.encode() if isinstance(pattern.pattern, bytes) else text
            # Time of this thread: a busy machine does not add to it.
            started = time.thread_time()
            pattern.match(given)  # type: ignore[arg-type]
            worst = max(worst, time.thread_time() - started)
    return worst


def test_no_regular_expression_backtracks_on_any_text(figures: Figures) -> None:
    found = {name: _slowest(pattern) for name, pattern in _patterns()}
    assert len(found) > 10
    slowest = max(found, key=found.__getitem__)
    figures.record("regular expressions", f"slowest of {len(found)} ({slowest})", found[slowest], REGULAR_SECONDS, "s")


def test_a_regular_expression_that_backtracks_is_slow() -> None:
    """Proof that the test above can fail."""
    assert _slowest(re.compile("a*a*b"), 5_000) > 10 * _slowest(re.compile("a*b"), 5_000)
