"""Plots of a benchmark: throughput over time, latency percentiles, queues over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

from benchmarks.rig.run import Run

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

PERCENTILES = ("min", "p50", "p90", "p95", "p99", "max")
# Lines that can be distinguished in one plot.
MOST_LINES = 14


def draw(runs: Sequence[Run], title: str, path: Path) -> None:
    """Draw three plots side by side. Marked runs have dashed lines."""
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(20, 6.5))
    drawn = runs[:MOST_LINES]
    for number, run in enumerate(drawn):
        style: dict[str, Any] = {
            "color": f"C{number % 10}",
            "linestyle": "--" if run.is_marked else "-",
            "label": run.title,
        }
        left.plot(range(1, len(run.throughput) + 1), run.throughput, **style)
        first = next(iter(run.latencies.values()), None)
        if first is not None:
            middle.plot(PERCENTILES, [max(getattr(first, name), 0.01) for name in PERCENTILES], marker="o", **style)
        _queues(right, run, style)
    units = {run.unit for run in drawn}
    left.set(
        xlabel="seconds", ylabel=f"{' or '.join(sorted(units))} in each second", title="Throughput", ylim=(0, None)
    )
    operations = {next(iter(run.latencies), "") for run in drawn}
    middle.set(ylabel="ms (logarithmic)", title="Latency: " + ", ".join(sorted(operations)), yscale="log")
    right.set(
        xlabel="seconds", ylabel="items (logarithmic above 1)", title="Deepest queue of each run", yscale="symlog"
    )
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
    figure.legend(*left.get_legend_handles_labels(), loc="lower center", ncols=4, fontsize="small")
    figure.suptitle(
        title + (" (dashed: others used over 5 % of the machine)" if any(r.is_marked for r in drawn) else "")
    )
    figure.tight_layout(rect=(0, 0.04 + 0.03 * ((len(drawn) + 3) // 4), 1, 1))
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _queues(axes: Axes, run: Run, style: Mapping[str, Any]) -> None:
    deepest = run.samples.deepest()
    if not deepest:
        return
    name = max(deepest, key=lambda queue: deepest[queue])
    points = run.samples.points
    axes.plot([point.at for point in points], [point.queues.get(name, 0.0) for point in points], **style)
    axes.annotate(name, (points[-1].at, points[-1].queues.get(name, 0.0)), fontsize="x-small")


def draw_lines(
    lines: Mapping[str, Sequence[tuple[float, float, float]]], across: str, up: tuple[str, str], path: Path
) -> None:
    """Draw two plots side by side, with a line per name; points are (x, y on the left, y on the right)."""
    figure, both = pyplot.subplots(1, 2, figsize=(14, 5))
    for place, (axes, label) in enumerate(zip(both, up, strict=True), 1):
        for name, points in lines.items():
            axes.plot([point[0] for point in points], [point[place] for point in points], marker="o", label=name)
        axes.set(xlabel=across, ylabel=label, ylim=(0, None))
        axes.grid(alpha=0.3)
        axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)
