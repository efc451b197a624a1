"""Settings of the Cloud API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.webapp.test_settings import read
from tidings.config.env import SettingsError


def test_the_cloud_api_is_off_by_default(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.cloud_api, found.cloud_open, found.cloud_throttle_status) == (False, False, 400)
    found = read(tmp_path, TIDINGS_CLOUD_API="1", TIDINGS_CLOUD_OPEN="1", TIDINGS_CLOUD_THROTTLE_STATUS="429")
    assert (found.cloud_api, found.cloud_open, found.cloud_throttle_status) == (True, True, 429)


def test_any_token_is_accepted_on_loopback_only(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="TIDINGS_CLOUD_OPEN=1 needs TIDINGS_API_ADDRESS on loopback"):
        read(tmp_path, TIDINGS_CLOUD_OPEN="1", TIDINGS_API_ADDRESS="0.0.0.0:9090")


def test_a_rate_limit_responds_with_400_or_429(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="TIDINGS_CLOUD_THROTTLE_STATUS"):
        read(tmp_path, TIDINGS_CLOUD_THROTTLE_STATUS="503")
