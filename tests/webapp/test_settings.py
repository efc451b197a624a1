"""Settings of a Webapp."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidings.config.env import SettingsError, printable
from webapp import settings


def read(directory: Path, **variables: str) -> settings.Settings:
    return settings.Settings.read({"TIDINGS_DATA_DIR": str(directory), **variables})


def test_the_defaults_are_loopback_and_the_documented_limits(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found.address == ("127.0.0.1", 9090)
    assert (found.messages_rate, found.messages_burst) == (80, 80)
    assert (found.contacts_rate, found.contacts_burst) == (40, 40)
    assert found.coreapp is None
    assert found.database.engine == "sqlite"
    assert not found.embedded


def test_the_default_burst_equals_the_rate(tmp_path: Path) -> None:
    found = read(tmp_path, TIDINGS_MESSAGES_RATE="500", TIDINGS_CONTACTS_RATE="0", TIDINGS_CONTACTS_BURST="7")
    assert (found.messages_rate, found.messages_burst) == (500, 500)
    assert (found.contacts_rate, found.contacts_burst) == (0, 7)


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("wacore", ("wacore", 6252)),
        ("wacore:7000", ("wacore", 7000)),
        ("10.0.0.1:7000", ("10.0.0.1", 7000)),
        ("[::1]:7000", ("::1", 7000)),
        ("::1", ("::1", 6252)),
    ],
)
def test_the_port_of_the_coreapp_address_is_optional(tmp_path: Path, name: str, address: tuple[str, int]) -> None:
    assert read(tmp_path, WACORE_HOSTNAME=name, TIDINGS_ALLOW_PLAINTEXT="link").coreapp == address


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("WA_API_KEY", "short"),
        ("WA_API_KEY", "x" * 129),
        ("WA_WEB_JWT_CRYPTO_KEY", "short"),
        ("TIDINGS_API_ADDRESS", "nowhere"),
        ("TIDINGS_MESSAGES_RATE", "many"),
        ("TIDINGS_BUSINESS_NUMBER", "home"),
    ],
)
def test_an_invalid_variable_is_named(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read(tmp_path, **{name: value})


def test_no_secret_is_printed(tmp_path: Path) -> None:
    found = read(tmp_path, WA_API_KEY="hidden-from-everybody", WA_WEB_JWT_CRYPTO_KEY="hidden-from-everybody")
    assert found.api_key == "hidden-from-everybody"
    assert "hidden" not in str(printable(found))
    assert "hidden" not in repr(found)


def test_media_are_stored_in_the_data_directory_by_default(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.media_dir, found.media_reserve, found.max_uploads) == (tmp_path / "media", 100 * 1024 * 1024, 16)
    found = read(tmp_path, TIDINGS_MEDIA_DIR="/srv/media", TIDINGS_MEDIA_RESERVE_MB="0", TIDINGS_MAX_UPLOADS="1")
    assert (found.media_dir, found.media_reserve, found.max_uploads) == (Path("/srv/media"), 0, 1)


def test_the_api_key_may_come_from_a_file(tmp_path: Path) -> None:
    kept = tmp_path / "key"
    kept.write_text("hidden-from-everybody\n")
    found = read(tmp_path, WA_API_KEY_FILE=str(kept))
    assert found.api_key == "hidden-from-everybody"
    assert "hidden" not in str(found)
    with pytest.raises(SettingsError, match="are both set"):
        read(tmp_path, WA_API_KEY_FILE=str(kept), WA_API_KEY="hidden-from-everybody")
    kept.write_text("short")
    with pytest.raises(SettingsError, match="12 to 128"):
        read(tmp_path, WA_API_KEY_FILE=str(kept))
