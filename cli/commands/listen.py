"""`tidings listen`: webhook receiver that prints callbacks."""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cli import callback_receiver, guard, process
from tidings.aio import service

WIDTH = 200  # characters of a message's content; a longer one ends in "…"
# Fields of a message's content to show, by type; the first one that is set is used.
_READABLE: Mapping[str, Sequence[str]] = {
    "text": ("body",),
    "button": ("text",),
    "reaction": ("emoji",),
    "system": ("body",),
    "image": ("caption", "id"),
    "video": ("caption", "id"),
    "document": ("caption", "filename", "id"),
    "audio": ("id",),
    "voice": ("id",),
    "sticker": ("id",),
    "location": ("name", "address"),
}


def lines_of(body: bytes) -> Sequence[str]:
    """Return one line per event of a callback's body, or one line for a body that is not a callback."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return [f"no JSON   {_shown(body.decode(errors='replace'))}"]
    if not isinstance(found, dict):
        return [f"other     {_shown(found)}"]
    return list(_events(found)) or [f"other     {_shown(found)}"]


def _events(body: Mapping[str, Any]) -> Iterator[str]:
    for message in _objects(body, "messages"):
        yield _message(message)
    for status in _objects(body, "statuses"):
        errors = "".join(f": {_error(each)}" for each in _objects(status, "errors"))
        to = f"to {_plain(status.get('recipient_id'))}"
        yield f"status    {_plain(status.get('status')):<11} {_plain(status.get('id'))} {to}{errors}"
    # The contacts of a message contain only its sender's profile.
    if "messages" not in body:
        for contact in _objects(body, "contacts"):
            yield f"contact   {_plain(contact.get('status')):<11} {_plain(contact.get('input'))}"
    for error in _objects(body, "errors"):
        yield f"error     {_error(error)}"
    for entry in _objects(body, "services"):
        yield f"service   {_shown(entry)}"


def _message(message: Mapping[str, Any]) -> str:
    kind = message.get("type")
    content = message.get(kind) if isinstance(kind, str) else None
    sender = f"from {_plain(message.get('from'))}"
    if "group_id" in message:
        sender += f" in {_plain(message['group_id'])}"
    errors = "".join(f" {_error(each)}" for each in _objects(message, "errors"))
    line = f"message   {_plain(kind):<11} {_plain(message.get('id'))} {sender}"
    shown = _content(str(kind), content)
    return line + (f": {shown}" if shown else "") + (f":{errors}" if errors else "")


def _content(kind: str, content: Any) -> str:
    if isinstance(content, dict):
        readable = [content[name] for name in _READABLE.get(kind, ()) if content.get(name)]
        return _shown(readable[0] if readable else content)
    return _shown(content) if content is not None else ""


def _error(error: Mapping[str, Any]) -> str:
    details = f" ({_plain(error['details'])})" if error.get("details") else ""
    return f"{_plain(error.get('code'))} {_plain(error.get('title'))}{details}"


def _objects(body: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found = body.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _plain(value: Any) -> str:
    """Return a value without quotation marks, cut at `WIDTH` characters, with control characters escaped."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _escaped(text)[:WIDTH]


def _shown(value: Any) -> str:
    text = _escaped(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}…"


def _escaped(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the address to listen on and the output format."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8800, help="port to listen on (default 8800)")
    parser.add_argument("--json", action="store_true", help="print each complete callback as one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Answer callbacks with 200 and print each event as a line, or each callback as JSON, until Ctrl-C."""
    process.run_loop(_listen(options.host, options.port, _show_json if options.json else _show_events))
    return 0


async def _listen(host: str, port: int, show: Callable[[bytes], None]) -> None:
    stop = asyncio.Event()
    service.stop_on_signals(stop)
    failures: list[OSError] = []

    def show_or_stop(body: bytes) -> None:
        try:
            show(body)
        except OSError as error:
            # Nobody reads the output, as of `| head`, or its disk is full.
            failures.append(error)
            stop.set()
            raise

    try:
        async with callback_receiver.receiving(host, port, show_or_stop) as (own, chosen):
            shown = f"[{own}]" if ":" in own else own
            print(f"waiting for callbacks at http://{shown}:{chosen}/ (Ctrl-C to stop)", flush=True)
            await stop.wait()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise guard.CommandFailure(f"{host}:{port} is in use: name another port with --port") from error
        raise guard.CommandFailure(f"cannot listen on {host}:{port}: {error.strerror}") from error
    except OverflowError as error:
        raise guard.CommandFailure(f"{port} is not a port") from error
    if failures:
        raise failures[0]


def _show_events(body: bytes) -> None:
    now = time.strftime("%H:%M:%S")
    print("".join(f"{now}  {line}\n" for line in lines_of(body)), end="", flush=True)


def _show_json(body: bytes) -> None:
    try:
        found = json.dumps(json.loads(body), ensure_ascii=False)
        text = "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in found)
    except (ValueError, RecursionError):
        text = repr(body)
    print(text, flush=True)
