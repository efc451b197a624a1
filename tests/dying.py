"""Owners that die at a crash point while the process of the tests lives on."""

from __future__ import annotations

import pytest

from tidings.runtime import crashpoints


def dies_at(monkeypatch: pytest.MonkeyPatch, point: str, error: BaseException) -> None:
    """Whoever reaches the point first fails with `error`, as near to dying as can be within a process."""
    left = [error]

    def reach(name: str) -> None:
        if name == point and left:
            raise left.pop()

    monkeypatch.setattr(crashpoints, "reach", reach)
