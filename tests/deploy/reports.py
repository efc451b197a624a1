"""Plug-in for pytest that reports a timeout as one line instead of a traceback."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.deploy.podman import CommandTimedOut


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Replace the traceback of a timeout by its text."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, (CommandTimedOut, TimeoutError)):
        report.longrepr = f"{report.nodeid}: {call.excinfo.value}"
    return report
