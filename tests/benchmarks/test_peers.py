"""Comparison with other systems: a loss is detected, and the report states where others are faster, and why."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from benchmarks.peers import __main__ as peers
from benchmarks.peers import delivery, jobs, load, readings, report
from benchmarks.peers.load import JobRun, Unfinished
from benchmarks.rig.run import Ratio, Run, RunFailed
from benchmarks.rig.summary import summarise
from tests.benchmarks.test_rig import SHARED, a_run, samples


async def nothing_left() -> int:
    return 0


async def test_repeated_and_unknown_jobs_are_counted_separately() -> None:
    run = JobRun()

    async def enqueue(number: int, _body: str) -> None:
        run.work(number)
        run.work(number)
        await asyncio.sleep(0)
        if number == 1:
            run.work(1_000_000)

    found = await run.drive({"seconds": 0.01, "clients": 2}, enqueue, nothing_left)
    assert found["worked"] == found["jobs"] > 1
    assert (found["repeated"], found["unknown"], found["left"]) == (found["jobs"], 1, 0)
    assert sum(found["per_second"]) == found["jobs"]


async def test_a_job_that_is_never_worked_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "TIMEOUT", 0.01)
    run = JobRun()

    async def enqueue(number: int, _body: str) -> None:
        if number != 2:
            run.work(number)
        await asyncio.sleep(0)

    with pytest.raises(Unfinished, match=r"of \d+ jobs"):
        await run.drive({"seconds": 0.01, "clients": 2}, enqueue, nothing_left)


async def test_jobs_of_two_processes_are_matched_by_their_number(tmp_path: Path) -> None:
    clients, workers = JobRun(role=load.ENQUEUE), JobRun(role=load.WORK)

    async def enqueue(number: int, _body: str) -> None:
        await asyncio.sleep(0)
        workers.work(number)
        if number == 1:
            workers.work(number)

    records = [tmp_path / part for part in ("enqueued", "worked")]
    enqueued = await clients.drive({"seconds": 0.05, "clients": 2, "record": str(records[0])}, enqueue, nothing_left)
    worked = await workers.drive({"expect": enqueued["jobs"], "record": str(records[1])}, enqueue, nothing_left)
    assert enqueued["jobs"] > 1
    assert worked == {"worked": enqueued["jobs"], "repeated": 1, "left": 0}
    found = jobs.merge(*map(jobs.read_record, records))
    assert (found.worked, found.unknown) == (enqueued["jobs"], 0)
    assert sum(found.per_second) == enqueued["jobs"]
    assert 0 <= min(found.waits) <= max(found.waits) <= found.seconds


async def test_a_job_that_never_arrives_in_the_other_process_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "TIMEOUT", 0.01)
    workers = JobRun(role=load.WORK)
    workers.work(1)
    with pytest.raises(Unfinished, match="of 2 jobs 1 were worked"):
        await workers.drive({"expect": 2, "record": "unused"}, never, nothing_left)


async def never(_number: int, _body: str) -> None:
    raise AssertionError


def test_times_between_two_processes_are_from_enqueueing_to_the_work() -> None:
    second = 1_000_000_000
    found = jobs.merge({1: 5 * second, 2: 6 * second}, {2: 8 * second, 1: 6 * second, 3: 7 * second})
    assert (found.worked, found.unknown, found.seconds) == (2, 1, 3.0)
    assert sorted(found.waits) == [1.0, 2.0]
    assert found.per_second == [0, 1, 0, 1]
    with pytest.raises(RunFailed):
        jobs.merge({1: second}, {})


@pytest.mark.parametrize("wrong", [{"jobs": 0}, {"worked": 9}, {"unknown": 1}, {"left": 1}])
def test_a_job_run_with_inconsistent_counts_fails(wrong: dict[str, int]) -> None:
    good = {"jobs": 10, "worked": 10, "repeated": 1, "unknown": 0, "left": 0}
    jobs.reconcile("jobs", good)
    with pytest.raises(RunFailed):
        jobs.reconcile("jobs", good | wrong)


@pytest.mark.parametrize("wrong", [{"messages": 0}, {"arrived": 9}, {"acked": 9}, {"faults": 1}])
def test_a_delivery_run_with_inconsistent_counts_fails(wrong: dict[str, int]) -> None:
    good = {"messages": 10, "arrived": 10, "acked": 10, "faults": 0}
    delivery.reconcile(delivery.WAYS[0], good)
    with pytest.raises(RunFailed):
        delivery.reconcile(delivery.WAYS[0], good | wrong)


def a_queue(name: str, rate: float, *, cpu: float = 0.5) -> Run:
    """Return a run of a job queue.

    cpu: CPU seconds for its 1,000 jobs.
    """
    summary = summarise([0.010, 0.020])
    return dataclasses.replace(
        a_run(name, rate),
        title=name.capitalize(),
        unit="jobs",
        latencies={jobs.ENQUEUED: summary, jobs.WORKED: summary},
        samples=dataclasses.replace(samples(), cpu={"store": cpu}),
        parameters={"durability": "on disk", "note": "as it is"},
        details={"repeated": 0},
    )


def test_the_report_states_where_a_peer_is_faster_and_why() -> None:
    ours, river = a_queue("jobs-tidings", 1000), a_queue("jobs-river", 2000, cpu=0.9)
    said = readings.of("jobs", [ours, river])
    assert "**ahead of ours** in rate (2,000 to 1,000): " + readings.WHY["jobs-river"].rstrip(".") in said
    assert "behind in CPU µs (900 to 500)" in said
    shared = dataclasses.replace(river, samples=dataclasses.replace(river.samples, shares=SHARED))
    assert "no judgement" in readings.of("jobs", [ours, shared])


def test_the_report_shows_our_rate_relative_to_each_peer() -> None:
    runs = [a_queue("jobs-tidings", 1000), a_queue("jobs-river", 500)]
    said = report.part("jobs", runs, [Ratio("jobs-river", "jobs-tidings", 0.5, [0.5])])
    assert "| Jobs-river | **500** | 2.00 | **500** (store 500) |" in said
    assert "| Jobs-tidings | **1,000** | – |" in said


def test_every_report_part_includes_our_run_and_every_reason_names_a_run() -> None:
    assert all(f"{part}-tidings" in peers.NAMES for part in report.HEADS)
    assert readings.WHY.keys() <= set(peers.NAMES)
    assert len(set(peers.NAMES)) == len(peers.NAMES)


def test_the_published_table_has_every_cell() -> None:
    run = dataclasses.replace(a_run("table-tidings", 1000), details={"cells": dict.fromkeys(report.PUBLISHED, 1.5)})
    said = report.part("table", [run], ())
    assert said.count("1.50") == 16
    assert "| 1000 messages of 4 KB | 1.50 | 32,833.4 | 6,910.7 | 6,391 |" in said
