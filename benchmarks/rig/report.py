"""Writes the results of a benchmark: Markdown and a small JSON to keep, and raw data with plots.

Raw data and plots are large, so git ignores their folder.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.rig import calibration, figures, flames, plots, profiles, run
from benchmarks.rig.calibration import Calibrated
from benchmarks.rig.machine import MARK
from benchmarks.rig.profiles import Stacks
from benchmarks.rig.run import Ratio, Run

RESULTS = Path(__file__).parents[1] / "results"
RAW = Path(__file__).parents[2] / "build" / "benchmarks"
COMMON = f"""\
Everything shares the machine: our processes, the database server (`innodb_flush_log_at_trx_commit=1`, durable),
recipients, clients and webhook. A run in which anything was lost, doubled, damaged or refused unasked is no result and
is not here.
*Others* is the part of the machine's time that went to programs which are not the benchmark's, or was stolen by the
host; with more than {MARK:.0%} a run is marked with †: its figures are too low, and it gives no ratio."""


@dataclasses.dataclass(slots=True)
class Report:
    """Contents of the report, collected during the benchmark."""

    name: str  # in file names
    title: str
    how: str  # Markdown: how the figures were taken
    whole: bool = True  # all runs of the benchmark were wanted, in full length
    machine: Mapping[str, str] = dataclasses.field(default_factory=dict)
    runs: list[Run] = dataclasses.field(default_factory=list)
    ratios: list[Ratio] = dataclasses.field(default_factory=list)
    calibrations: list[Calibrated] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)  # Markdown after the tables
    is_brief: bool = False  # Markdown has only the first tables
    commit: str = ""  # revision that was measured
    # Further plots by name, which is the end of the file name.
    drawings: dict[str, Callable[[Path], None]] = dataclasses.field(default_factory=dict)
    # By name of the run and process, with all rounds summed up; empty unless profiles were requested.
    profiles: dict[str, dict[str, Stacks]] = dataclasses.field(default_factory=dict)

    def medians(self) -> list[Run]:
        """Return the median run for each name."""
        by_name: dict[str, list[Run]] = {}
        for one in self.runs:
            by_name.setdefault(one.name, []).append(one)
        return [run.median(runs) for runs in by_name.values()]


def one_line(one: Run) -> str:
    """Return a run as one line."""
    said = [f"{one.rate:,.1f} {one.unit}/s"]
    for name, found in one.latencies.items():
        said.append(f"{name} p50 {found.p50:.1f} p95 {found.p95:.1f} p99 {found.p99:.1f} ms")
        break
    said.append(f"CPU of our processes {one.product_us()} µs, of all {sum(one.cpu_us().values())} µs")
    others = one.samples.shares.others
    return "  " + ", ".join(said) + (f"; MARKED: {others:.0%} of the machine went to others" if one.is_marked else "")


def write(report: Report, folder: Path, raw: Path) -> list[Path]:
    """Write the files `<date>-<name>.*`; partial results are named so. Returns the paths, Markdown first.

    folder: for Markdown and the small JSON
    raw:    for the JSON with all samples, plots and flame graphs
    """
    folder.mkdir(parents=True, exist_ok=True)
    raw.mkdir(parents=True, exist_ok=True)
    date = datetime.date.today().isoformat()
    stem = f"{date}-{report.name}" + ("" if report.whole else "-partial")
    document = _document(report, date)
    markdown, small, everything = folder / f"{stem}.md", folder / f"{stem}.json", raw / f"{stem}-raw.json"
    markdown.write_text(_markdown(report, date))
    small.write_text(figures.dumps(figures.reduce(document)))
    everything.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return [markdown, small, everything, *_draw(report, date, raw / stem)]


def _draw(report: Report, date: str, stem: Path) -> list[Path]:
    """Draw the plots and flame graphs; return their paths.

    stem: path without the ends of the file names
    """
    paths = [stem.with_name(f"{stem.name}.png")]
    title = f"{report.title}, {date}, {report.machine.get('cores')} cores for everything"
    plots.draw(report.medians(), title, paths[0])
    for name, draw in report.drawings.items():
        paths.append(stem.with_name(f"{stem.name}-{name}.png"))
        draw(paths[-1])
    for one in report.medians():
        if one.name in report.profiles:
            paths.append(stem.with_name(f"{stem.name}-{one.name}-flames.svg"))
            flames.draw(f"{one.title}, {date}", report.profiles[one.name], paths[-1])
    return paths


def _document(report: Report, date: str) -> dict[str, Any]:
    return {
        "date": date,
        "commit": report.commit,
        "machine": dict(report.machine),
        "runs": [one.as_dict() for one in report.runs],
        "ratios": [dataclasses.asdict(found) for found in report.ratios],
        "calibrations": [dataclasses.asdict(found) | {"value": found.value} for found in report.calibrations],
        "shares": {
            one.name: {found.name: round(calibration.share(one, found), 4) for found in report.calibrations}
            for one in report.medians()
        },
        "notes": report.notes,
    }


def _markdown(report: Report, date: str) -> str:
    described = ", ".join(f"{name} {value}" for name, value in report.machine.items())
    parts = [f"# {report.title}, {date}", report.how, COMMON]
    if not report.whole:
        parts.append("**Not the whole benchmark:** only some of its runs, or a shortened form of them.")
    if any(one.is_marked for one in report.runs):
        parts.append(
            "**Other programs ran beside these:** figures marked with † are no measurement of what can be had."
        )
    parts += [f"Commit: `{report.commit}`. Machine: {described}.", tables(report), *report.notes]
    return "\n\n".join(parts) + "\n"


def tables(report: Report) -> str:
    """Return all tables in Markdown."""
    runs = report.medians()
    groups = [_rates(runs), _ratios(report.ratios), _calibrations(runs, report.calibrations)]
    if not report.is_brief:
        groups += [_latencies(runs), _cpu(runs), _memory(runs), _garbage(runs), _queues(runs)]
    groups += [_profile(one, report.profiles[one.name]) for one in runs if one.name in report.profiles]
    return "\n\n".join("\n".join(lines) for lines in groups if lines)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]], *, words: int = 1) -> list[str]:
    """Return one table in Markdown. The first `words` columns are text, the others numbers."""
    lines = [f"| {' | '.join(header)} |", "|---" * words + "|--:" * (len(header) - words) + "|"]
    return lines + [f"| {' | '.join(map(str, row))} |" for row in rows]


def number(value: float) -> str:
    """Format a number with three significant digits, or all before the decimal point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _title(one: Run) -> str:
    return f"{one.title} †" if one.is_marked else one.title


def _rates(runs: Sequence[Run]) -> list[str]:
    header = ["run", "done", "a second", "of what", "first latency p50 / p95 / p99 / max, ms", "commits for each"]
    header += ["log bytes", "load", "others"]
    rows = []
    for one in runs:
        name, found = next(iter(one.latencies.items()), ("", None))
        latency = f"{name}: {found.p50:.1f} / {found.p95:.1f} / {found.p99:.1f} / {found.max:.1f}" if found else "–"
        samples = one.samples
        commits = ", ".join(f"{family} {n / one.count:.3f}" for family, n in samples.commits.items() if n) or "–"
        row = [_title(one), f"{one.count:,}", f"**{one.rate:,.1f}**", one.unit, latency, commits]
        rows.append([*row, round(samples.log_bytes / one.count), f"{samples.load:.1f}", f"{samples.shares.others:.1%}"])
    return table(header, rows)


def _ratios(ratios: Sequence[Ratio]) -> list[str]:
    rows = [
        [
            found.name,
            found.base,
            "–" if found.value is None else f"**{found.value:.2f}**",
            ", ".join(f"{one:.2f}" for one in found.rounds) or "–",
            found.why or "–",
        ]
        for found in ratios
    ]
    return table(["rate of", "to that of", "median ratio", "rounds, by turns", "note"], rows, words=2) if rows else []


def _calibrations(runs: Sequence[Run], calibrations: Sequence[Calibrated]) -> list[str]:
    """Return a table with a row per run, below the results of the calibrations."""
    if not calibrations:
        return []
    header = ["result as a share of", *(found.name + " †" * found.shares.is_marked for found in calibrations)]
    rows = [["by itself", *(f"{number(found.value)} {found.unit}" for found in calibrations)]]
    rows.append(["taken", *(" / ".join(map(number, found.values)) for found in calibrations)])
    rows += [[_title(one), *(f"{calibration.share(one, found):.3f}" for found in calibrations)] for one in runs]
    return table(header, rows)


def _latencies(runs: Sequence[Run]) -> list[str]:
    rows = [
        [_title(one), name, f"{f.count:,}", *(f"{v:.1f}" for v in (f.mean, f.min, f.p50, f.p90, f.p95, f.p99, f.max))]
        for one in runs
        for name, f in one.latencies.items()
    ]
    header = ["run", "latency, ms", "samples", "average", "min", "p50", "p90", "p95", "p99", "max"]
    return table(header, rows, words=2) if rows else []


def _processes(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(name for one in runs for name in one.samples.cpu))


def _cpu(runs: Sequence[Run]) -> list[str]:
    names = _processes(runs)
    rows = []
    for one in runs:
        used = one.cpu_us()
        rows.append([_title(one), one.product_us(), sum(used.values()), *(used.get(name, "–") for name in names)])
    return table(["CPU for each, µs", "our processes", "all", *names], rows)


def _memory(runs: Sequence[Run]) -> list[str]:
    names = _processes(runs)
    rows = [
        [_title(one), *(f"{peak[name] / 1e6:.0f}" if name in peak else "–" for name in names)]
        for one in runs
        for peak in [one.samples.peak_rss]
    ]
    return table(["most memory, MB", *names], rows)


def _garbage(runs: Sequence[Run]) -> list[str]:
    rows = []
    for one in runs:
        for name, found in one.as_dict()["gc"].items():
            longest = found["longest_ms"]
            said = "over 1000" if longest is None else f"≤ {longest:g}"
            rows.append([_title(one), name, found["pauses"], said, f"{found['throughput']:.2f} %"])
    header = ["run", "process", "collections of garbage", "longest, ms", "time without them (GC throughput)"]
    return table(header, rows, words=2) if rows else []


def _queues(runs: Sequence[Run]) -> list[str]:
    rows = []
    for one in runs:
        deepest = sorted(one.samples.deepest().items(), key=lambda entry: -entry[1])[:6]
        rows.append([_title(one), ", ".join(f"{name} {depth:,.0f}" for name, depth in deepest) or "all empty"])
    return table(["run", "deepest queues, items, as seen every 2 s"], rows, words=2)


def _profile(one: Run, profile: Mapping[str, Stacks]) -> list[str]:
    header = [
        f"{_title(one)}: where its CPU went",
        "package, with the library calls it makes",
        "part",
        "µs for each",
    ]
    return table(header, profiles.lines(one, profile), words=2)
