"""Owners that die at a crash point while the test process continues."""

from __future__ import annotations

import pytest

from tidings.aio import crashpoints


def dies_at(monkeypatch: pytest.MonkeyPatch, point: str, error: BaseException) -> None:
    """Make the first caller that reaches the point fail with `error`, the closest to a death within a process."""
    left = [error]

    def reach(name: str, of: str = "") -> None:
        if name == point and left:
            raise left.pop()

    monkeypatch.setattr(crashpoints, "reach", reach)
