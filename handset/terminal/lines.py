"""Lines of a terminal that hold what others wrote: nothing in a text begins a line of its own, or moves the cursor.

Every line that the terminal itself writes begins with a time, `* `, `! ` or two spaces and a word. A text that brings
line breaks, or is wider than the terminal, goes on behind `CONTINUATION`, so it cannot imitate any of them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

CONTINUATION = "  | "
# Columns below which no line is folded: the terminal does it, wherever that is.
_NARROWEST = 20
# Widths of `East_Asian_Width` that take two columns, ambiguous ones in some terminals.
_WIDE = frozenset("WFA")
_TAB = "    "


def printable(text: str) -> str:
    """The text with controls, escapes, marks of direction and separators replaced; a tab becomes four spaces."""
    return "".join(c if c.isprintable() else _TAB if c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def one_line(text: str) -> str:
    """As `printable`, with a space for each line break."""
    return printable(" ".join(text.splitlines()))


def folded(lines: Iterable[str], columns: int) -> str:
    """Lines of one speaker, from the second on marked as continuations.

    A line ends at whatever `str.splitlines` takes for a break: CR, LF, VT, FF, FS, GS, RS, NEL, U+2028 and U+2029.
    columns: the width of the terminal, 0 for unlimited. A character counts for the most columns that terminals give it.
    """
    rows: list[str] = []
    for line in lines:
        for part in line.splitlines() or [""]:
            rest = printable(part)
            while True:
                start = CONTINUATION if rows else ""
                end = _fitting(rest, columns - len(start)) if columns >= _NARROWEST else len(rest)
                rows.append(start + rest[:end])
                rest = rest[end:]
                if not rest:
                    break
    return "\n".join(rows)


def _fitting(text: str, columns: int) -> int:
    """How many characters fit; up to the last space of the second half, when there is one."""
    used = 0
    for position, character in enumerate(text):
        used += 2 if unicodedata.east_asian_width(character) in _WIDE else 1
        if used > columns:
            space = text.rfind(" ", position // 2, position)
            return space + 1 if space > 0 else position
    return len(text)
