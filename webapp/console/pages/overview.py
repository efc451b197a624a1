"""Overview: processes, queues, rates of the last 30 minutes, and findings of `tidings doctor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from webapp.console.figures import chart
from webapp.console.figures.doctor_runs import DoctorRuns
from webapp.console.figures.processes import NumberShards, ProcessList
from webapp.console.figures.recorder import KEPT, SERIES, FiguresRecorder, RatePoint
from webapp.console.page_request import PageRequest, Result, redirect
from webapp.console.render.pages import PageContent

# Readings that a row of the table behind the chart sums up: those of a minute.
_PER_ROW = 4


async def show(page: PageRequest) -> Result:
    """Show the state of the installation, and the figures of the user's number."""
    recorder, account = page.part(FiguresRecorder), page.caller.account
    points, block = recorder.rates(account), page.part(NumberShards).block_of(account)
    values = {
        "processes": await page.part(ProcessList).read(),
        "queues": recorder.queues(block) if block is not None else [],
        "series": SERIES,
        "now_rates": points[-1].rates if points else dict.fromkeys(SERIES),
        "chart": chart.draw({name: [point.rates[name] for point in points] for name in SERIES}, KEPT - 1),
        "minutes": _minutes(points),
        "read_at": recorder.read_at,
        "doctor": page.part(DoctorRuns).report,
    }
    return PageContent("overview.html", values)


async def run_doctor(page: PageRequest) -> Result:
    """Start `tidings doctor`, whose findings the overview then shows."""
    page.part(DoctorRuns).start()
    return redirect("/console")


def _minutes(points: Sequence[RatePoint]) -> Sequence[tuple[int, Mapping[str, float]]]:
    """Return the mean rates of each minute with its end, newest first."""
    rows = []
    for end in range(len(points), 0, -_PER_ROW):
        part = points[max(0, end - _PER_ROW) : end]
        rows.append((part[-1].at, {name: sum(point.rates[name] for point in part) / len(part) for name in SERIES}))
    return rows
