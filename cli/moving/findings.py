"""Parts of an old configuration, each with its result: kept, to set, unused or refused."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable


class MoveResult(enum.StrEnum):
    """Result for one part of an old configuration."""

    KEPT = "kept"  # in force here without an action
    SET = "set"  # to be set here, by the command in the remark
    UNUSED = "unused"  # has no effect here
    REFUSED = "refused"  # cannot be had here


@dataclasses.dataclass(frozen=True, slots=True)
class OldPart:
    """Part of an old configuration."""

    result: MoveResult
    name: str  # without secrets
    remark: str  # the command that sets it, or the reason

    def __str__(self) -> str:
        return f"{self.result:<8} {shown(self.name)}: {self.remark}"


def kept(name: str, remark: str) -> OldPart:
    return OldPart(MoveResult.KEPT, name, remark)


def to_set(name: str, remark: str) -> OldPart:
    return OldPart(MoveResult.SET, name, remark)


def unused(name: str, remark: str) -> OldPart:
    return OldPart(MoveResult.UNUSED, name, remark)


def refused(name: str, remark: str) -> OldPart:
    return OldPart(MoveResult.REFUSED, name, remark)


def shown(text: object) -> str:
    """Return a text of the old configuration for one line of the terminal, at most 100 characters of it."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:100])


def summary(parts: Iterable[OldPart]) -> str:
    """Return the number of parts with each result, on one line."""
    counts = dict.fromkeys(MoveResult, 0)
    for part in parts:
        counts[part.result] += 1
    return ", ".join(f"{count} {'to set' if result is MoveResult.SET else result}" for result, count in counts.items())
