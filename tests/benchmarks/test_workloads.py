"""Computations of the workloads: recovery, growth, ceilings, the cells of a grid."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import time

import pytest

from benchmarks import diverted, drift, numbers, overload, seed000, seed001
from benchmarks.flood import Flood, FloodParameters, HealthCheck, Request
from benchmarks.overload import Window
from benchmarks.rig import stage
from benchmarks.rig.sampler import Point
from harness import client, ledger
from harness.http_connection import Connection
from tests.benchmarks.test_rig import a_run

WINDOW = Window(100.0, 110.0)


def looks(*times: tuple[float, float]) -> list[HealthCheck]:
    return [HealthCheck(200, started, took) for started, took in times]


def calm() -> list[HealthCheck]:
    return looks(*((96.0 + n / 20, 0.010) for n in range(80)))


def test_recovery_ends_when_one_second_is_as_fast_as_before() -> None:
    after = looks(*((110.0 + n / 20, 0.300 if n < 10 else 0.010) for n in range(60)))
    assert overload.until_normal(WINDOW, [*calm(), *after], []) == pytest.approx(0.5)


def test_recovery_lasts_while_messages_are_refused() -> None:
    after = looks(*((110.025 + n / 20, 0.010) for n in range(60)))
    requests = [Request("1", "", 503 if n < 12 else 201, "", 110.0 + n / 10, 0.01) for n in range(30)]
    assert overload.until_normal(WINDOW, [*calm(), *after], requests) == pytest.approx(1.125)


def test_recovery_never_ends_while_health_checks_are_slow_or_fail() -> None:
    slow = looks(*((110.0 + n / 20, 0.300) for n in range(60)))
    assert overload.until_normal(WINDOW, [*calm(), *slow], []) is None
    failing = [HealthCheck(503, 110.0 + n / 20, 0.001) for n in range(60)]
    assert overload.until_normal(WINDOW, [*calm(), *failing], []) is None
    assert overload.until_normal(WINDOW, [*calm(), *looks((110.0, 0.01), (110.5, 0.01))], []) is None


def test_memory_growth_is_measured_after_the_warm_up() -> None:
    # Ten seconds of 1,000 messages each. 50 MB are allocated in the first two, then 1 MB per 1,000 messages.
    points = [Point(float(n), {"coreapp": int((100 + (50 if n >= 2 else 0) + n) * 1e6)}, {}, {}) for n in range(1, 11)]
    assert drift.growth(points, [1000.0] * 10, 2000, 10_000) == {"coreapp": pytest.approx(10.0)}
    assert drift.growth(points, [1000.0] * 10, 0, 2000)["coreapp"] > 100


def test_the_rate_ceiling_adds_two_commit_delays_per_client_cycle() -> None:
    base = dataclasses.replace(a_run("seed", 150), details={"turn_ms": 20.0})
    assert seed000.ceiling(base, 0.0) == pytest.approx(200)
    assert seed000.ceiling(base, 15.0) == pytest.approx(80)


def test_a_recipient_is_checked_the_given_number_of_messages_ahead() -> None:
    work = [client.text_message(str(n), f"text {n}") for n in range(4)]
    turns = [(number, message and message.number) for number, message in client.pair_checks(work, 0)]
    assert turns == [("0", "0"), ("1", "1"), ("2", "2"), ("3", "3")]
    turns = [(number, message and message.number) for number, message in client.pair_checks(work, 2)]
    assert turns == [("0", None), ("1", None), ("2", "0"), ("3", "1"), ("", "2"), ("", "3")]
    # All recipients are checked before the first message.
    assert [bool(message) for _, message in client.pair_checks(work, 9)] == [False] * 4 + [True] * 4


def test_the_runs_under_the_published_conditions_have_both_delays() -> None:
    for setting in seed000.PAGE:
        delay = setting.environment["TIDINGS_DB_COMMIT_DELAY_MS"]
        assert setting.environment["TIDINGS_NETWORK_DELAY_MS"] == "80..150"
        assert delay == ("15" if "commit15" in setting.name else "5")
    kinds = {(setting.checks.blocking, setting.checks.ahead) for setting in seed000.PAGE}
    assert kinds == {("wait", 0), ("no_wait", 0), ("no_wait", 100)}


def test_the_run_with_own_conditions_takes_them_from_the_command_line() -> None:
    parser = argparse.ArgumentParser()
    seed000.add_options(parser)
    options = parser.parse_args(["--distance", "20..40", "--commit-ms", "2", "--blocking", "no_wait", "--ahead"])
    setting = seed000.own_setting(options)
    assert setting.environment == {"TIDINGS_DB_COMMIT_DELAY_MS": "2.0", "TIDINGS_NETWORK_DELAY_MS": "20..40"}
    assert (setting.checks.blocking, setting.checks.ahead) == ("no_wait", 100)
    assert setting.title == "4 clients, cold, network 20..40 ms, 2 ms a commit, `no_wait`"


def test_the_long_grid_has_every_cell_and_the_short_grid_one_line_per_axis() -> None:
    whole = seed001.cells(long=True, quick=False)
    assert len({cell.name for cell in whole}) == 2 * 5 * 4 * 4
    short = {cell.name for cell in seed001.cells(long=False, quick=False)}
    assert len(short) == 2 * (5 + 3 + 3)
    assert short < {cell.name for cell in whole}
    assert {"pass-2000-1KiB-30ms", "transform-300-100KiB-30ms", "pass-300-1KiB-1000ms"} < short


def test_the_reduced_grid_has_all_texts_and_the_documents_of_one_webhook_delay() -> None:
    reduced = seed001.reduced_cells()
    assert len(reduced) == 2 * 5 * 2 * 4 + 2 * 5 * 2
    assert {cell.delay for cell in reduced if seed001.has_file(cell)} == {30}
    assert {cell.users for cell in reduced if seed001.has_file(cell)} == {100, 200, 300, 1000, 2000}


@pytest.mark.parametrize(
    ("words", "seconds"),
    [([], 6), (["--long"], 60), (["--reduced"], 2), (["--reduced", "--seconds", "3"], 3)],
)
def test_the_duration_of_a_cell_depends_on_the_grid(words: list[str], seconds: float) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    seed001.add_options(parser)
    assert seed001.seconds_of(parser.parse_args(words)) == seconds


def test_a_cell_ends_at_its_deadline() -> None:
    cell = seed001.Cell("pass", 100, "50B", 0)
    assert list(cell.work(0.0, ["1"])) == []
    message = next(cell.work(float("inf"), ["1", "2"]))
    assert (message.number, b"pass-100-50B-0ms-0" in message.body) == ("1", True)


def test_the_share_of_the_recipients_is_diverted_in_the_second_third_only() -> None:
    numbers = [f"1555011{index:04}" for index in range(1000)]
    diversion = diverted.Diversion(3000, 0.25)
    routes = [diversion.route(position, numbers[position % 1000]) for position in range(3000)]
    assert set(routes[:1000]) == set(routes[2000:]) == {0}
    assert sum(routes[1000:2000]) == pytest.approx(250, abs=40)
    # A recipient goes to the same installation for the whole third.
    assert [diversion.route(1999, number) for number in numbers] == routes[1000:2000]
    assert {diversion.third(position) for position in (0, 999)} == {"before"}
    assert {diversion.third(position) for position in (1000, 1999)} == {"diverted"}
    assert {diversion.third(position) for position in (2000, 2999)} == {"after"}


async def test_requests_are_sent_to_the_installation_of_their_route() -> None:
    servers = [await asyncio.get_running_loop().create_server(SlowServer, "127.0.0.1", 0) for _ in range(2)]
    businesses = [client.Business(server.sockets[0].getsockname()[1]) for server in servers]
    work = [(str(number), f"text {number}") for number in range(90)]
    found = await diverted.offer(businesses, work, 900.0, diverted.Diversion(90, 1.0))
    for server in servers:
        server.close()
    assert len(found) == 90
    assert {(one.third, one.route) for one in found} == {("before", 0), ("diverted", 1), ("after", 0)}
    latencies = diverted.summaries(found, {"one": time.time()})
    assert {where: each["response"].count for where, each in latencies.items()} == {
        "before, first": 30,
        "diverted, second": 30,
        "after, first": 30,
    }
    assert all(each["response"].min >= 199 for each in latencies.values())


class SlowServer(asyncio.Protocol):
    """Server that responds to a request after 200 ms."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        response = b'HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\n{"messages":[{"id":"one"}]}'
        asyncio.get_running_loop().call_later(0.2, self.transport.write, response)


async def test_health_polls_are_evenly_spaced_despite_slow_responses() -> None:
    listening = await asyncio.get_running_loop().create_server(SlowServer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    start = time.time() + 0.25
    flood = Flood(FloodParameters([port], "token", 1, 10.0, 0.3, start, ["1"], "watch", "", watch=True))
    await flood.run()
    listening.close()
    assert len(flood.result.health_checks) == 6
    assert len(flood.result.requests) == 3
    assert all(look.took >= 0.199 for look in flood.result.health_checks)
    assert {request.id for request in flood.result.requests} == {"one"}


async def test_clients_that_share_numbers_send_each_message_from_the_number_of_its_recipient() -> None:
    class Noting(client.Business):
        def __init__(self) -> None:
            super().__init__(1)
            self.sent: list[str] = []

        async def post(self, connection: Connection, message: client.Message) -> client.Sent:
            self.sent.append(message.number)
            return client.Sent(ledger.Request(message.number, message.digest, 201), 0.0, 0.0)

    businesses = [Noting() for _ in range(numbers.NUMBERS)]
    shared = numbers.SharedClients(businesses)
    for number in stage.recipients(numbers.ROBOTS, numbers.ROBOTS):
        await shared.post(Connection(), client.text_message(number, "text"))
    assert [business.sent for business in businesses] == [numbers.recipients_of(n) for n in range(numbers.NUMBERS)]
