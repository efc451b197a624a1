"""Numbers of things in the output of commands."""

from __future__ import annotations


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun, such as `1 callback` or `2 callbacks`.

    one: words after 1
    several: words after any other number; empty for `one` with a final `s`
    """
    return f"{number} {one if number == 1 else several or f'{one}s'}"
