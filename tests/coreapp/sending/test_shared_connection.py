"""A connection to the network that shards share: an error of one of them concerns only this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from coreapp.sending.shared_connection import NetworkConnections, SharedConnection
from harness import metrics
from tidings.client import transports
from tidings.wire.device import MESSAGE, TRANSIENT, Deliver, PreKeysLow, Send

ANN, BEN = "15550110001", "15550110002"


class Member:
    """Shard whose listeners raise an error, if it has one."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.called: list[str] = []
        self.errors: list[BaseException] = []

    def _call(self, name: str) -> None:
        self.called.append(name)
        if self.error is not None:
            raise self.error

    def attached(self, number: str) -> None:
        self._call("attached")

    def detached(self, number: str, reason: str, detail: str) -> None:
        self._call("detached")

    def lost(self, reason: str) -> None:
        self._call("lost")

    def delivered(self, delivery: Deliver) -> None:
        self._call("delivered")

    def accepted(self, sent: Sequence[str]) -> None:
        self._call("accepted")

    def refused(self, sent: str, reason: str, detail: str) -> None:
        self._call("refused")

    def held_back(self, sent: str) -> None:
        self._call("held_back")

    def prekeys_low(self, notice: PreKeysLow) -> None:
        self._call("prekeys_low")

    def ended(self, error: BaseException) -> None:
        self.errors.append(error)


@pytest.mark.parametrize(
    ("name", "event", "reaches_both"),
    [
        ("attached", lambda shared, _: shared.attached(ANN), False),
        ("detached", lambda shared, _: shared.detached(ANN, "r", "d"), False),
        ("lost", lambda shared, _: shared.lost("r"), True),
        ("accepted", lambda shared, members: shared.accepted([(member, "id") for member in members]), True),
        ("refused", lambda shared, members: shared.refused((members[0], "id"), "r", "d"), False),
        ("held_back", lambda shared, members: shared.held_back((members[0], "id")), False),
        ("prekeys_low", lambda shared, _: shared.prekeys_low(PreKeysLow(ANN, 1, 1)), False),
    ],
)
async def test_an_error_of_a_shard_ends_only_its_link(
    name: str, event: Callable[[SharedConnection, Sequence[Member]], None], reaches_both: bool, refusing_port: int
) -> None:
    dial = transports.tcp("127.0.0.1", refusing_port)
    connections = NetworkConnections(dial, name="none", backoff=(0.01, 0.02), observe=lambda *_: None)
    error = RuntimeError("a bug")
    broken, sound = Member(error), Member()
    shared = connections.join(ANN, broken)
    assert connections.join(BEN, sound) is shared
    event(shared, [broken, sound])
    assert (broken.called, broken.errors) == ([name], [error])
    assert (sound.called, sound.errors) == ([name] if reaches_both else [], [])
    await shared.leave(ANN)
    await shared.leave(BEN)


async def test_an_envelope_that_is_dropped_does_not_end_the_measurement_of_send_times(refusing_port: int) -> None:
    dial = transports.tcp("127.0.0.1", refusing_port)
    connections = NetworkConnections(dial, name="none", backoff=(0.01, 0.02), observe=lambda *_: None)
    member = Member()
    shared = connections.join(ANN, member)
    count = metrics.value("tidings_upstream_seconds_count", call="send")
    shared.send(Send(0, ANN, BEN, "dropped", TRANSIENT), member)
    # Logged in at last.
    shared.network._attached.add(ANN)
    shared.network._transport = Transport()  # type: ignore[assignment]
    shared.send(Send(0, ANN, BEN, "sent", MESSAGE), member)
    shared.accepted([(member, "sent")])
    assert metrics.value("tidings_upstream_seconds_count", call="send") == count + 1
    shared.network._transport = None
    await shared.leave(ANN)


class Transport:
    """Open connection that drops its frames."""

    def send(self, frame: object) -> None:
        pass
