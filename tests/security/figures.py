"""Measured figures and their limits, written to a file before they are asserted."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

FILE = Path(__file__).parents[2] / "build" / "security" / "figures.jsonl"


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """Short or long form of an attack."""

    long: bool

    def pick(self, short: float, long: float) -> float:
        """Return the value for this form."""
        return long if self.long else short

    def count(self, short: int, long: int) -> int:
        """Return the whole number for this form."""
        return long if self.long else short


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure."""

    test: str
    attack: str
    what: str
    measured: float
    limit: float | None  # None for a figure without a limit
    unit: str
    form: str
    at_least: bool = False  # True for a lower limit

    @property
    def is_within(self) -> bool:
        if self.limit is None:
            return True
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        limit = "" if self.limit is None else f" (limit {sign} {self.limit:,.4g} {self.unit})"
        return f"{self.attack}: {self.what} {self.measured:,.4g} {self.unit}{limit}"


class Figures:
    """Figures of this session."""

    def __init__(self, form: Form, file: Path = FILE) -> None:
        self.test = ""
        self.all: list[Figure] = []
        self._form = form
        self._file = file

    def record(
        self, attack: str, what: str, measured: float, limit: float | None, unit: str = "", *, at_least: bool = False
    ) -> None:
        """Record a figure. Raises `AssertionError` when it is beyond the limit."""
        figure = self.note(attack, what, measured, limit, unit, at_least=at_least)
        assert figure.is_within, str(figure)

    def note(
        self, attack: str, what: str, measured: float, limit: float | None, unit: str = "", *, at_least: bool = False
    ) -> Figure:
        """Record a figure, within its limit or not."""
        form = "long" if self._form.long else "short"
        figure = Figure(self.test, attack, what, measured, limit, unit, form, at_least)
        self.all.append(figure)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"time": round(time.time()), **dataclasses.asdict(figure), "is_within": figure.is_within})
        with self._file.open("a") as file:  # one write, so that concurrent sessions do not mix their lines
            file.write(line + "\n")
        if self._form.long:
            print(f"  {figure}{'' if figure.is_within else '  BEYOND'}", flush=True)
        return figure

    def table(self) -> str:
        """Return all figures as a table for a terminal."""
        rows = [["attack", "what", "measured", "limit", ""]]
        for figure in self.all:
            sign = "≥" if figure.at_least else "≤"
            limit = "" if figure.limit is None else f"{sign} {figure.limit:,.4g} {figure.unit}"
            verdict = "" if figure.is_within else "BEYOND"
            rows.append([figure.attack, figure.what, f"{figure.measured:,.4g} {figure.unit}", limit, verdict])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
