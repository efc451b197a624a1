"""Subjects of a change: the peers, messages and callbacks that its rows are about.

Two changes without a common subject do not depend on each other, so that one may be written without the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

# A change with this subject depends on every other one.
ALL = "*"
GROUPS = "*groups"
# Fields that are no rows.
_NO_ROWS = ("account", "made_from", "seal", "history")
# Attributes of rows that name a subject.
_NAMES = ("id", "peer", "wa_id", "sender", "subject", "answer", "seq")


def subjects_of(change: Any) -> set[str]:
    """Return the subjects of a change, which is a dataclass with a field per kind of row."""
    subjects: set[str] = set()
    for field in dataclasses.fields(change):
        value = getattr(change, field.name)
        if field.name in _NO_ROWS or not value:
            continue
        if field.name == "groups":
            # Rows of groups depend on each other in many ways.
            subjects.add(GROUPS)
        elif callable(value):
            subjects.add(ALL)
        elif dataclasses.is_dataclass(value):
            subjects |= subjects_of(value)
        else:
            for row in value:
                subjects.update(_named(row))
            if isinstance(value, Mapping):
                for listed in value.values():
                    subjects.update(_named(listed))
    return subjects


def _named(row: Any) -> Iterator[str]:
    """Yield the subjects of a row: of a dataclass, a name, a number, or several of them."""
    if isinstance(row, str):
        yield row
    elif isinstance(row, int):
        yield f"#{row}"
    elif isinstance(row, list | tuple):
        for part in row:
            yield from _named(part)
    else:
        for name in _NAMES:
            value = getattr(row, name, None)
            if isinstance(value, str | int):
                yield from _named(value)
