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
def test_invite_links_use_the_configured_url(tmp_path: Path, url: str) -> None:
    assert read(tmp_path, TIDINGS_INVITE_URL=url).invite_url == url


def test_the_default_invite_url_is_invalid(tmp_path: Path) -> None:
    assert read(tmp_path).invite_url == "https://join.tidings.invalid"


@pytest.mark.parametrize("url", ["join", "ftp://a.example", "https://", "https://a.example/?code=", "https://a b/"])
def test_an_invite_url_that_cannot_take_a_code_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(SettingsError, match="TIDINGS_INVITE_URL"):
        read(tmp_path, TIDINGS_INVITE_URL=url)


def test_without_a_webhook_statuses_are_dropped_unless_configured_to_refuse_messages(
    tmp_path: Path,
) -> None:
    assert not read(tmp_path).refuses_without_webhook
    assert read(tmp_path, TIDINGS_WITHOUT_WEBHOOK="refuse").refuses_without_webhook
    with pytest.raises(SettingsError, match="TIDINGS_WITHOUT_WEBHOOK"):
        read(tmp_path, TIDINGS_WITHOUT_WEBHOOK="wait")


def test_the_status_delay_defaults_to_one_second_and_is_at_most_a_minute(tmp_path: Path) -> None:
    assert read(tmp_path).status_delay == 1.0
    assert read(tmp_path, TIDINGS_STATUS_DELAY_MS="1500").status_delay == 1.5
    for wrong in ("-1", "60001", "1s"):
        with pytest.raises(SettingsError, match="TIDINGS_STATUS_DELAY_MS"):
            read(tmp_path, TIDINGS_STATUS_DELAY_MS=wrong)


def test_one_to_100_statuses_are_posted_together(tmp_path: Path) -> None:
    assert read(tmp_path).statuses_per_post == 1
    assert read(tmp_path, TIDINGS_WEBHOOK_STATUSES_PER_POST="100").statuses_per_post == 100
    for wrong in ("0", "101", "many"):
        with pytest.raises(SettingsError, match="TIDINGS_WEBHOOK_STATUSES_PER_POST"):
            read(tmp_path, TIDINGS_WEBHOOK_STATUSES_PER_POST=wrong)


def test_a_block_is_reported_as_failed_unless_configured_as_sent(tmp_path: Path) -> None:
    assert not read(tmp_path).blocked_is_sent
    assert read(tmp_path, TIDINGS_BLOCKED_STATUS="sent").blocked_is_sent
    with pytest.raises(SettingsError, match="TIDINGS_BLOCKED_STATUS"):
        read(tmp_path, TIDINGS_BLOCKED_STATUS="delivered")


@pytest.mark.parametrize(
    ("address", "host"),
    [("0.0.0.0:6252", socket.gethostname()), ("[::]:6252", socket.gethostname()), ("10.0.0.7:6252", "10.0.0.7")],
)
def test_the_advertised_host_is_one_that_webapps_can_reach(tmp_path: Path, address: str, host: str) -> None:
    variables = {"TIDINGS_COREAPP_ADDRESS": address, "TIDINGS_ALLOW_PLAINTEXT": "1"}
    assert read(tmp_path, **variables).advertised_host == host
    variables["TIDINGS_COREAPP_ADVERTISED_HOST"] = "core.internal"
    assert read(tmp_path, **variables).advertised_host == "core.internal"


def test_an_advertised_host_without_brackets_is_one_of_ipv6_too(tmp_path: Path) -> None:
    for given in ("fd00::5", "[fd00::5]"):
        assert read(tmp_path, TIDINGS_COREAPP_ADVERTISED_HOST=given).advertised_host == "fd00::5"


@pytest.mark.parametrize("variable", ["TIDINGS_COREAPP_ADVERTISED_HOST", "TIDINGS_COREAPP_TLS_NAME"])
@pytest.mark.parametrize("host", ["http://core", "a b", "core..internal", "core:6252", "256.1.1.1"])
def test_a_host_that_is_neither_a_name_nor_an_address_is_refused(tmp_path: Path, variable: str, host: str) -> None:
    with pytest.raises(SettingsError, match=f"^{variable}='{host}' is not a host name or an IP address"):
        read(tmp_path, **{variable: host})


def test_the_name_in_the_certificates_has_no_final_dot(tmp_path: Path) -> None:
    assert read(tmp_path).coreapp_tls_name == ""
    for given in ("coreapp", "coreapp."):
        assert read(tmp_path, TIDINGS_COREAPP_TLS_NAME=given).coreapp_tls_name == "coreapp"
