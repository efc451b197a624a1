"""The setting of the test mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.webapp.test_settings import read
from tidings.config.env import SettingsError


def test_the_test_mode_is_off_by_default_and_allowed_on_loopback(tmp_path: Path) -> None:
    assert not read(tmp_path).testing
    assert read(tmp_path, TIDINGS_TESTING="1").testing


@pytest.mark.parametrize("address", ["0.0.0.0:9090", "[::]:9090", "192.0.2.1:9090"])
def test_the_test_mode_is_refused_beyond_loopback(tmp_path: Path, address: str) -> None:
    with pytest.raises(SettingsError, match="TIDINGS_TESTING=1 needs TIDINGS_API_ADDRESS on loopback"):
        read(tmp_path, TIDINGS_TESTING="1", TIDINGS_API_ADDRESS=address)
