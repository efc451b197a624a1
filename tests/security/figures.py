"""What was measured against which limit: written down before it is asserted."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

FILE = Path(__file__).parents[2] / "build" / "security" / "figures.jsonl"


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """How long an attack lasts."""

    long: bool

    def pick(self, short: float, long: float) -> float:
        """One of the two."""
        return long if self.long else short

    def count(self, short: int, long: int) -> int:
        """The same for whole numbers."""
        return long if self.long else short


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """limit: `None` where there is none. at_least: the limit is one from below."""

    test: str
    attack: str
    what: str
    measured: float
    limit: float | None
    unit: str
    form: str
    at_least: bool = False

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
    """Those of this session."""

    def __init__(self, form: Form, file: Path = FILE) -> None:
        self.test = ""
        self.all: list[Figure] = []
        self._form = form
        self._file = file

    def record(
        self, attack: str, what: str, measured: float, limit: float | None, unit: str = "", *, at_least: bool = False
    ) -> None:
        """Write it down. Raises `AssertionError` when it is beyond the limit."""
        figure = self.note(attack, what, measured, limit, unit, at_least=at_least)
        assert figure.is_within, str(figure)

    def note(
        self, attack: str, what: str, measured: float, limit: float | None, unit: str = "", *, at_least: bool = False
    ) -> Figure:
        """Write it down, within its limit or not."""
        form = "long" if self._form.long else "short"
        figure = Figure(self.test, attack, what, measured, limit, unit, form, at_least)
        self.all.append(figure)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"time": round(time.time()), **dataclasses.asdict(figure), "is_within": figure.is_within})
        with self._file.open("a") as file:  # one write: sessions beside each other do not mix their lines
            file.write(line + "\n")
        if self._form.long:
            print(f"  {figure}{'' if figure.is_within else '  BEYOND'}", flush=True)
        return figure

    def table(self) -> str:
        """All of them, for a terminal."""
        rows = [["attack", "what", "measured", "limit", ""]]
        for figure in self.all:
            sign = "≥" if figure.at_least else "≤"
            limit = "" if figure.limit is None else f"{sign} {figure.limit:,.4g} {figure.unit}"
            verdict = "" if figure.is_within else "BEYOND"
            rows.append([figure.attack, figure.what, f"{figure.measured:,.4g} {figure.unit}", limit, verdict])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
