"""Findings of checks, and a sequential runner of checks."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Protocol

from tidings.config.env import SettingsError
from tidings.storage import outages

SECONDS = 120.0  # timeout of one check


class Level(enum.IntEnum):
    """Severity of a finding; the highest one is the exit status of the command."""

    FINE = 0
    WARNING = 1
    ERROR = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check."""

    check: str  # name of the check
    level: Level
    text: str
    remedy: str = ""  # how to correct the problem; empty if nothing is wrong


class DoctorCheck(Protocol):
    """Check of one part of an installation."""

    @property
    def name(self) -> str:
        """Name of the check, short and in lower case."""

    async def run(self) -> Sequence[Finding]:
        """Return one or more findings. An exception is reported as a finding by the caller."""


@dataclasses.dataclass(frozen=True, slots=True)
class CheckGroup:
    """Checks of one part. If the first finds an error, the others are skipped: they would report it again."""

    first: DoctorCheck
    rest: Sequence[DoctorCheck] = ()


def fine(check: str, text: str) -> Finding:
    return Finding(check, Level.FINE, text)


def warning(check: str, text: str, remedy: str) -> Finding:
    return Finding(check, Level.WARNING, text, remedy)


def error(check: str, text: str, remedy: str) -> Finding:
    return Finding(check, Level.ERROR, text, remedy)


async def run_groups(
    groups: Sequence[CheckGroup],
    *,
    seconds: float = SECONDS,
    report: Callable[[Sequence[Finding]], object] = lambda found: None,
) -> Sequence[Finding]:
    """Run all checks sequentially, so that they do not affect each other's measurements.

    seconds: timeout of each check.
    report: called with the findings of each check when it has ended.
    """
    found: list[Finding] = []
    for group in groups:
        for number, check in enumerate((group.first, *group.rest)):
            new = await _run(check, seconds)
            report(new)
            found += new
            if not number and worst(new) is Level.ERROR:
                break
    return found


async def _run(check: DoctorCheck, seconds: float) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(seconds):
            return await check.run()
    except TimeoutError:
        return [error(check.name, f"no result within {seconds:g} s", "find out why it hangs, and try again")]
    except SettingsError as failure:
        return [error(check.name, str(failure), "correct it")]
    except Exception as failure:
        reason = outages.describe(failure) or f"{type(failure).__name__}: {failure}"
        return [error(check.name, f"could not be checked: {reason}"[:500], "see the error")]


def worst(found: Sequence[Finding]) -> Level:
    """Return the highest level of the findings; `FINE` without findings."""
    return max((finding.level for finding in found), default=Level.FINE)
