"""Entry to the pages: links that work once, and cookies that prove themselves."""

from __future__ import annotations

from handset.web import sessions
from handset.web.sessions import PageSessions
from tests.manual_clock import ManualClock

KEY = bytes(range(32))


def test_a_link_works_once_within_12_hours() -> None:
    clock = ManualClock()
    made = PageSessions(KEY, clock)
    token, late = made.make_link(), made.make_link()
    assert made.is_valid(token)
    assert made.use(token)
    assert made.use(token) is None
    assert made.use("") is None
    clock.advance(12 * 3600 + 1)
    assert made.use(late) is None


def test_at_most_16_links_wait() -> None:
    made = PageSessions(KEY, ManualClock())
    tokens = [made.make_link() for _ in range(17)]
    assert [made.is_valid(token) for token in tokens] == [False] + [True] * 16


def test_a_session_lasts_12_hours_and_survives_the_process() -> None:
    clock = ManualClock()
    first = PageSessions(KEY, clock)
    cookie = first.use(first.make_link())
    assert cookie is not None
    again = PageSessions(KEY, clock)
    session = again.find(cookie)
    assert session is not None
    assert sessions.is_token(session, session.csrf)
    assert not sessions.is_token(session, "")
    clock.advance(12 * 3600 - 1)
    assert again.find(cookie) is not None
    clock.advance(2)
    assert again.find(cookie) is None


def test_a_changed_cookie_and_one_of_another_directory_are_refused() -> None:
    made = PageSessions(KEY, ManualClock())
    cookie = made.use(made.make_link())
    assert cookie is not None
    name, _, signature = cookie.rpartition(".")
    changed = ["", ".", "ü", "x" * 300, f"9{cookie}", f"{name}.{signature[:-1]}", f"{name}.{signature[::-1]}"]
    assert [made.find(each) for each in changed] == [None] * len(changed)
    assert PageSessions(bytes(32), ManualClock()).find(cookie) is None
