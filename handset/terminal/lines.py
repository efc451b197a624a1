"""Output of received texts on a terminal: a text can neither imitate another line nor move the cursor.

Every line that the terminal itself writes starts with a time, `* `, `! ` or two spaces and a word. Further lines of a
text, by its line breaks or by folding at the width of the terminal, start with `CONTINUATION` instead.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from tidings.pages.printable import printable

CONTINUATION = "  | "
# Width in columns below which lines are not folded here, but by the terminal.
_NARROWEST = 20
# Values of `East_Asian_Width` that take two columns. Ambiguous characters (A) do so in some terminals.
_WIDE = frozenset("WFA")


def folded(lines: Iterable[str], columns: int) -> str:
    """Return the lines of one author as text, with all lines but the first marked as continuations.

    A line ends at every break of `str.splitlines`: CR, LF, VT, FF, FS, GS, RS, NEL, U+2028 and U+2029. A character
    counts as the most columns that any terminal gives it.

    columns: width of the terminal; 0 for unlimited.
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
    """Return the number of characters that fit, up to the last space in the second half of them, if it has one."""
    used = 0
    for position, character in enumerate(text):
        used += 2 if unicodedata.east_asian_width(character) in _WIDE else 1
        if used > columns:
            space = text.rfind(" ", position // 2, position)
            return space + 1 if space > 0 else position
    return len(text)
