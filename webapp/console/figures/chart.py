"""Line charts as SVG, drawn on the server: coordinates only, so that the style sheet decides every colour."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

WIDTH, HEIGHT = 1120, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 8, 10, 22
_LINES = 4


@dataclasses.dataclass(frozen=True, slots=True)
class ChartLine:
    """One series of a chart."""

    name: str
    points: str  # value of the attribute `points` of a polyline


@dataclasses.dataclass(frozen=True, slots=True)
class GridLine:
    """Horizontal line of a chart, with its value."""

    y: float
    value: float


@dataclasses.dataclass(frozen=True, slots=True)
class Chart:
    """Chart of several series with a common scale."""

    lines: Sequence[ChartLine]
    grid: Sequence[GridLine]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT


def draw(series: Mapping[str, Sequence[float]], slots: int) -> Chart:
    """Draw series of equal length. The last value of each is at the right edge.

    slots: number of values that fill the width
    """
    top = _round_up(max((max(values, default=0.0) for values in series.values()), default=0.0))
    width, height = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM

    def line(values: Sequence[float]) -> str:
        first = slots - len(values)
        steps = max(slots - 1, 1)
        return " ".join(
            f"{_LEFT + width * (first + number) / steps:.1f},{_TOP + height * (1 - value / top):.1f}"
            for number, value in enumerate(values)
        )

    grid = [GridLine(_TOP + height * number / _LINES, top * (_LINES - number) / _LINES) for number in range(_LINES + 1)]
    return Chart([ChartLine(name, line(values)) for name, values in series.items()], grid)


def _round_up(value: float) -> float:
    """Return the top of a scale: 1, 2, 4 or 8 times a power of ten that is not below `value`, and at least 1."""
    if value <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((factor * power for factor in (1, 2, 4, 8) if factor * power >= value), 10 * power)
