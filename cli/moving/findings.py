"""Parts of an old configuration, each with what becomes of it here."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable


class Fate(enum.StrEnum):
    """Fate of a part of an old configuration."""

    KEPT = "kept"  # in force here without an action
    SET = "set"  # to be set here, by the command in the remark
    UNUSED = "unused"  # has no effect here
    REFUSED = "refused"  # cannot be had here


@dataclasses.dataclass(frozen=True, slots=True)
class OldPart:
    """Part of an old configuration."""

    fate: Fate
    name: str  # without secrets
    remark: str  # the command that sets it, or the reason

    def __str__(self) -> str:
        return f"{self.fate:<8} {shown(self.name)}: {self.remark}"


def kept(name: str, remark: str) -> OldPart:
    return OldPart(Fate.KEPT, name, remark)


def to_set(name: str, remark: str) -> OldPart:
    return OldPart(Fate.SET, name, remark)


def unused(name: str, remark: str) -> OldPart:
    return OldPart(Fate.UNUSED, name, remark)


def refused(name: str, remark: str) -> OldPart:
    return OldPart(Fate.REFUSED, name, remark)


def shown(text: object) -> str:
    """Return a text of the old configuration for one line of the terminal, at most 100 characters of it."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:100])


def summary(parts: Iterable[OldPart]) -> str:
    """Return the number of parts of each fate, on one line."""
    counts = dict.fromkeys(Fate, 0)
    for part in parts:
        counts[part.fate] += 1
    return ", ".join(f"{count} {'to set' if fate is Fate.SET else fate}" for fate, count in counts.items())
