"""Flame graphs of profiles, drawn downwards: SVG for browsers, with a tooltip per frame."""

from __future__ import annotations

import colorsys
import dataclasses
import html
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.rig import profiles
from benchmarks.rig.profiles import Stacks

WIDTH, ROW = 1600, 17  # pixels
CHARACTER = 6.1  # pixels of one character at the font size of `_HEAD`
LEAST = 0.003  # fraction of a process's samples below which a frame is not drawn
_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="monospace" font-size="10">
<style>
rect {{ stroke: #fff; stroke-width: 0.5 }} text {{ pointer-events: none }} g:hover > rect {{ fill: #ffd54f }}
</style>
<rect width="100%" height="100%" fill="#fff"/>
"""


@dataclasses.dataclass(slots=True)
class _Frame:
    """Function, by its callers."""

    count: int = 0  # samples in it and in the functions it calls
    calls: dict[str, _Frame] = dataclasses.field(default_factory=dict)


def draw(title: str, profile: Mapping[str, Stacks], path: Path) -> None:
    """Draw all processes one below the other. The width of a frame is its fraction of the process's samples."""
    parts: list[str] = []
    top = ROW * 2
    for process, stacks in profile.items():
        root = _tree(stacks)
        parts.append(_text(4, top, f"{process}: {root.count:,} ms of CPU time", "bold"))
        drawn = list(_rectangles(root, 0.0, 0, root.count))
        parts += [
            _rectangle(name, at, top + ROW * (depth + 1) - 12, count, root.count) for name, at, depth, count in drawn
        ]
        top += ROW * (3 + max((depth for _, _, depth, _ in drawn), default=0) + 1)
    head = _HEAD.format(width=WIDTH, height=top)
    path.write_text("\n".join([head, _text(4, ROW, title, "bold"), *parts, "</svg>"]) + "\n")


def _tree(stacks: Stacks) -> _Frame:
    root = _Frame()
    for stack, count in stacks.items():
        root.count += count
        frame = root
        for name in stack:
            frame = frame.calls.setdefault(name, _Frame())
            frame.count += count
    return root


def _rectangles(frame: _Frame, left: float, depth: int, total: int) -> Iterator[tuple[str, float, int, int]]:
    """Yield name, left edge (fraction of the width), depth and samples of all frames below a frame."""
    for name, called in sorted(frame.calls.items(), key=lambda entry: -entry[1].count):
        if called.count / total < LEAST:
            return
        yield name, left, depth, called.count
        yield from _rectangles(called, left, depth + 1, total)
        left += called.count / total


def _rectangle(name: str, left: float, top: float, count: int, total: int) -> str:
    width = count / total * WIDTH
    room = int((width - 4) / CHARACTER)
    short = name if len(name) <= room else "…" + name[len(name) - room + 1 :]
    label = _text(left * WIDTH + 2, top + 12, short) if room >= 5 else ""
    told = html.escape(f"{name}: {count:,} ms, {count / total:.1%}")
    return (
        f'<g><title>{told}</title><rect x="{left * WIDTH:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 1}"'
        f' fill="{_colour(name)}"/>{label}</g>'
    )


def _text(left: float, top: float, text: str, weight: str = "normal") -> str:
    return f'<text x="{left:.1f}" y="{top}" font-weight="{weight}">{html.escape(text)}</text>'


def _colour(name: str) -> str:
    """Return the colour of a function: a hue per module, grey for libraries."""
    module = profiles.module(name)
    if not module:
        return "#d5d8dc"
    red, green, blue = colorsys.hls_to_rgb(zlib.crc32(module.encode()) % 360 / 360, 0.75, 0.6)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
