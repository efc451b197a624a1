"""Entry to the pages: links that work once, and cookies that prove themselves."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from handset.web import sessions
from handset.web.sessions import EndedSessions, PageSession, PageSessions
from tests.manual_clock import ManualClock

KEY = bytes(range(32))


def make(folder: Path, clock: ManualClock, key: bytes = KEY) -> PageSessions:
    """Return the sessions of a process that has just started in a data directory."""
    return PageSessions(key, clock, EndedSessions(folder / "ended"))


def enter(made: PageSessions) -> tuple[str, PageSession]:
    """Use a new link. Returns the cookie and its session."""
    cookie = made.use(made.make_link())
    assert cookie is not None
    session = made.find(cookie)
    assert session is not None
    return cookie, session


def test_a_link_works_once_within_12_hours(tmp_path: Path) -> None:
    clock = ManualClock()
    made = make(tmp_path, clock)
    token, late = made.make_link(), made.make_link()
    assert made.is_valid(token)
    assert made.use(token)
    assert made.use(token) is None
    assert made.use("") is None
    clock.advance(12 * 3600 + 1)
    assert made.use(late) is None


def test_at_most_16_links_wait(tmp_path: Path) -> None:
    made = make(tmp_path, ManualClock())
    tokens = [made.make_link() for _ in range(17)]
    assert [made.is_valid(token) for token in tokens] == [False] + [True] * 16


def test_a_session_lasts_12_hours_and_survives_the_process(tmp_path: Path) -> None:
    clock = ManualClock()
    first = make(tmp_path, clock)
    cookie = first.use(first.make_link())
    assert cookie is not None
    again = make(tmp_path, clock)
    session = again.find(cookie)
    assert session is not None
    assert sessions.is_token(session, session.csrf)
    assert not sessions.is_token(session, "")
    clock.advance(12 * 3600 - 1)
    assert again.find(cookie) is not None
    clock.advance(2)
    assert again.find(cookie) is None


def test_a_changed_cookie_and_one_of_another_directory_are_refused(tmp_path: Path) -> None:
    made = make(tmp_path, ManualClock())
    cookie = made.use(made.make_link())
    assert cookie is not None
    name, _, signature = cookie.rpartition(".")
    changed = ["", ".", "ü", "x" * 300, f"9{cookie}", f"{name}.{signature[:-1]}", f"{name}.{signature[::-1]}"]
    assert [made.find(each) for each in changed] == [None] * len(changed)
    assert make(tmp_path, ManualClock(), bytes(32)).find(cookie) is None


async def test_an_ended_session_stays_ended_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    made = make(tmp_path, clock)
    (cookie, session), (other, _) = enter(made), enter(made)
    await made.end(session)
    for each in (made, make(tmp_path, clock)):
        assert each.find(cookie) is None
        assert each.find(other) is not None
    # Ids without signatures are no cookies.
    assert (tmp_path / "ended").read_text() == f"{session.id}\n"
    assert stat.S_IMODE((tmp_path / "ended").stat().st_mode) == 0o600


async def test_ended_sessions_are_forgotten_once_they_have_expired(tmp_path: Path) -> None:
    clock = ManualClock()
    made = make(tmp_path, clock)
    _, first = enter(made)
    await made.end(first)
    clock.advance(12 * 3600)
    _, second = enter(made)
    await made.end(second)
    assert (tmp_path / "ended").read_text() == f"{second.id}\n"


async def test_forgotten_sessions_are_invalid_while_the_list_of_ended_ones_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MAX_ENDED", 2)
    clock = ManualClock()
    made, cookies = make(tmp_path, clock), list[str]()
    for _ in range(3):
        cookie, session = enter(made)
        cookies.append(cookie)
        clock.advance(1)
        await made.end(session)
    cookies.append(enter(made)[0])
    for each in (made, make(tmp_path, clock)):
        assert [each.find(cookie) is not None for cookie in cookies] == [False, False, False, True]


async def test_a_session_whose_end_cannot_be_stored_ends_until_the_restart(tmp_path: Path) -> None:
    made = PageSessions(KEY, ManualClock(), EndedSessions(tmp_path / "missing" / "ended"))
    cookie, session = enter(made)
    with pytest.raises(OSError, match="No such file"):
        await made.end(session)
    assert made.find(cookie) is None


def test_damaged_lines_of_the_file_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "ended").write_bytes(b"\xff\n1.x\n\n" + b"9" * 20 + b".abcdefghijklmnop\n")
    assert enter(make(tmp_path, ManualClock()))
