"""Computations of benchmarks from their samples: percentiles, shares of the machine, ratios, reports."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree
from pathlib import Path

import pytest

from benchmarks.rig import calibration, contents, flames, machine, profiles, report, run, sampler, summary
from benchmarks.rig.calibration import Calibrated
from benchmarks.rig.machine import Clock, Shares
from benchmarks.rig.report import Report
from benchmarks.rig.run import Run
from benchmarks.rig.sampler import Pauses, Point, Samples
from benchmarks.rig.session import Session, Variant
from harness import ledger

QUIET = Shares(others=0.01, stolen=0.0, own=0.9)
SHARED = Shares(others=0.051, stolen=0.02, own=0.6)


def samples(shares: Shares = QUIET) -> Samples:
    points = [Point(2.0, {"coreapp": 1000}, {"coreapp": 0.5}, {"coreapp jobs": 3.0, "coreapp callbacks": 0.0})]
    points += [Point(4.0, {"coreapp": 1000}, {"coreapp": 1.0}, {"coreapp jobs": 7.0, "coreapp callbacks": 0.0})]
    return Samples(
        10.0,
        {"coreapp": 0.2, "coreapp2": 0.1, "robots": 0.5},
        {"coreapp": 100_000_000},
        {"coreapp": Pauses(4, 0.5, 0.25)},
        shares,
        1.5,
        {"business": 5.0, "network": 0.0},
        10,
        1000,
        points,
        ({}, {}),
    )


def a_run(name: str, rate: float, shares: Shares = QUIET) -> Run:
    return Run(
        name=name,
        title=f"run {name}",
        count=1000,
        unit="messages",
        seconds=1000 / rate,
        rate=rate,
        latencies={"POST": summary.summarise([0.010, 0.020, 0.030, 0.040])},
        throughput=[rate, rate],
        samples=samples(shares),
    )


@pytest.mark.parametrize(
    ("others", "taken"), [([0.01, 0.2], 0.01), ([0.2, 0.1, 0.01], 0.01), ([0.2, 0.1, 0.3, 0.01], 0.1)]
)
async def test_a_run_is_repeated_while_other_processes_use_too_much_cpu(
    others: list[float], taken: float, tmp_path: Path
) -> None:
    left = [a_run("one", 100.0, Shares(part, 0.0, 0.5)) for part in others]

    async def measure() -> Run:
        return left.pop(0)

    found = Report("some", "title", "how", True, {})
    session = Session(found, argparse.Namespace(again=2), tmp_path)
    run = await session.once(Variant("one", "one", measure))
    assert found.runs == [run]
    assert run is not None
    assert run.samples.shares.others == taken
    assert len(left) == (len(others) - 3 if len(others) > 3 else len(others) - others.index(taken) - 1)
    assert bool(found.notes) == (others[0] > 0.05)


def test_a_summary_uses_nearest_rank_percentiles_in_milliseconds() -> None:
    found = summary.summarise([n / 1000 for n in range(1, 101)])
    assert found == summary.Summary(100, 50.5, 1.0, 50.0, 90.0, 95.0, 99.0, 100.0)
    with pytest.raises(ValueError, match="nothing"):
        summary.summarise([])


def test_a_histogram_summary_covers_the_time_between_two_scrapes() -> None:
    def text(*counts: int, seconds: float) -> str:
        bounds = ("0.001", "0.01", "0.1", "+Inf")
        lines = [f'x_bucket{{call="send",le="{b}"}} {c}.0' for b, c in zip(bounds, counts, strict=True)]
        lines += ['x_bucket{call="check",le="+Inf"} 99.0', f'x_count{{call="send"}} {counts[-1]}.0']
        return "\n".join([*lines, f'x_sum{{call="send"}} {seconds}'])

    before, after = text(5, 5, 5, 5, seconds=1.0), text(5, 55, 105, 105, seconds=6.0)
    found = summary.of_histogram(before, after, "x", '"send"')
    assert found is not None
    assert (found.count, found.mean, found.min) == (100, 50.0, 1.0)
    assert (found.p50, found.p90, found.max) == (10.0, 82.0, 100.0)
    assert summary.of_histogram(after, after, "x", '"send"') is None


def test_throughput_per_second_includes_empty_seconds() -> None:
    assert summary.per_second([10.1, 10.9, 13.0], 10.0) == [2, 0, 0, 1]
    assert summary.per_second([], 10.0) == []


def test_drift_compares_the_last_quarter_with_the_first_and_slope_is_per_step() -> None:
    assert summary.drift([100, 100, 500, 1, 2, 3, 90, 90]) == pytest.approx(-0.1)
    assert summary.drift([1, 2]) == 0.0
    assert summary.slope([(0, 5.0), (10, 7.0), (20, 9.0)]) == pytest.approx(0.2)
    assert summary.slope([(1, 5.0)]) == 0.0


def test_cpu_of_others_is_busy_time_minus_our_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    before = Clock(at=100.0, busy=50.0, stolen=1.0, own=20.0)
    found = machine.shares(before, Clock(at=110.0, busy=66.0, stolen=3.0, own=34.0))
    assert found == Shares(others=0.1, stolen=0.1, own=0.7)
    assert found.is_marked
    # CPU clocks of processes are a little ahead of the machine's.
    assert machine.shares(before, Clock(at=110.0, busy=60.0, stolen=1.0, own=30.5)).others == 0.0
    # That does not hide CPU time taken by the host.
    assert machine.shares(before, Clock(at=110.0, busy=66.0, stolen=3.0, own=36.5)).others == 0.1


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("10.11.19-MariaDB-0+deb12u1-log", ("mariadb", "10.11.19")),
        ("8.0.12", ("mysql", "8.0.12")),
        ("9.7.4-1-debug", ("mysql", "9.7.4")),
    ],
)
def test_a_report_names_the_database_server_and_its_version(version: str, expected: tuple[str, str]) -> None:
    assert machine.database_of(version) == expected


def test_a_report_names_the_build_of_python() -> None:
    assert re.fullmatch(r"3\.1\d\.\d+ \(.*PGO.*LTO.*, (no JIT|JIT \w+)\)", machine.describe()["python"])


def test_cpu_of_an_ended_child_counts_as_ours() -> None:
    before = machine.read(time.monotonic())
    code = "import time; end = time.process_time() + 0.2\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    # The clock has a resolution of 10 ms.
    assert machine.read(time.monotonic()).own - before.own > 0.15


def test_ratios_use_only_undisturbed_rounds() -> None:
    rounds = [
        (a_run("base", 100), a_run("slow", 90)),
        (a_run("base", 100), a_run("slow", 20, SHARED)),
        (a_run("base", 100), None),
        (a_run("base", 200), a_run("slow", 100)),
        (a_run("base", 100), a_run("slow", 80)),
    ]
    found = run.ratio("slow", "base", rounds)
    assert found.value == 0.8
    assert list(found.rounds) == [0.9, 0.5, 0.8]
    assert found.why == "2 rounds left out"


def test_disturbed_rounds_alone_give_no_ratio() -> None:
    found = run.ratio("slow", "base", [(a_run("base", 100, SHARED), a_run("slow", 90))])
    assert found.value is None
    assert "over 5 %" in found.why
    assert run.ratio("slow", "base", [(None, a_run("slow", 90))]).value is None


def test_the_median_run_is_an_undisturbed_one() -> None:
    assert run.median([a_run("a", 10, SHARED), a_run("a", 30), a_run("a", 50), a_run("a", 40)]).rate == 40
    assert run.median([a_run("a", 10, SHARED), a_run("a", 30, SHARED)]).rate == 10


def test_results_are_expressed_as_shares_of_a_calibration() -> None:
    one = a_run("a", 100)
    assert one.cpu_us() == {"coreapp": 200, "coreapp2": 100, "robots": 500}
    assert one.product_us() == 300
    bare = Calibrated("bare", calibration.RATE, (300.0, 500.0), QUIET)
    assert calibration.share(one, bare) == 0.25
    assert calibration.share(one, dataclasses.replace(bare, unit=calibration.MICROSECONDS, values=(30.0,))) == 0.1
    assert calibration.share(one, dataclasses.replace(bare, unit=calibration.MILLISECONDS, values=(5.0,))) == 0.25


def test_queue_depths_are_summed_over_shards() -> None:
    text = (
        'tidings_queue_depth{queue="jobs",shard="0"} 3.0\n'
        'tidings_queue_depth{number="15550000000",queue="jobs",shard="1"} 4.0\n'
        'tidings_queue_depth{queue="journal",shard=""} 1.0\ntidings_queue_oldest_seconds{queue="jobs",shard="0"} 9.0\n'
    )
    assert sampler.depths(text) == {"jobs": 7.0, "journal": 1.0}


def test_gc_pauses_are_those_between_two_scrapes() -> None:
    def text(*counts: int, seconds: float) -> str:
        bounds = ("0.001", "0.01", "+Inf")
        lines = [
            f'tidings_gc_pause_seconds_bucket{{generation="0",le="{b}"}} {c}'
            for b, c in zip(bounds, counts, strict=True)
        ]
        return "\n".join(
            [*lines, f"tidings_gc_pause_seconds_count {counts[-1]}", f"tidings_gc_pause_seconds_sum {seconds}"]
        )

    before = text(1, 1, 2, seconds=1.0)
    assert sampler.pauses(before, text(3, 4, 5, seconds=1.5)) == Pauses(3, 0.5, 0.01)
    assert sampler.pauses(before, before) == Pauses(0, 0.0, 0.0)


def test_a_report_marks_disturbed_runs(tmp_path: Path) -> None:
    found = Report("example", "Example", "How.", whole=False, machine={"cores": "2"})
    found.runs += [a_run("base", 100), a_run("slow", 90, SHARED)]
    found.ratios.append(run.ratio("slow", "base", [(found.runs[0], found.runs[1])]))
    found.calibrations.append(Calibrated("bare", calibration.RATE, (400.0,), QUIET))
    paths = report.write(found, tmp_path / "results", tmp_path / "raw")
    assert [(path.parent.name, path.suffix) for path in paths] == [
        ("results", ".md"),
        ("results", ".json"),
        ("raw", ".json"),
        ("raw", ".png"),
    ]
    assert all("example-partial" in path.name for path in paths)
    text = paths[0].read_text()
    assert "run slow †" in text
    assert "run base †" not in text
    assert "| slow | base | – | – | in every round others took over 5 % of the machine |" in text
    document = json.loads(paths[1].read_text())
    assert [one["marked"] for one in document["runs"]] == [False, True]
    assert document["runs"][0]["messages"] == 1000
    assert document["runs"][0]["queues"] == {"coreapp jobs": 7.0}
    assert document["runs"][0]["gc"]["coreapp"]["throughput"] == 95.0
    assert document["ratios"][0]["value"] is None
    assert document["shares"]["base"]["bare"] == 0.25


def test_contents_have_the_requested_size_and_unique_digests() -> None:
    assert json.loads(contents.sized("1", "a-1", 50).body)["text"]["body"] == "a-1".ljust(50, ".")
    assert len(contents.sized("1", "a-1", 10_240).file) == 10_240
    digests = {
        make("1", f"a-{n}", size).digest
        for make in (contents.sized, contents.sized_template)
        for size in (50, 1024, 10_240)
        for n in (1, 2)
    }
    assert len(digests) == 12


def test_the_digest_of_a_document_matches_what_its_recipient_shows() -> None:
    assert contents.sized("1", "a-1", 10_240).digest == ledger.digest("[document] a-1.pdf, application/pdf (10.2 kB)")


PROFILE = """\
__main__.main:68;cli.process.run:75;asyncio.runners.Runner.run:118;coreapp.webhook.poster.Poster.post:95 60
__main__.main:68;cli.process.run:75;asyncio.runners.Runner.run:118;coreapp.webhook.poster.Poster.post:9;hmac.digest:8 10
__main__.main:68;cli.process.run:75;asyncio.runners.Runner.run:118 25
runpy._run_code:88;importlib._bootstrap._load:5 3
sqlalchemy.engine.base.Connection.execute:5;pymysql.converters.escape:9 1
__main__.main:68;cli.process.run:75;asyncio.runners.Runner.run:118;tidings.<locals>.<genexpr>:1 1
"""


def test_a_profile_reports_the_cost_of_each_package_with_its_callees() -> None:
    stacks = profiles.parse(PROFILE)
    shares_of_packages = profiles.package_shares(stacks)
    assert shares_of_packages[:2] == [("coreapp.webhook", 0.7), (profiles.LOOP_NAME, 0.25)]
    assert shares_of_packages[2:] == [(profiles.ELSEWHERE, 0.03), ("2 more", pytest.approx(0.02))]
    assert profiles.package_of(("sqlalchemy.engine.base.Connection.execute", "re.sub")) == profiles.STORAGE
    lines = profiles.lines(a_run("warm", 100), {"coreapp": stacks, "nobody": stacks})
    assert lines[0] == ["coreapp", "coreapp.webhook", "70.0%", "140"]
    assert {line[0] for line in lines} == {"coreapp"}


def test_a_report_of_a_profiled_run_includes_its_flame_graph(tmp_path: Path) -> None:
    found = Report("example", "An example", "How.", runs=[a_run("warm", 100), a_run("cold", 50)])
    found.profiles["warm"] = {"coreapp": profiles.parse(PROFILE)}
    markdown, *_, flames_path = report.write(found, tmp_path, tmp_path / "raw")
    assert flames_path.name.endswith("-example-warm-flames.svg")
    assert flames_path.parent == tmp_path / "raw"
    assert "| coreapp | coreapp.webhook | 70.0% | 140 |" in markdown.read_text()


def test_samples_of_a_run_are_in_the_raw_data_only(tmp_path: Path) -> None:
    long = dataclasses.replace(
        a_run("long", 100),
        throughput=[100.0] * 5000,
        details={"steady_rate": 1 / 3, "ms": [1.0, 2.0], "rows": [{"connections": "10,000"}] * 500},
    )
    found = Report("example", "Example", "How.", machine={"cores": "2"}, runs=[long] * 30, commit="0123456789ab+")
    found.calibrations.append(Calibrated("bare", calibration.RATE, (400.0,), QUIET))
    found.ratios.append(run.ratio("slow", "base", [(long, a_run("slow", 90))]))
    markdown, small, raw, *_ = report.write(found, tmp_path, tmp_path / "raw")
    text = small.read_text()
    assert len(text.splitlines()) <= 200
    document, whole = json.loads(text), json.loads(raw.read_text())
    assert (document["commit"], document["machine"]) == ("0123456789ab+", {"cores": "2"})
    assert [len(one["runs"]) for one in (document, whole)] == [30, 30]
    assert document["runs"][0]["details"] == {"steady_rate": 0.3333, "ms": [1.0, 2.0]}
    assert document["runs"][0]["latencies_ms"] == whole["runs"][0]["latencies_ms"]
    assert not {"points", "throughput"} & document["runs"][0].keys()
    assert len(whole["runs"][0]["throughput"]) == 5000
    assert len(whole["runs"][0]["points"]) == 2
    assert document["ratios"] == [{**whole["ratios"][0], "rounds": [0.9]}]
    assert document["shares"]["long"] == {"bare": 0.25}
    assert "Commit: `0123456789ab+`" in markdown.read_text()


def test_a_file_of_100_runs_has_only_the_rate_and_the_first_latency_of_each(tmp_path: Path) -> None:
    long = dataclasses.replace(a_run("long", 100), details={"garbage": {f"process{n}": 1.0 for n in range(50)}})
    found = Report("example", "Example", "How.", runs=[dataclasses.replace(long, name=f"n{n}") for n in range(100)])
    found.calibrations.append(Calibrated("bare", calibration.RATE, (400.0,), QUIET))
    _, small, *_ = report.write(found, tmp_path, tmp_path / "raw")
    text = small.read_text()
    assert len(text.splitlines()) <= 200
    assert len(text) <= 64 * 1024
    document = json.loads(text)
    assert len(document["runs"]) == 100
    assert (document["runs"][3]["name"], document["runs"][3]["rate"]) == ("n3", 100)
    assert document["runs"][3]["latencies_ms"]["POST"]["p99"] == 40
    assert "shares" not in document


def test_the_measured_commit_is_that_of_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if shutil.which("git"):
        command = ["git", "rev-parse", "HEAD"]
        head = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
        expected = head.stdout if head.returncode == 0 else "unknown"
        assert expected.startswith(machine.commit().removesuffix("+"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.commit() == "unknown"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_measured_commit_is_marked_only_when_other_files_than_results_have_changed(tmp_path: Path) -> None:
    result, code = tmp_path / "benchmarks/results/earlier.md", tmp_path / "code.py"
    result.parent.mkdir(parents=True)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for path in (result, code):
        path.write_text("1\n")
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    result.write_text("2\n")
    clean = machine.commit(tmp_path)
    assert len(clean) == 12
    code.write_text("2\n")
    assert machine.commit(tmp_path) == f"{clean}+"


def test_flame_graph_frames_are_as_wide_as_their_share_of_samples(tmp_path: Path) -> None:
    flames.draw("<title>", {"coreapp": profiles.parse(PROFILE)}, tmp_path / "flames.svg")
    tree = xml.etree.ElementTree.parse(tmp_path / "flames.svg")
    svg = "{http://www.w3.org/2000/svg}"
    widths = {
        told.text.partition(":")[0]: float(shown.get("width", 0)) / flames.WIDTH
        for group in tree.iter(f"{svg}g")
        if (told := group.find(f"{svg}title")) is not None
        and told.text
        and (shown := group.find(f"{svg}rect")) is not None
    }
    assert widths["coreapp.webhook.poster.Poster.post"] == 0.7
    assert widths["hmac.digest"] == 0.1
    assert "tidings.<locals>.<genexpr>" in widths
