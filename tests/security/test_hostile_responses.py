"""Webhook receiver and media host whose responses never end: the cost to the Coreapp and to the business's
messages."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from harness import measure, polling
from tests.hostile_responses import ALL, GATHERING, HostileHost
from tests.security import scene
from tests.security.attack import BESIDE_OTHERS, Attack
from tests.security.figures import Figures, Form
from tests.security.scene import Target

# Seconds for 99 of 100 `POST /v1/messages`. On a busy machine, twice what they take there without an attack.
P99 = 0.2
# Percent of a core, for all downloads.
DOWNLOADS = 10.0
# Links sent per second. Each is tried three times.
LINKS = 8
# Connections to a webhook receiver, and to one media host.
POSTS, FETCHES = 24, 4
OTHERS = ("messages",)
SHORT_POSTS, SHORT_LINKS = ("interim responses",), ("chunks of one byte",)


@pytest.fixture
async def own(tmp_path: Path) -> AsyncIterator[Target]:
    """Installation with a callback backlog that no other test uses."""
    async with scene.running(tmp_path) as target:
        yield target


async def epochs(target: Target) -> float:
    """Return the epoch, which grows with each lease that is lost and claimed again."""
    return await target.metric("coreapp", "tidings_shard_epoch")


async def usual_p99(target: Target, form: Form) -> float:
    """Return the p99 of `POST /v1/messages` in seconds on this machine, under its present load and without an
    attack."""
    await asyncio.to_thread(target.bystanders.begin, OTHERS)
    await asyncio.sleep(form.pick(short=1.0, long=6.0))
    waited = await asyncio.to_thread(target.bystanders.end)
    return measure.percentiles(waited["messages"].took)["p99"]


class Trial:
    """Series of attacks. All of them run before one that is beyond a limit fails the test."""

    def __init__(self, target: Target, figures: Figures, form: Form) -> None:
        self._target = target
        self._form = form
        self._attack = Attack(target, figures, form)
        self._beyond: list[str] = []
        self._usual: float | None = None

    async def measure_usual(self) -> None:
        """Measure the p99 of messages before the first attack: each attack ends with callbacks that are tried again."""
        self._usual = await usual_p99(self._target, self._form)

    async def one(
        self,
        name: str,
        host: HostileHost,
        work: Callable[[], Awaitable[object]],
        *,
        cpu: float | None,
        connections: int,
    ) -> None:
        """Run one attack by the host.

        work: makes the Coreapp call the host. cpu: limit in percent of a core; None for no limit.
        connections: number of connections that are hostile at once.
        """
        form, before = self._form, await epochs(self._target)
        if self._usual is None:
            raise RuntimeError("measure the usual p99 before the first attack")
        try:
            async with self._attack(name, on="coreapp", others=OTHERS, cpu=cpu, delay=None) as strike:
                working = asyncio.ensure_future(work())
                with contextlib.suppress(TimeoutError):
                    await polling.until(lambda: host.most_open >= connections, seconds=GATHERING)
                await strike.last(form.pick(short=3.0, long=18.0))
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
        except AssertionError as error:
            self._beyond.append(str(error))
        limit = max(P99 if form.long else P99 * BESIDE_OTHERS, 2 * self._usual)
        figures: list[tuple[str, float, float | None, str]] = [
            ("p99 of POST /v1/messages", measure.percentiles(strike.waited["messages"].took)["p99"], limit, "s"),
            ("– without the attack", self._usual, None, "s"),
            ("connections made", host.connections, None, ""),
            ("connections open at once", host.most_open, None, ""),
            ("bytes sent a connection", host.sent / max(1, host.connections), None, ""),
            ("leases lost", await epochs(self._target) - before, 0, ""),
        ]
        for what, measured, most, unit in figures:
            try:
                strike.figure(what, measured, most, unit)
            except AssertionError as error:
                self._beyond.append(str(error))
        if host.most_open < connections:
            self._beyond.append(f"{name}: only {host.most_open} of {connections} connections were open at once")

    def end(self) -> None:
        """Raise `AssertionError` when any figure was beyond its limit."""
        assert not self._beyond, "\n".join(self._beyond)


async def test_a_hostile_webhook_receiver_delays_no_message_and_costs_no_lease(
    own: Target, figures: Figures, form: Form
) -> None:
    trial = Trial(own, figures, form)
    await trial.measure_usual()
    for name in ALL if form.long else SHORT_POSTS:
        with HostileHost(ALL[name], together=POSTS) as host:
            await own.business.set_webhook(host.url)
            await trial.one(f"webhook: {name}", host, asyncio.Event().wait, cpu=None, connections=POSTS)
    trial.end()


async def test_a_hostile_media_host_uses_a_tenth_of_a_core_and_delays_no_message(
    own: Target, figures: Figures, form: Form
) -> None:
    trial, names = Trial(own, figures, form), itertools.count()
    await trial.measure_usual()
    # Each form has other recipients and another host: a message waits behind those to the same recipient, a link behind
    # those of the same host, and the links of the forms before are still being tried.
    recipients = iter([f"1555{kind:03d}{index:04d}" for kind in (11, 14) for index in range(10, 70)])
    for number, name in enumerate(ALL if form.long else SHORT_LINKS, 1):
        with HostileHost(ALL[name], address=f"127.0.9.{number}", together=FETCHES) as host:
            chosen = list(itertools.islice(recipients, LINKS))
            assert len(chosen) == LINKS
            await own.business.check_contacts(chosen)

            async def send_links(url: str = host.url, chosen: list[str] = chosen) -> None:
                while True:
                    for reader in chosen:
                        image = {"to": reader, "type": "image", "image": {"link": f"{url}{next(names)}.png"}}
                        await own.business.check_call("POST", "/v1/messages", image)
                    await asyncio.sleep(1.0)

            await trial.one(f"media: {name}", host, send_links, cpu=DOWNLOADS, connections=FETCHES)
    trial.end()
