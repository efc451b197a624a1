"""Settings of a Coreapp."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from coreapp import settings
from tidings.config.env import SettingsError


def read(tmp_path: Path, **variables: str) -> settings.Settings:
    return settings.Settings.read({"TIDINGS_DATA_DIR": str(tmp_path), **variables})


@pytest.mark.parametrize("url", ["https://chat.example.com", "http://127.0.0.1:8000/join/"])
def test_invitations_lead_where_the_settings_say(tmp_path: Path, url: str) -> None:
    assert read(tmp_path, TIDINGS_INVITE_URL=url).invite_url == url


def test_invitations_lead_nowhere_by_default(tmp_path: Path) -> None:
    assert read(tmp_path).invite_url == "https://join.tidings.invalid"


@pytest.mark.parametrize("url", ["join", "ftp://a.example", "https://", "https://a.example/?code=", "https://a b/"])
def test_an_address_to_which_no_code_can_be_added_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingsError, match="TIDINGS_INVITE_URL"):
        read(tmp_path, TIDINGS_INVITE_URL=url)


def test_statuses_beyond_the_queue_are_dropped_without_a_webhook_unless_messages_are_to_be_refused(
    tmp_path: Path,
) -> None:
    assert not read(tmp_path).refuses_unheard
    assert read(tmp_path, TIDINGS_WITHOUT_WEBHOOK="refuse").refuses_unheard
    with pytest.raises(SettingsError, match="TIDINGS_WITHOUT_WEBHOOK"):
        read(tmp_path, TIDINGS_WITHOUT_WEBHOOK="wait")


def test_statuses_wait_for_a_second_by_default_and_up_to_a_minute(tmp_path: Path) -> None:
    assert read(tmp_path).status_delay == 1.0
    assert read(tmp_path, TIDINGS_STATUS_DELAY_MS="1500").status_delay == 1.5
    for wrong in ("-1", "60001", "1s"):
        with pytest.raises(SettingsError, match="TIDINGS_STATUS_DELAY_MS"):
            read(tmp_path, TIDINGS_STATUS_DELAY_MS=wrong)


def test_a_block_is_told_as_failed_unless_it_is_to_stay_secret(tmp_path: Path) -> None:
    assert not read(tmp_path).blocked_is_sent
    assert read(tmp_path, TIDINGS_BLOCKED_STATUS="sent").blocked_is_sent
    with pytest.raises(SettingsError, match="TIDINGS_BLOCKED_STATUS"):
        read(tmp_path, TIDINGS_BLOCKED_STATUS="delivered")


@pytest.mark.parametrize(
    ("address", "host"),
    [("0.0.0.0:6252", socket.gethostname()), ("[::]:6252", socket.gethostname()), ("10.0.0.7:6252", "10.0.0.7")],
)
def test_webapps_are_given_a_host_at_which_they_can_call(tmp_path: Path, address: str, host: str) -> None:
    variables = {"TIDINGS_COREAPP_ADDRESS": address, "TIDINGS_ALLOW_PLAINTEXT": "1"}
    assert read(tmp_path, **variables).advertised_host == host
    variables["TIDINGS_COREAPP_ADVERTISED_HOST"] = "core.internal"
    assert read(tmp_path, **variables).advertised_host == "core.internal"
