"""Jobs wait in the order of each recipient, and an empty lane disturbs no figure."""

from __future__ import annotations

from coreapp.accepting.pair_rate import PairRate
from coreapp.graph_api.pace import UpstreamPace
from coreapp.upstream.post_lanes import PostLane, PostLanes
from tests.manual_clock import ManualClock
from tidings.storage.business.jobs import Job, JobForm

ANN, BEN = "15550110001", "15550110002"


def job(n: int, peer: str = ANN) -> Job:
    return Job(f"job-{n}", 0, "15550000000", peer, JobForm.NEW, "", b"", created_at=1000 + n)


def make_lanes(started: list[PostLane], *, pair_rate: bool = False) -> PostLanes:
    clock = ManualClock()
    return PostLanes(
        UpstreamPace(clock, limit=100),
        PairRate(clock) if pair_rate else None,
        start=started.append,
        is_stopped=lambda: False,
    )


async def test_jobs_to_a_recipient_start_one_after_the_other_and_others_at_once() -> None:
    started: list[PostLane] = []
    lanes = make_lanes(started)
    for each in (job(1), job(2), job(3, BEN)):
        lanes.proceed(lanes.add(each, b""))
    assert [lane.peer for lane in started] == [ANN, BEN]
    lanes.end(job(1))
    assert [lane.jobs[0][0].id for lane in started] == ["job-2", "job-3", "job-2"]
    assert (lanes.waiting, lanes.oldest) == (2, 1002)


async def test_a_job_that_is_put_back_starts_again_in_its_new_form() -> None:
    started: list[PostLane] = []
    lanes = make_lanes(started)
    lane = lanes.add(job(1), b"old")
    lanes.proceed(lane)
    lanes.put_back(lane, job(1), b"new")
    lanes.put_back(lane, job(1))
    assert started == [lane, lane, lane]
    assert lane.jobs[0][1] == b"new"


async def test_a_lane_that_waits_for_the_pair_rate_without_jobs_has_no_oldest_job() -> None:
    started: list[PostLane] = []
    lanes = make_lanes(started, pair_rate=True)
    for n in range(45):
        lanes.proceed(lanes.add(job(n), b""))
        lanes.end(job(n))
    lanes.proceed(lanes.add(job(45), b""))
    assert len(started) == 45
    assert [removed.id for removed in lanes.remove(lambda each: True)] == ["job-45"]
    assert (lanes.waiting, lanes.oldest) == (0, None)


async def test_nothing_starts_after_the_lanes_were_closed() -> None:
    started: list[PostLane] = []
    lanes = make_lanes(started)
    lanes.close()
    lanes.proceed(lanes.add(job(1), b""))
    assert started == []
    assert lanes.waiting == 1
