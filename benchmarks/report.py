"""Writes down what the system benchmark found: JSON with everything, Markdown for people, a plot."""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cryptography
import matplotlib
import sqlalchemy

import tidings
from benchmarks.workloads import RATIOS
from harness.mariadb import MariaDB

matplotlib.use("Agg")
from matplotlib import pyplot

Figures = Mapping[str, Any]

PROCESSES = ("webapp", "coreapp", "network", "robots", "mariadbd")
HARNESS = ("load", "sink")


def one_line(figures: Figures) -> str:
    """A run in one line."""
    latency, cpu = figures["message_ms"], figures["cpu_us"]
    each = ", ".join(f"{name} {cpu[name]}" for name in (*PROCESSES, *HARNESS))
    others = f"; {figures['others_cpu']:.0%} of the machine went to others" if figures["others_cpu"] > 0.05 else ""
    return (
        f"  {figures['rate']:.0f} messages/s with all callbacks ({figures['steady_rate']:.0f} steady), API "
        f"p50 {latency['p50']:.1f} p95 {latency['p95']:.1f} p99 {latency['p99']:.1f} ms, "
        f"CPU {sum(cpu[name] for name in PROCESSES)} µs a message ({each}){others}"
    )


def reason(error: BaseException) -> str:
    """Why a run failed; of a group the first cause."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def versions(server: MariaDB) -> dict[str, str]:
    """Of the machine and of what runs on it; nothing that names the machine."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        found = cursor.fetchone()
    return {
        "cores": str(os.cpu_count()),
        "processor": platform.machine(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "tidings": tidings.__version__,
        "mariadb": str(found[0]).split("-")[0] if found else "",
        "sqlalchemy": sqlalchemy.__version__,
        "cryptography": cryptography.__version__,
    }


def ratios(results: Sequence[Figures]) -> dict[str, float]:
    """Rates of the slowed runs in proportion to those of the same session that were not."""
    by_name = {figures["name"]: figures for figures in results}
    return {
        slowed: round(by_name[slowed]["rate"] / by_name[plain]["rate"], 3)
        for slowed, plain in RATIOS
        if slowed in by_name and plain in by_name
    }


def table(results: Sequence[Figures]) -> str:
    """Markdown tables of all runs."""
    lines = [
        "| run | messages/s | steady | API p50 / p95 / p99 ms | contacts p50 / p99 ms | callbacks p50 / p99 ms "
        "| commits a message: business, network | log bytes a message | taken by other programs |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for f in results:
        api, contacts, done = f["message_ms"], f["contacts_ms"], f["callbacks_ms"]
        asked = f"{contacts['p50']:.1f} / {contacts['p99']:.1f}" if contacts else "–"
        lines.append(
            f"| {f['title']} | {f['rate']:.0f} | {f['steady_rate']:.0f} "
            f"| {api['p50']:.1f} / {api['p95']:.1f} / {api['p99']:.1f} "
            f"| {asked} "
            f"| {done['p50']:.0f} / {done['p99']:.0f} "
            f"| {f['commits']['business']:.3f}, {f['commits']['network']:.3f} | {f['log_bytes']} "
            f"| {f['others_cpu']:.0%} |"
        )
    names = (*PROCESSES, *HARNESS)
    lines += ["", f"| CPU, µs a message | {' | '.join(PROCESSES)} | together | {' | '.join(HARNESS)} |"]
    lines.append("|---" + "|--:" * (len(names) + 1) + "|")
    for f in results:
        cells = [f["cpu_us"][name] for name in PROCESSES]
        own = " | ".join(str(f["cpu_us"][name]) for name in HARNESS)
        lines.append(f"| {f['title']} | {' | '.join(map(str, cells))} | {sum(cells)} | {own} |")
    lines += ["", f"| most memory, MB | {' | '.join(names)} |", "|---" + "|--:" * len(names) + "|"]
    for f in results:
        memory = " | ".join(f"{f['peak_rss_mb'][name]:.0f}" for name in names)
        lines.append(f"| {f['title']} | {memory} |")
    found = ratios(results)
    if found:
        lines += ["", "| slowed run | rate in proportion to the run that was not slowed |", "|---|--:|"]
        lines += [f"| {name} | {ratio:.2f} |" for name, ratio in found.items()]
    return "\n".join(lines)


HOW = """\
Taken by `make bench` (`python -m benchmarks.system`) on one machine that runs everything: network, Coreapp, Webapp,
robots, MariaDB (`innodb_flush_log_at_trx_commit=1`, durable), the clients and the webhook. Rate limits are off,
`sent_status` is on, `max_concurrent_requests` is 24, robots read at once, log level info. A message counts when its
sent, delivered and read callbacks have all been answered by the webhook; `messages/s` is from the first request to the
last of those callbacks, `steady` the middle 80 % of the messages. *Cold*: nobody was checked or written to before, each
message goes to another recipient, and a contacts call precedes it. *Warm*: 1,000 recipients whose sessions are settled,
no contacts calls. API latency is that of `POST /v1/messages` as its client sees it; *callbacks* is from the request to
the last of the three callbacks. CPU is that of all threads of a process; *load* and *sink* are the benchmark's own
clients and webhook, which take their share of the same cores; what other programs took of the machine meanwhile is in
the last column of the first table, and a run with more than a few per cent there is no measurement. Every run is
reconciled: sender's ledger, robots' log and webhook agree on every message."""


def write(results: Sequence[Figures], found: Mapping[str, str], folder: Path, *, whole: bool) -> list[Path]:
    """The three files `<date>-system.{json,md,png}`, marked as partial unless `whole`."""
    folder.mkdir(parents=True, exist_ok=True)
    date = datetime.date.today().isoformat()
    stem = folder / (f"{date}-system" if whole else f"{date}-system-partial")
    machine = ", ".join(f"{name} {value}" for name, value in found.items())
    document = {"date": date, "machine": dict(found), "runs": list(results), "ratios": ratios(results)}
    json_path, text_path, plot_path = (stem.with_suffix(suffix) for suffix in (".json", ".md", ".png"))
    json_path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    picture = f"![Rates and latencies]({plot_path.name})"
    text_path.write_text(
        f"# The whole system, {date}\n\n{HOW}\n\nMachine: {machine}.\n\n{table(results)}\n\n{picture}\n"
    )
    _plot(results, f"Tidings, {date}: {found['cores']} cores for everything", plot_path)
    return [json_path, text_path, plot_path]


def _plot(results: Sequence[Figures], title: str, path: Path) -> None:
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(14, 0.55 * len(results) + 2.5), sharey=True)
    names = [f["title"] for f in results]
    positions = range(len(names))
    left.barh(positions, [f["rate"] for f in results], color="#3b7dd8")
    for position, f in zip(positions, results, strict=True):
        left.annotate(f"{f['rate']:.0f}", (f["rate"], position), xytext=(4, -4), textcoords="offset points")
    left.set_yticks(positions, names)
    left.invert_yaxis()
    left.set_xlabel("messages/s of which sent, delivered and read have arrived")
    for quantile, marker, colour in (("p50", "o", "#2f9e44"), ("p95", "s", "#f08c00"), ("p99", "D", "#e03131")):
        right.scatter(
            [f["message_ms"][quantile] for f in results], positions, marker=marker, color=colour, label=quantile
        )
    right.set_xscale("log")
    right.set_xlabel("latency of POST /v1/messages, ms (logarithmic)")
    right.grid(axis="x", which="both", alpha=0.3)
    right.legend()
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
