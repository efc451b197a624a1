"""Numbers of things in the output of commands."""

from __future__ import annotations

from cli.counts import counted


def test_one_thing_is_singular_and_any_other_number_plural() -> None:
    assert [counted(number, "callback") for number in (0, 1, 2)] == ["0 callbacks", "1 callback", "2 callbacks"]
    assert [counted(number, "process", "processes") for number in (0, 1, 2)] == [
        "0 processes", "1 process", "2 processes"
    ]  # fmt: skip
