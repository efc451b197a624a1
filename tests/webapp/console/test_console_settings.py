"""Settings of the console: off by default, beyond loopback only over TLS and under configured names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidings.config.env import SettingsError
from webapp.settings import Settings

NAMED = {"TIDINGS_API_ADDRESS": "0.0.0.0:9090", "TIDINGS_HTTP_HOSTS": "console.example"}


def read(data_dir: Path, **variables: str) -> Settings:
    return Settings.read({"TIDINGS_DATA_DIR": str(data_dir), **variables})


def test_the_console_is_off_by_default(tmp_path: Path) -> None:
    assert not read(tmp_path).console
    assert read(tmp_path, TIDINGS_CONSOLE="1").console
    assert not read(tmp_path, TIDINGS_CONSOLE="0").console
    assert not read(tmp_path, **NAMED).console
    assert read(tmp_path, **NAMED, TIDINGS_CONSOLE="1").console


@pytest.mark.parametrize("missing", [{"TIDINGS_API_TLS": "0"}, {"TIDINGS_HTTP_HOSTS": ""}])
def test_the_console_beyond_loopback_needs_tls_and_names(tmp_path: Path, missing: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="TIDINGS_CONSOLE=1 beyond loopback needs TIDINGS_API_TLS=1"):
        read(tmp_path, **{**NAMED, "TIDINGS_CONSOLE": "1", **missing})


def test_keys_are_read_from_files_and_hidden(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("operator key from a file\n")
    file.chmod(0o600)
    settings = read(tmp_path, TIDINGS_CONSOLE_KEY_FILE=str(file), TIDINGS_CONSOLE_LINK="key of the one-time link")
    assert settings.console_key == "operator key from a file"
    assert "operator key from a file" not in repr(settings)
    assert "key of the one-time link" not in repr(settings)
