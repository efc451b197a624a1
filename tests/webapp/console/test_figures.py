"""Figures of the overview: rates, queues, processes and the chart."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket

import pytest

from cli import process_records
from tests.manual_clock import ManualClock
from tests.webapp.conftest import Served
from tests.webapp.console.browser import Browser, check_page
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings import __version__
from tidings.storage.business import nodes, webapp_nodes
from tidings.storage.business.nodes import CoreappNode
from tidings.storage.business.webapp_nodes import WebappNode
from tidings.storage.database import Database
from tidings.wire import core
from webapp.console.figures import chart
from webapp.console.figures.recorder import FiguresRecorder

METRICS = """
# HELP out_message_persisted_total Messages accepted, by type
# TYPE out_message_persisted_total counter
out_message_persisted_total{{type="text",number="15550000000"}} {accepted}
out_message_persisted_total{{type="text",number="15559990000"}} 1000000.0
out_message_status_total{{status="delivered",number="15550000000"}} {delivered}
out_message_status_total{{status="failed",number="15550000000"}} 3.0
out_message_status_total{{status="sent",number="15550000000"}} 7.0
callback_requests_total{{result="ok",type="status_change",number="15550000000"}} {callbacks}
tidings_queue_depth{{queue="jobs",shard="0",number="15550000000"}} {depth}
tidings_queue_oldest_seconds{{queue="jobs",shard="0",number="15550000000"}} 4.5
tidings_queue_limit{{queue="jobs",shard="0",number="15550000000"}} 20000.0
tidings_queue_depth{{queue="jobs",shard="32",number="15559990000"}} 9.0
tidings_queue_depth{{queue="http",shard="",number=""}} 5.0
"""


def script(coreapp: FakeCoreapp, *, accepted: float, delivered: float, callbacks: float, depth: float) -> None:
    text = METRICS.format(accepted=accepted, delivered=delivered, callbacks=callbacks, depth=depth)
    coreapp.respond(core.GetMetrics, lambda q: core.Metrics(q.n, text))


async def test_rates_are_the_growth_between_two_readings(console: Served, coreapp: FakeCoreapp) -> None:
    clock = ManualClock()
    recorder = FiguresRecorder(console.parts.links, clock)
    script(coreapp, accepted=100, delivered=10, callbacks=50, depth=300)
    await recorder.run_once()
    assert recorder.rates("15550000000") == []
    clock.advance(10)
    script(coreapp, accepted=130, delivered=10, callbacks=55, depth=100)
    await recorder.run_once()
    only = recorder.rates("15550000000")
    assert [point.rates for point in only] == [{"accepted": 3.0, "delivered": 0.0, "failed": 0.0, "callbacks": 0.5}]
    assert only[0].at == 1_700_000_010_000
    # A counter that decreased belongs to a Coreapp that was restarted.
    clock.advance(10)
    script(coreapp, accepted=20, delivered=0, callbacks=0, depth=100)
    await recorder.run_once()
    assert recorder.rates("15550000000")[-1].rates["accepted"] == 2.0


async def test_queues_of_a_number_have_depth_bound_age_and_drain_time(console: Served, coreapp: FakeCoreapp) -> None:
    clock = ManualClock()
    recorder = FiguresRecorder(console.parts.links, clock)
    for depth in (300, 100):
        script(coreapp, accepted=0, delivered=0, callbacks=0, depth=depth)
        await recorder.run_once()
        clock.advance(10)
    found = recorder.queues(0)
    assert [(row.queue, row.shard, row.depth, row.limit, row.oldest) for row in found] == [
        ("jobs", "0", 100, 20000, 4.5)
    ]
    assert found[0].drain == 5.0
    assert len(recorder.queues()) == 2


async def test_readings_of_30_minutes_are_kept(console: Served, coreapp: FakeCoreapp) -> None:
    clock = ManualClock()
    recorder = FiguresRecorder(console.parts.links, clock)
    script(coreapp, accepted=1, delivered=1, callbacks=1, depth=1)
    for _ in range(130):
        await recorder.run_once()
        clock.advance(15)
    points = recorder.rates()
    assert len(points) == 120
    assert points[-1].at - points[0].at == 119 * 15_000


async def test_the_overview_shows_processes_in_words(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    async with database.transaction() as connection:
        await webapp_nodes.renew(connection, WebappNode("w" * 32, "web-1:9090"), delete_after=3600)
        await nodes.join(connection, CoreappNode("core-1", "c" * 32, coreapp.address, 5.0))
        await nodes.join(connection, CoreappNode("core-2", "d" * 32, "127.0.0.1:1", 5.0))
    text = (await browser.get("/console")).text
    rows = re.findall(
        r'data-label="Process">([^<]+)</th>.*?data-label="State"><span class="badge (\w+)">([^<]+)<', text, re.S
    )
    assert ("web-1:9090", "good", "running") in rows
    assert ("core-2", "bad", "does not respond") in rows
    assert ("network", "good", "running") in rows


async def test_the_overview_lists_the_recorded_processes_of_this_host(console: Served, browser: Browser) -> None:
    folder = console.settings.data_dir
    with contextlib.ExitStack() as stack:
        for name in ("network", "robots", "handset", "coreapp"):
            stack.enter_context(process_records.recorded(name, folder, {}))
        me, host = os.getpid(), socket.gethostname()
        killed = folder / "processes" / f"network-{host}-4711.json"
        record = {"process": "network", "pid": 4711, "version": "<1>", "variables": {}, "withheld": []}
        killed.write_text(json.dumps(record))
        (folder / "processes" / f"robots-{host}-1.json").write_text("")  # its process is about to lock it
        (folder / "processes" / f"robots-{host}-2.json").write_text("{}")
        (folder / "processes" / "robots-another-host-3.json").write_text(json.dumps(record))
        response = await browser.get("/console")
        check_page(response)
        rows = {
            (name, kind, state): (detail, heartbeat)
            for name, kind, state, heartbeat, detail in re.findall(
                r'data-label="Process">([^<]+)</th>.*?data-label="Kind">([^<]+)<.*?class="badge \w+">([^<]+)<.*?'
                r'data-label="Last heartbeat">([^<]+)<.*?reason">([^<]+)<',
                response.text,
                re.DOTALL,
            )
        }
        assert {row: about for row, about in rows.items() if row[0].split()[-1] in (str(me), "4711")} == {
            (f"network {me}", "Network", "running"): (__version__, "0 s ago"),
            (f"robots {me}", "Robots", "running"): (__version__, "0 s ago"),
            (f"handset {me}", "Pages of handsets", "running"): (__version__, "0 s ago"),
            ("network 4711", "Network", "was killed"): ("&lt;1&gt;", "–"),
        }
        # The console only reads.
        assert killed.exists()
    assert f"network {me}" not in (await browser.get("/console")).text


async def test_a_record_that_cannot_be_read_hides_no_other_and_is_logged_once(
    console: Served, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    folder = console.settings.data_dir
    with process_records.recorded("network", folder, {}):
        damaged = folder / "processes" / f"robots-{socket.gethostname()}-1.json"
        damaged.mkdir()
        (damaged / "content").write_text("")
        for _ in range(2):
            assert f"network {os.getpid()}" in (await browser.get("/console")).text
    logged = [record.__dict__ for record in caplog.records if record.message == "console.record_unreadable"]
    assert [entry["path"] for entry in logged] == [str(damaged)]


async def test_the_chart_has_a_table_with_the_same_figures(
    console: Served, coreapp: FakeCoreapp, browser: Browser
) -> None:
    recorder = next(part for part in console.parts.console.parts if isinstance(part, FiguresRecorder))
    clock = ManualClock()
    recorder._clock = clock
    for accepted in (0, 600):
        script(coreapp, accepted=accepted, delivered=0, callbacks=0, depth=0)
        await recorder.run_once()
        clock.advance(15)
    text = (await browser.get("/console")).text
    assert 'role="img" aria-label="Line chart' in text
    assert "2023-11-14 22:13:35" in text
    assert re.findall(r'<td class="number">([\d.]+)</td>', text) == ["40.0", "0.0", "0.0", "0.0"]


@pytest.mark.parametrize(
    ("highest", "top"), [(0.0, 1.0), (0.4, 1.0), (1.5, 2.0), (3.0, 4.0), (87.0, 100.0), (820.0, 1000.0)]
)
def test_the_scale_of_a_chart_ends_at_a_round_number(highest: float, top: float) -> None:
    made = chart.draw({"a": [0.0, highest]}, 120)
    assert made.grid[0].value == top
    assert made.grid[-1].value == 0.0
    last = made.lines[0].points.split()[-1].split(",")
    assert float(last[0]) == made.right
