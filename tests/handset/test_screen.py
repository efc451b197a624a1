"""Messages on the recipient's terminal: no text can imitate another author's line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from handset.application import DeviceEvent, ReceivedMessage
from handset.shown_log import ShownLog
from handset.terminal.files import ConversationFiles
from handset.terminal.screen import Screen
from tests.manual_clock import ManualClock

ADA, BUSINESS, MALLORY = "15550100001", "15550000000", "15550666666"
FORGED = [f"12:00:00 +{BUSINESS}: your code is 1234", "  delivered to +15550000000", "* +15550000000 has left", "> "]
# Characters that some terminal or program interprets as a line break.
BREAKS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\n\r", "\n\n"]
# Sequences that move the cursor, clear the screen, or change the order in which characters are drawn.
CONTROLS = [
    *("\x1b[2J", "\x1b[1A", "\x1bM", "\x1bE", "\x9b1A", "\x84", "\x8d", "\b", "\x7f", "\x1b]0;title\x07", "\x0e", "\0"),
    *("\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069", "\u200e", "\u200f"),
    "\u061c",
]

Show = Callable[..., list[str]]


@pytest.fixture
def show(tmp_path: Path) -> Show:
    """Function that shows messages or events and returns the resulting rows of the terminal."""

    def shown(
        *items: ReceivedMessage | DeviceEvent, columns: int = 0, groups: dict[str, str] | None = None
    ) -> list[str]:
        written: list[str] = []
        log = ShownLog(tmp_path / "ada.jsonl", ManualClock())
        # No file is fetched here.
        files = ConversationFiles(cast(Any, None), cast(Any, None), folder=tmp_path, write=written.append)
        screen = Screen(log, written.append, files, groups=groups or {}, columns=lambda: columns)
        for item in items:
            if isinstance(item, DeviceEvent):
                screen.notify(item)
            else:
                screen.show([item])
        log.close()
        # Split at line feeds only: no other separator may be left.
        return "\n".join(written).split("\n")

    return shown


def text(body: str, *, group: str = "") -> ReceivedMessage:
    return ReceivedMessage(ADA, MALLORY, "m1", 1, 1, 1_000, "text", body, group=group)


def typing(peer: str) -> DeviceEvent:
    return DeviceEvent(ADA, peer, "typing")


def from_mallory(rows: list[str]) -> None:
    """Check that the first row names the sender, and that all others are marked as continuations."""
    assert re.match(rf"\d\d:\d\d:\d\d (\[.*\] )?\+{MALLORY}: ", rows[0])
    assert all(row.startswith("  | ") for row in rows[1:]), rows
    assert all(c.isprintable() for row in rows for c in row), rows


@pytest.mark.parametrize("separator", BREAKS, ids=ascii)
@pytest.mark.parametrize("forged", FORGED)
def test_a_line_break_in_a_text_cannot_start_a_forged_line(show: Show, separator: str, forged: str) -> None:
    rows = show(text(f"hello{separator}{forged}"))
    from_mallory(rows)
    assert rows[0].endswith("hello")
    assert rows[-1] == f"  | {forged}"


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
def test_control_and_bidi_characters_are_replaced(show: Show, control: str) -> None:
    rows = show(text(f"a{control}b"))
    from_mallory(rows)
    assert len(rows) == 1
    assert "\ufffd" in rows[0]


@pytest.mark.parametrize("filler", [" ", "a", "\t", "你", "\u0301", "“"], ids=ascii)
def test_a_long_line_is_wrapped_to_the_terminal_width(show: Show, filler: str) -> None:
    for count in range(200):
        rows = show(text(filler * count + FORGED[0]), columns=80)
        from_mallory(rows)
        assert all(len(row) <= 80 for row in rows)
    assert "".join(show(text("x" * 500), columns=80)).count("x") == 500


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("interactive", {"type": "button", "body": {"text": "BAD"}, "action": {"buttons": []}}),
        ("interactive", {"type": "list", "body": {"text": "x"}, "action": {"sections": [{"title": "BAD"}]}}),
        ("document", {"filename": "a.pdf", "caption": "BAD", "mime_type": "BAD"}),
        ("location", {"name": "BAD", "address": "BAD", "latitude": 1, "longitude": 2}),
        ("contacts", [{"name": {"formatted_name": "BAD"}}]),
        ("system", {"body": "BAD"}),
        ("order", {"text": "BAD"}),
        ("BAD", {}),
    ],
    ids=["buttons", "a list", "a document", "a location", "contacts", "system", "an order", "an unknown type"],
)
@pytest.mark.parametrize("separator", ["\n", "\r", "\u2028"], ids=ascii)
def test_no_field_of_any_message_can_start_a_forged_line(show: Show, kind: str, content: Any, separator: str) -> None:
    bad = f"x{separator}{FORGED[0]}{separator}{FORGED[1]}"
    raw = json.dumps({"type": kind, kind: content}).replace("BAD", json.dumps(bad)[1:-1])
    from_mallory(show(ReceivedMessage(ADA, MALLORY, "m1", 1, 1, 1_000, kind.replace("BAD", bad), "", raw)))


@pytest.mark.parametrize("separator", [*BREAKS, " " * 70], ids=ascii)
def test_group_subjects_and_quoted_texts_stay_within_their_lines(show: Show, separator: str) -> None:
    subject = f"x{separator}{FORGED[0]}"
    rows = show(text("hi", group="g1"), groups={"g1": subject}, columns=80)
    # With a long subject, the head itself may be folded.
    from_mallory(["".join(row.removeprefix("  | ") for row in rows)])
    assert all(row.startswith("  | ") for row in rows[1:]), rows
    reply = {"type": "text", "text": {"body": "hi"}, "context": {"id": "m1"}}
    quoting = ReceivedMessage(ADA, MALLORY, "m2", 2, 1, 1_000, "text", "hi", json.dumps(reply))
    from_mallory(show(text(subject), quoting, columns=80)[:1])
    rows = show(text(subject), quoting, columns=80)
    assert len([row for row in rows if not row.startswith("  | ")]) == 2
    assert all(c.isprintable() for row in rows for c in row), rows
    for detail in ("created", "joined", "left", "removed", "subject", "admins", f"other{separator}{FORGED[0]}"):
        event = DeviceEvent(ADA, MALLORY, "group_changed", (MALLORY,), detail, "g1", subject)
        rows = show(event, columns=80)
        assert rows[0].startswith("* "), rows
        assert all(row.startswith("  | ") for row in rows[1:]), rows


def test_an_unknown_refusal_reason_stays_within_its_line(show: Show) -> None:
    rows = show(DeviceEvent(ADA, BUSINESS, "refused", ("m1",), f"x\n{FORGED[0]}\x1b[2J"))
    assert len(rows) == 1
    assert rows[0].startswith("! not sent to ")
    assert rows[0].isprintable()


def test_a_peer_who_is_typing_is_shown_once_until_its_message_comes(show: Show) -> None:
    rows = show(typing(MALLORY), typing(BUSINESS), typing(MALLORY), text("hello"), typing(MALLORY))
    is_typing = f"  +{MALLORY} is typing"
    assert [*rows[:2], *rows[3:]] == [is_typing, f"  +{BUSINESS} is typing", is_typing]
    from_mallory(rows[2:3])


def test_a_message_of_a_group_does_not_end_an_indicator(show: Show) -> None:
    rows = show(typing(MALLORY), text("hello", group="15550000000-1767225600"), typing(MALLORY))
    assert len(rows) == 2
