"""Reader of what matters in a Compose file: image, variables and env files of each service.

It reads block style, which the vendor's files have, and refuses what it cannot read.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping

VARIABLE = re.compile(r"[A-Za-z0-9_.-]+")  # name of a variable
_KEY = re.compile(r"(?:(\"[^\"]*\"|'[^']*')\s*|([^\s:#\[\]{}&*!|>,][^:#]*)):(?=\s|\Z)(.*)", re.DOTALL)


class UnreadableCompose(ValueError):
    """The file is no Compose file that can be read. `str()` names the line and the reason."""


@dataclasses.dataclass(frozen=True, slots=True)
class ComposeService:
    """Service of a Compose file."""

    image: str  # empty for one that is built
    variables: Mapping[str, str]
    env_files: tuple[str, ...]


@dataclasses.dataclass(slots=True)
class _Line:
    number: int
    indent: int
    text: str  # without indentation and comment


def read(text: str) -> Mapping[str, ComposeService]:
    """Return the services of a Compose file by name. Raises `UnreadableCompose`."""
    top = dict(_blocks(list(_lines(text))))
    if "services" not in top:
        raise UnreadableCompose("it has no services, so it is no Compose file")
    services = dict(_blocks(top["services"][1]))
    if not services:
        raise UnreadableCompose("it has no services")
    return {name: _service(lines) for name, (_, lines) in services.items()}


def _lines(text: str) -> Iterator[_Line]:
    for number, raw in enumerate(text.splitlines(), 1):
        body = raw.lstrip(" ")
        if body.startswith("\t"):
            raise UnreadableCompose(f"line {number}: it is indented with tabs")
        if body.startswith("#") or body.strip() in ("", "---"):
            continue
        yield _Line(number, len(raw) - len(body), _without_comment(body).rstrip())


def _without_comment(text: str) -> str:
    quote = ""
    for index, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#" and text[index - 1] == " ":
            return text[:index]
    return text


def _blocks(lines: list[_Line]) -> Iterator[tuple[str, tuple[_Line, list[_Line]]]]:
    """Yield each key of a mapping with its line, whose text becomes the value, and the lines below it."""
    position = 0
    while position < len(lines):
        line = lines[position]
        if line.indent != lines[0].indent:
            raise UnreadableCompose(f"line {line.number}: its indentation fits no line above it")
        found = _KEY.fullmatch(line.text)
        if found is None:
            raise UnreadableCompose(f"line {line.number}: it is not of the form `name: value`")
        end = position + 1
        # A list may have the indentation of its key.
        while end < len(lines) and (
            lines[end].indent > line.indent or (lines[end].indent == line.indent and lines[end].text.startswith("- "))
        ):
            end += 1
        value = _Line(line.number, line.indent, found[3].strip())
        yield _unquoted(found[1] or found[2].rstrip()), (value, lines[position + 1 : end])
        position = end


def _service(lines: list[_Line]) -> ComposeService:
    parts = dict(_blocks(lines))
    image = _unquoted(parts["image"][0].text) if "image" in parts else ""
    return ComposeService(
        image,
        _variables(*parts["environment"]) if "environment" in parts else {},
        tuple(_env_files(*parts["env_file"])) if "env_file" in parts else (),
    )


def _variables(value: _Line, lines: list[_Line]) -> Mapping[str, str]:
    _require_block(value, "environment")
    if lines and not lines[0].text.startswith("- "):
        return {name: _unquoted(found.text) for name, (found, _) in _blocks(lines)}
    return dict(_variable(line) for line in lines)


def _variable(line: _Line) -> tuple[str, str]:
    name, _, text = _unquoted(_item(line)).partition("=")
    # The text may be a secret, so it is not shown.
    if VARIABLE.fullmatch(name.strip()) is None:
        raise UnreadableCompose(f"line {line.number}: it is not of the form `- NAME=value`")
    return name.strip(), text


def _env_files(value: _Line, lines: list[_Line]) -> Iterator[str]:
    if value.text:
        _require_block(value, "env_file", may_have_text=True)
        yield _unquoted(value.text)
    for line in lines:
        yield _unquoted(_item(line).removeprefix("path:").strip())


def _item(line: _Line) -> str:
    if not line.text.startswith("- "):
        raise UnreadableCompose(f"line {line.number}: it is no entry of a list")
    return line.text[2:].strip()


def _require_block(value: _Line, name: str, *, may_have_text: bool = False) -> None:
    if value.text[:1] in ("{", "[", "&", "*", "|", ">") or (value.text and not may_have_text):
        raise UnreadableCompose(f"line {value.number}: write each entry of {name} on a separate line")


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
