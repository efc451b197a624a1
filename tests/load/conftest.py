"""Options of the load tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("load")
    group.addoption("--minutes", type=float, help="duration of the measured part instead of each test's own")
    group.addoption("--keep-logs", help="copy the logs of the processes to this folder")


@pytest.fixture
def minutes(pytestconfig: pytest.Config) -> float | None:
    """Return the duration that was asked for; None for the test's own."""
    value: float | None = pytestconfig.getoption("--minutes")
    return value
