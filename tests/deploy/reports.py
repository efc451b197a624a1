"""A plug-in of pytest: a time-out is one line of the report, not a traceback."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.deploy.podman import CommandTimedOut


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the text of a time-out in the place of the traceback."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, (CommandTimedOut, TimeoutError)):
        report.longrepr = f"{report.nodeid}: {call.excinfo.value}"
    return report
