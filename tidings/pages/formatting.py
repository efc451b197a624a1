"""Received text as HTML: the formatting of chats and links. HTML in the text itself is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator

import markupsafe
from markupsafe import Markup

from tidings.pages.printable import one_line

MAX_NESTED = 4  # levels of formatting inside formatting

# Characters that end no line, and that XML and terminals do not take.
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")
_BREAKS = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")
_BLOCK = re.compile(r"```(.+?)```", re.DOTALL)
_INLINE = re.compile(
    r"(?P<code>`[^`]+`)"
    r"|(?P<url>https?://[^\s<>\"'\u200e\u200f\u202a-\u202e\u2066-\u2069]+)"
    r"|(?<![\w*])\*(?P<b>(?=\S)[^*]*[^*\s])\*(?![\w*])"
    r"|(?<![\w])_(?P<i>(?=\S)[^_]*[^_\s])_(?![\w])"
    r"|(?<![\w~])~(?P<s>(?=\S)[^~]*[^~\s])~(?![\w~])"
)
_ITEM = re.compile(r"(?:[-*]|(?P<number>\d{1,3})\.) +(?P<words>\S.*)")
_STYLES = {"b": Markup("<b>{}</b>"), "i": Markup("<i>{}</i>"), "s": Markup("<s>{}</s>")}
_LISTS = {"ul": Markup("<ul>{}</ul>"), "ol": Markup("<ol>{}</ol>")}
# Punctuation that ends a sentence rather than a URL.
_TRAILING = ".,;:!?)]}…"


def formatted(text: str) -> Markup:
    """Return a text with its formatting: *bold*, _italic_, ~struck~, `code`, ```blocks```, > quotes, lists, links.

    Each line has its own direction, so that marks of direction end with it.
    """
    found: list[Markup] = []
    end = 0
    text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", _BREAKS.sub("\n", text))
    for block in _BLOCK.finditer(text):
        found += _lines(text[end : block.start()])
        found.append(Markup('<pre dir="auto">{}</pre>').format(block[1].strip("\n")))
        end = block.end()
    return Markup("").join([*found, *_lines(text[end:])])


def _lines(text: str) -> Iterator[Markup]:
    """Yield the lines of a text, with consecutive items of one kind as a list."""
    lines = text.strip("\n").split("\n") if text.strip("\n") else []
    items: list[Markup] = []
    kind = ""
    for line in [*lines, None]:
        item = _ITEM.fullmatch(line) if line is not None else None
        new_kind = ""
        if item is not None:
            new_kind = "ol" if item["number"] else "ul"
        if items and new_kind != kind:
            yield _LISTS[kind].format(Markup("").join(items))
            items = []
        kind = new_kind
        if item is not None:
            value = Markup(' value="{}"').format(item["number"]) if item["number"] else ""
            items.append(Markup('<li dir="auto"{}>{}</li>').format(value, _inline(item["words"])))
        elif line is not None and line.startswith("> "):
            yield Markup('<blockquote dir="auto">{}</blockquote>').format(_inline(line[2:]))
        elif line is not None:
            yield Markup('<p dir="auto">{}</p>').format(_inline(line) or Markup("<br>"))


def _inline(text: str, depth: int = 0) -> Markup:
    if depth >= MAX_NESTED:
        return markupsafe.escape(text)
    found, end = [], 0
    for match in _INLINE.finditer(text):
        kind = match.lastgroup or ""
        inside = match[kind]
        after = match.end()
        if kind == "code":
            made = Markup("<code>{}</code>").format(inside[1:-1])
        elif kind == "url":
            url = inside.rstrip(_TRAILING)
            after = match.start() + len(url)
            made = link(url, url)
        else:
            made = _STYLES[kind].format(_inline(inside, depth + 1))
        found += [markupsafe.escape(text[end : match.start()]), made]
        end = after
    return Markup("").join([*found, markupsafe.escape(text[end:])])


def link(url: str, words: str) -> Markup:
    """Return a link to a URL of http or https, or the words alone."""
    address = web_address(url)
    if not address:
        return Markup("<bdi>{}</bdi>").format(one_line(words))
    return Markup('<a href="{}" target="_blank" rel="noopener noreferrer"><bdi>{}</bdi></a>').format(
        address, one_line(words)
    )


def web_address(url: str) -> str:
    """Return a URL if a link may lead there: an absolute one of http or https without control characters."""
    if not re.fullmatch(r"https?://[^\s/\\][^\s\\]*", url, re.IGNORECASE) or not url.isprintable():
        return ""
    return url
