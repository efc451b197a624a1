"""Live view: the comparison of two readings, how it is drawn, and its output without a process or a metric."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cli.commands import top
from cli.settings import TopSettings
from cli.top import live, samples, screen
from cli.top.samples import Samples
from cli.top.snapshot import ChangeRow, ProcessRow, QueueRow, Snapshot, compare
from cli.top.sources import ScrapedProcess, ScrapeResult, Sources
from harness.mariadb import free_port
from tidings.secrets.api_key import NO_KEY

COREAPP = ScrapedProcess("coreapp", "http://10.0.0.1:6253/metrics")
OTHER = ScrapedProcess("coreapp", "http://10.0.0.2:6253/metrics")
NETWORK = ScrapedProcess("network", "http://10.0.0.3:9095/metrics")


def text(
    *, cpu: float, accepted: float = 0, left: float = 0, depth: float = 0, epoch: float = 1, slow: float = 0
) -> str:
    """Return metrics of a Coreapp.

    slow: number of 100 calls that took up to 50 ms instead of up to 10 ms.
    """
    return f"""
process_cpu_seconds_total {cpu}
process_resident_memory_bytes 1.2e+08
process_start_time_seconds 1000
tidings_messages_accepted_total {accepted}
tidings_queue_depth{{number="15550000000",queue="jobs",shard="0"}} {depth}
tidings_queue_limit{{number="15550000000",queue="jobs",shard="0"}} 20000
tidings_queue_oldest_seconds{{number="15550000000",queue="jobs",shard="0"}} 1.5
tidings_queue_entered_total{{number="15550000000",queue="jobs",shard="0"}} {accepted}
tidings_queue_left_total{{number="15550000000",queue="jobs",shard="0"}} {left}
tidings_shard_epoch{{shard="0"}} {epoch}
tidings_upstream_seconds_bucket{{call="send",le="0.01"}} {100 - slow if cpu > 10 else 0}
tidings_upstream_seconds_bucket{{call="send",le="0.05"}} {100 if cpu > 10 else 0}
tidings_upstream_seconds_bucket{{call="send",le="+Inf"}} {100 if cpu > 10 else 0}
tidings_upstream_seconds_count{{call="send"}} {100 if cpu > 10 else 0}
"""


def look(source: ScrapedProcess, metrics: str, at: float) -> ScrapeResult:
    return ScrapeResult(source, Samples.parse(metrics, at))


def test_two_scrapes_give_rates_drain_time_and_percentiles() -> None:
    before = [look(COREAPP, text(cpu=10, accepted=1000, left=600, depth=400), 50.0)]
    after = [look(COREAPP, text(cpu=11, accepted=1100, left=900, depth=200, slow=10), 52.0)]
    snapshot = compare(before, after, 1060.0)
    (process,) = snapshot.processes
    assert (process.name, process.state, process.uptime) == ("coreapp 10.0.0.1:6253", "up", 60.0)
    assert (process.cpu, process.memory, process.rate_in) == (0.5, 1.2e8, 50.0)
    (jobs,) = snapshot.queues
    assert (jobs.queue, jobs.shard, jobs.depth, jobs.limit, jobs.oldest) == ("jobs", "0", 200, 20000, 1.5)
    assert (jobs.rate_in, jobs.rate_out, jobs.fill) == (50.0, 150.0, -100.0)
    assert jobs.drain == 2.0
    assert jobs.delay == pytest.approx(200 / 150)
    (call,) = snapshot.latencies
    assert (call.what, call.rate) == ("call send", 50.0)
    assert call.p50 == pytest.approx(0.01 * 50 / 90)
    assert call.p99 == pytest.approx(0.01 + 0.04 * 9 / 10)
    assert [(row.shard, row.owner, row.lease_epoch) for row in snapshot.shards] == [("0", "coreapp 10.0.0.1:6253", 1)]


def test_a_metric_with_only_a_sum_and_a_count_has_a_mean() -> None:
    def posts(count: int, milliseconds: float) -> str:
        labels = '{result="success",type="status_change"}'
        return (
            f"callback_requests_total{labels} {count}\ncallback_requests_duration_ms_sum_total{labels} {milliseconds}\n"
        )

    (row,) = compare([look(COREAPP, posts(10, 500), 1.0)], [look(COREAPP, posts(30, 1500), 2.0)], 0).latencies
    assert (row.what, row.rate, row.p50, row.mean) == ("webhook success", 20.0, None, 0.05)
    assert any(
        line.split()[:5] == ["webhook", "success", "20.0", "-", "-"]
        for line in screen.lines(Snapshot(0.0, [], [], [row], []))
    )


@pytest.mark.parametrize(
    ("metric", "label"),
    [("tidings_webapp_call_seconds", "result"), ("tidings_webapp_question_seconds", "answer")],
    ids=["this release", "previous release"],
)
def test_calls_to_coreapps_are_shown_of_webapps_of_two_releases(metric: str, label: str) -> None:
    def calls(count: int) -> str:
        name = f'{label}="Accepted"'
        return (
            f'{metric}_bucket{{{name},le="0.01"}} {count}\n{metric}_bucket{{{name},le="+Inf"}} {count}\n'
            f"{metric}_count{{{name}}} {count}\n{metric}_sum{{{name}}} {count * 0.005}\n"
        )

    webapp = ScrapedProcess("webapp", "http://10.0.0.4:9090/metrics")
    (row,) = compare([look(webapp, calls(10), 1.0)], [look(webapp, calls(30), 2.0)], 0).latencies
    assert (row.what, row.rate, row.p50) == ("Coreapp call Accepted", 20.0, 0.005)
    assert row.mean == pytest.approx(0.005)


def test_a_growing_queue_has_no_drain_time_and_one_scrape_no_rates() -> None:
    before = [look(COREAPP, text(cpu=10, accepted=0, left=0, depth=0), 50.0)]
    after = [look(COREAPP, text(cpu=11, accepted=100, left=50, depth=50), 51.0)]
    (growing,) = compare(before, after, 0).queues
    assert (growing.fill, growing.drain) == (50.0, None)
    alone = compare([], after, 0)
    assert (alone.processes[0].cpu, alone.queues[0].rate_in, alone.latencies) == (None, None, [])


def test_a_restarted_process_has_no_negative_rates() -> None:
    before = [look(COREAPP, text(cpu=500, accepted=9000, left=9000), 50.0)]
    after = [look(COREAPP, text(cpu=1, accepted=5, left=5), 52.0)]
    snapshot = compare(before, after, 0)
    assert snapshot.processes[0].cpu is None
    assert snapshot.processes[0].rate_in is None
    assert snapshot.latencies == []


def test_an_unreachable_process_stays_in_the_table_until_it_returns() -> None:
    here = look(COREAPP, text(cpu=10), 50.0)
    gone = ScrapeResult(COREAPP, None, "connection refused")
    snapshot = compare([here], [gone], 0)
    assert (snapshot.processes[0].state, snapshot.queues, snapshot.shards) == ("away", [], [])
    assert any("away: connection refused" in line for line in screen.lines(snapshot))
    assert compare([gone], [look(COREAPP, text(cpu=11), 54.0)], 0).processes[0].state == "up"


def test_the_coreapp_with_the_later_epoch_is_shown_as_shard_owner() -> None:
    readings = [look(COREAPP, text(cpu=1, epoch=0), 1.0), look(OTHER, text(cpu=1, epoch=7), 1.0)]
    assert [(row.owner, row.lease_epoch) for row in compare([], readings, 0).shards] == [("coreapp 10.0.0.2:6253", 7)]
    free = compare([], [look(COREAPP, text(cpu=1, epoch=0), 1.0)], 0)
    assert any("0: NOBODY" in line for line in screen.lines(free))


def test_the_progress_of_a_layout_change_is_shown_until_it_is_done() -> None:
    def shards(active: int, wanted: int, moved: int) -> str:
        gauges = f'tidings_shards{{state="active"}} {active}\ntidings_shards{{state="wanted"}} {wanted}\n'
        return text(cpu=1, epoch=0) + gauges + f"tidings_layout_rows_in_place {moved}\n"

    readings = [look(COREAPP, shards(2, 4, 500), 1.0), look(OTHER, shards(2, 4, 1500), 1.0)]
    snapshot = compare([], readings, 0)
    assert snapshot.change == ChangeRow(2, 4, 1500)
    assert any("2 become 4: 1,500 rows" in line for line in screen.lines(snapshot))
    made = compare([], [look(COREAPP, shards(4, 4, 0), 2.0), look(NETWORK, "", 2.0)], 0)
    assert made.change is None
    assert not any("become" in line for line in screen.lines(made))


def test_queues_of_releases_with_plain_gauges_are_shown() -> None:
    def plain(size: int, sent: int) -> str:
        return f'tidings_job_queue_size {size}\ntidings_messages_sent_total{{result="ok"}} {sent}\n'

    before, after = look(COREAPP, plain(100, 0), 1.0), look(COREAPP, plain(60, 50), 2.0)
    (jobs,) = compare([before], [after], 0).queues
    assert (jobs.depth, jobs.rate_out, jobs.rate_in, jobs.fill, jobs.drain) == (60, 50.0, 10.0, -40.0, 1.5)


def test_quantiles_match_those_of_prometheus() -> None:
    buckets = [(0.1, 50.0), (0.5, 90.0), (math.inf, 100.0)]
    assert samples.quantile(buckets, 0.5) == pytest.approx(0.1)
    assert samples.quantile(buckets, 0.7) == pytest.approx(0.1 + 0.4 * 20 / 40)
    assert samples.quantile(buckets, 0.99) == pytest.approx(0.5)
    assert samples.quantile([(0.1, 0.0), (math.inf, 0.0)], 0.5) is None


def process(name: str, **known: float) -> ProcessRow:
    return ProcessRow(name, "coreapp", "up", **known)  # type: ignore[arg-type]


def test_processes_are_sorted_by_the_chosen_column_and_lines_fit_the_window() -> None:
    rows = [process("a", cpu=0.1, memory=3e8), process("b", cpu=0.9, memory=1e8), process("c")]
    snapshot = Snapshot(0.0, rows, [], [], [])

    def order(sort: str) -> str:
        return "".join(line[0] for line in screen.lines(snapshot, sort=sort) if line[:2] in ("a ", "b ", "c "))

    assert (order("name"), order("cpu"), order("memory")) == ("abc", "bac", "abc")
    drawn = screen.lines(snapshot, width=30, height=4)
    assert len(drawn) == 4
    assert all(len(line) <= 30 for line in drawn)
    full = QueueRow("p", "jobs", "", 10_000, 20_000, 61.0, 1.0, 2.0, -1.0, 5000.0, 10_000.0)
    (line,) = [line for line in screen.lines(Snapshot(0.0, [], [full], [], [])) if line.startswith("jobs")]
    assert line.split() == ["jobs", "-", "10000", "50%", "61s", "1.0", "2.0", "-1.0", "83m", "3h", "p"]


def test_keys_control_the_view_and_unknown_keys_are_ignored() -> None:
    state = live.ViewState()
    for key in "sS x":
        state.press(key)
    assert (state.sort, state.due, state.quits) == (screen.SORTS[2], True, False)
    state.press("p")
    assert state.paused
    state.press("q")
    assert state.quits


AUTHORIZATIONS: list[str | None] = []


class _Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        AUTHORIZATIONS.append(self.headers.get("Authorization"))
        content = b"process_resident_memory_bytes 5e7\nprocess_cpu_seconds_total 1\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""


@pytest.fixture
def coreapp() -> Iterator[str]:
    """Address with metrics."""
    server = HTTPServer(("127.0.0.1", 0), _Metrics)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def words(coreapp: str) -> Sequence[str]:
    """Arguments for one process that runs, and two that are unavailable."""
    away = f"127.0.0.1:{free_port()}"
    return ["--coreapp", coreapp, "--webapp", away, "--network", away, "--interval", "0.1"]


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    top.add_arguments(parser)
    return top.run(parser.parse_args(words))


def test_once_with_json_prints_every_table_and_exits_with_1_if_a_process_is_away(
    words: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WA_API_KEY", "a key of monitoring")
    AUTHORIZATIONS.clear()
    assert run(*words, "--once", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"at", "processes", "queues", "latencies", "shards", "change", "faults"}
    states = {row["role"]: (row["state"], row["memory"]) for row in found["processes"]}
    assert states == {"coreapp": ("up", 5e7), "webapp": ("away", None), "network": ("away", None)}
    assert set(AUTHORIZATIONS) == {"Apikey a key of monitoring"}
    assert run(*words, "--once") == 1
    assert "coreapp" in capsys.readouterr().out


def test_the_view_is_drawn_in_a_terminal_until_q(words: Sequence[str]) -> None:
    try:
        master, slave = pty.openpty()
    except OSError as error:
        pytest.skip(f"a root directory without pseudo-terminals: {error}")
    command = [sys.executable, "-m", "cli.main", "top", *words, "--sort", "cpu"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as view:
        os.close(slave)
        seen = b""
        requested = False
        # The read fails with an error when the other end is closed.
        with contextlib.suppress(OSError):
            while part := os.read(master, 4096):
                seen += part
                if not requested and b"by cpu" in seen and b"LATENCY" in seen:
                    requested = True
                    os.write(master, b"sq")
        os.close(master)
    assert (view.returncode, b"away" in seen) == (0, True), seen.decode(errors="replace")


async def test_an_unresponsive_process_does_not_delay_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.top.sources.SECONDS", 0.2)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sources = Sources([ScrapedProcess("network", f"http://127.0.0.1:{port}/metrics")], key=NO_KEY)
    (reading,) = await sources.read()
    assert reading.samples is None
    assert reading.error
    await sources.close()
    server.close()


def test_the_view_shows_the_faults_that_tests_have_requested() -> None:
    webapp = ScrapedProcess("webapp", "http://10.0.0.4:9090/metrics")
    gauge = 'tidings_test_faults{target="messages"} 3\ntidings_test_faults{target="media"} 0\n'
    (line,) = [line for line in screen.lines(compare([], [look(webapp, gauge, 1.0)], 0.0)) if line.startswith("FAULTS")]
    assert line == "FAULTS  messages 3 (calls that are still to fail for tests)"
    assert not [line for line in screen.lines(compare([], [look(webapp, "", 1.0)], 0.0)) if line.startswith("FAULTS")]


def test_the_network_is_scraped_where_it_listens_unless_its_url_is_set() -> None:
    address = {"TIDINGS_NETWORK_HTTP_ADDRESS": "127.0.0.1:19095"}
    assert TopSettings.read(address).network_http == "http://127.0.0.1:19095"
    assert (
        TopSettings.read({**address, "TIDINGS_NETWORK_HTTP_URL": "https://net:9095"}).network_http == "https://net:9095"
    )
    assert TopSettings.read({}).network_http == "http://127.0.0.1:9095"
