"""Panels of dashboards as one picture, drawn from the responses of a Prometheus."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.figure

from harness.prometheus import Prometheus
from tests.monitoring.files import Panel

COLUMNS = 3
STEP = 1.0
# Maximum number of series drawn per query, the largest ones.
SERIES = 8
_SCALES = {"percentunit": (100.0, "%"), "bytes": (1 / 2**20, "MiB"), "s": (1000.0, "ms")}


async def draw(target: Path, panels: Sequence[Panel], server: Prometheus, start: float, end: float) -> None:
    """Write all panels to a PNG.

    start, end: Unix seconds.
    """

    rows = math.ceil(len(panels) / COLUMNS)
    figure = matplotlib.figure.Figure(figsize=(6 * COLUMNS, 3.2 * rows), layout="constrained")
    for axes, panel in zip(figure.subplots(rows, COLUMNS).flat, panels, strict=False):
        scale, unit = _SCALES.get(panel.unit, (1.0, ""))
        axes.set_title(f"{panel.dashboard}: {panel.title}" + (f" ({unit})" if unit else ""), fontsize=10)
        for query, legend in panel.queries:
            found = await server.query_range(query, start, end, step=STEP)
            for series in sorted(found, key=_largest, reverse=True)[:SERIES]:
                points = [(float(at) - start, float(value) * scale) for at, value in series["values"]]
                shown = [point for point in points if math.isfinite(point[1])]
                axes.plot(*zip(*shown, strict=True) if shown else ((), ()), label=_name(legend, series["metric"]))
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=7)
        if 0 < len(axes.lines) <= 2 * SERIES:
            axes.legend(fontsize=7, loc="upper left", ncols=2)
    for axes in figure.axes[len(panels) :]:
        axes.remove()
    figure.savefig(target, dpi=65)


def _largest(series: dict[str, Any]) -> float:
    return max((float(value) for _, value in series["values"] if math.isfinite(float(value))), default=0.0)


def _name(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend).strip()[:40]
