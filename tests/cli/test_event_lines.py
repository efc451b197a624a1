"""Lines about received events: readable for a person, and without control characters for the terminal."""

from __future__ import annotations

import json

import pytest

from cli.commands import listen

MESSAGE = {"from": "15550140001", "id": "ABGG1", "timestamp": "1795226400"}


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            {
                "contacts": [{"profile": {"name": "Ada"}, "wa_id": "15550140001"}],
                "messages": [{**MESSAGE, "type": "text", "text": {"body": "Hello!"}}],
            },
            ['message   text        ABGG1 from 15550140001: "Hello!"'],
        ),
        (
            {"messages": [{**MESSAGE, "type": "image", "image": {"id": "f1", "mime_type": "image/png"}}]},
            ['message   image       ABGG1 from 15550140001: "f1"'],
        ),
        (
            {"messages": [{**MESSAGE, "type": "location", "location": {"latitude": 1.5, "longitude": 2}}]},
            ['message   location    ABGG1 from 15550140001: {"latitude": 1.5, "longitude": 2}'],
        ),
        (
            {"messages": [{**MESSAGE, "type": "unknown", "errors": [{"code": 501, "title": "Unknown message type"}]}]},
            ["message   unknown     ABGG1 from 15550140001: 501 Unknown message type"],
        ),
        (
            {"statuses": [{"id": "gBEG1", "recipient_id": "15550140001", "status": "delivered"}]},
            ["status    delivered   gBEG1 to 15550140001"],
        ),
        (
            {
                "statuses": [
                    {
                        "id": "gBEG1",
                        "recipient_id": "15550140001",
                        "status": "failed",
                        "errors": [{"code": 410, "title": "Message expired", "details": "after 60 s"}],
                    }
                ]
            },
            ["status    failed      gBEG1 to 15550140001: 410 Message expired (after 60 s)"],
        ),
        (
            {"contacts": [{"input": "+1 555", "status": "invalid"}, {"input": "15550140001", "status": "valid"}]},
            ["contact   invalid     +1 555", "contact   valid       15550140001"],
        ),
        ({"errors": [{"code": 1015, "title": "Too many requests"}]}, ["error     1015 Too many requests"]),
        ({"more": 1}, ['other     {"more": 1}']),
        ([1], ["other     [1]"]),
    ],
)
def test_each_event_of_a_callback_is_one_line(body: object, lines: list[str]) -> None:
    assert listen.lines_of(json.dumps(body).encode()) == lines


def test_invalid_json_is_shown_escaped() -> None:
    assert listen.lines_of(b"a\x1b[2J\nb\xff") == ['no JSON   "a\\u001b[2J\\nb�"']


@pytest.mark.parametrize("hostile", ["\x1b[31m", "\u202e", "\r", "\x9b", "\n"])
def test_no_control_character_of_a_sender_reaches_the_terminal(hostile: str) -> None:
    text = f"x{hostile}y"
    bodies = [
        {"messages": [{**MESSAGE, "type": "text", "text": {"body": text}}]},
        {"messages": [{"from": text, "id": text, "type": text}]},
        {"statuses": [{"id": text, "recipient_id": text, "status": text, "errors": [{"code": text, "title": text}]}]},
    ]
    for body in bodies:
        (line,) = listen.lines_of(json.dumps(body).encode())
        assert line.isprintable()


def test_a_long_message_is_truncated() -> None:
    body = {"messages": [{**MESSAGE, "type": "text", "text": {"body": "x" * 5000}}]}
    (line,) = listen.lines_of(json.dumps(body).encode())
    assert len(line) < 300
    assert line.endswith("…")


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"messages":' + b'{"a":' * 980 + b"1" + b"}" * 981])
def test_json_nested_too_deeply_is_shown_in_one_line(body: bytes) -> None:
    (line,) = listen.lines_of(body)
    assert line.isprintable()


@pytest.mark.parametrize("hostile", ["\u202e", "\x9b", "\x7f", "\ud800"], ids=ascii)
def test_no_control_character_of_a_sender_reaches_the_terminal_as_json(
    capsys: pytest.CaptureFixture[str], hostile: str
) -> None:
    body = {"messages": [{"text": {"body": f"é{hostile}"}}]}
    listen._show_json(json.dumps(body).encode())
    shown = capsys.readouterr().out
    assert (json.loads(shown), shown.rstrip("\n").isprintable(), "é" in shown) == (body, True, True)
