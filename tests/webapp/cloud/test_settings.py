"""Settings of the Cloud API."""

from __future__ import annotations

import math
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


@pytest.mark.parametrize("value", ["99", "1000000", "099", "99a", "\u0669\u0669\u0669"])
def test_a_prefix_that_is_not_three_to_six_digits_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(SettingsError, match=r"TIDINGS_CLOUD_STANDIN=.* is not a whole number from 100 to 999999"):
        read(tmp_path, TIDINGS_CLOUD_STANDIN=value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", None),
        ("0", 0.0),
        ("5000", 5000.0),
        ("2592000000", 2_592_000_000.0),
        ("never", math.inf),
        ("Never", math.inf),
    ],
)
def test_a_review_takes_milliseconds_or_ends_by_hand_only(tmp_path: Path, value: str, expected: float | None) -> None:
    assert read(tmp_path, TIDINGS_TEMPLATE_REVIEW_MS=value).template_review_ms == expected


@pytest.mark.parametrize("value", ["-1", "2592000001", "1.5", "hand", "\u0665", "1_000", "99999999999999999999"])
def test_a_wrong_time_of_a_review_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(
        SettingsError, match=r"TIDINGS_TEMPLATE_REVIEW_MS=.* is neither never nor a whole number from 0 to 2592000000"
    ):
        read(tmp_path, TIDINGS_TEMPLATE_REVIEW_MS=value)
