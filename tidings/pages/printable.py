"""Received words as people may safely see them: without characters that move the cursor or turn the direction."""

from __future__ import annotations

_TAB = "    "
# Join letters and emoji; a terminal cannot tell their width.
JOINERS = "\u200c\u200d"


def printable(text: str, keep: str = "") -> str:
    """Replace control characters, escapes, marks of direction and separators in a text; a tab becomes four spaces.

    keep: characters that stay
    """

    def shown(character: str) -> str:
        if character.isprintable() or character in keep:
            return character
        return _TAB if character == "\t" else "\N{REPLACEMENT CHARACTER}"

    return "".join(map(shown, text))


def one_line(text: str, keep: str = "") -> str:
    """Return the printable text on one line, with a space for each line break. keep: characters that stay"""
    return printable(" ".join(text.splitlines()), keep)


def label(text: str) -> str:
    """Return received words for a line of their own, such as the label of a button."""
    return one_line(text, JOINERS)
