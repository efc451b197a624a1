"""Options of the soak."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("soak")
    group.addoption("--minutes", type=float, default=120.0, help="duration of the load (default %(default)s)")
    group.addoption("--warm-messages", type=int, help="messages until memory is measured (default 110,000)")
