"""What a check finds, and how many checks are run one after the other."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
from collections.abc import Sequence
from typing import Protocol

from tidings.runtime.env import SettingsError
from tidings.storage import outages

SECONDS = 120.0  # for one check


class Level(enum.IntEnum):
    """How bad it is; the worst is the exit status of the command."""

    FINE = 0
    WARNING = 1
    ERROR = 2


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """check: its name; text: what was found; remedy: what to do about it, empty where nothing is wrong."""

    check: str
    level: Level
    text: str
    remedy: str = ""


class Check(Protocol):
    """One part of an installation. name: short and lower case."""

    @property
    def name(self) -> str: ...

    async def run(self) -> Sequence[Finding]:
        """What there is to say, never nothing. Whatever it raises becomes a finding."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Checks of one thing. Where the first finds an error, the others would only say it again."""

    first: Check
    rest: Sequence[Check] = ()


def fine(check: str, text: str) -> Finding:
    return Finding(check, Level.FINE, text)


def warning(check: str, text: str, remedy: str) -> Finding:
    return Finding(check, Level.WARNING, text, remedy)


def error(check: str, text: str, remedy: str) -> Finding:
    return Finding(check, Level.ERROR, text, remedy)


async def run_groups(groups: Sequence[Group], *, seconds: float = SECONDS) -> Sequence[Finding]:
    """Run all, one after the other, so that none measures another. seconds: for each check."""
    found: list[Finding] = []
    for group in groups:
        first = await _run(group.first, seconds)
        found += first
        if worst(first) is Level.ERROR:
            continue
        for check in group.rest:
            found += await _run(check, seconds)
    return found


async def _run(check: Check, seconds: float) -> Sequence[Finding]:
    try:
        async with asyncio.timeout(seconds):
            return await check.run()
    except TimeoutError:
        return [error(check.name, f"no result within {seconds:g} s", "look why it hangs, and try again")]
    except SettingsError as failure:
        return [error(check.name, str(failure), "correct it")]
    except Exception as failure:
        told = outages.describe(failure) or f"{type(failure).__name__}: {failure}"
        return [error(check.name, f"could not be looked at: {told}"[:500], "see what it says")]


def worst(found: Sequence[Finding]) -> Level:
    """The level of all together."""
    return max((finding.level for finding in found), default=Level.FINE)
