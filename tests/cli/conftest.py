"""Ends the server of the commands."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli import support


@pytest.fixture(scope="session", autouse=True)
def _commands_end() -> Iterator[None]:
    yield
    if support.commands.cache_info().currsize:
        support.commands().close()
