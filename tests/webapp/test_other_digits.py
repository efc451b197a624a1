"""Digits of other scripts: they are accepted in telephone numbers, and refused in all other numbers."""

from __future__ import annotations

from typing import Any

import pytest

from coreapp.settings import Settings as CoreappSettings
from network.settings import Settings as NetworkSettings
from tests.webapp.conftest import Served, body
from tidings.config.env import SettingsError
from tidings.wire import addresses, phone_numbers
from webapp.settings import Settings as WebappSettings

# The zeros of Arabic-Indic, Persian, Devanagari, Bengali, full-width and mathematical digits.
ZEROS = ["\u0660", "\u06f0", "\u0966", "\u09e6", "\uff10", "\U0001d7d8"]
# Digits according to `str.isdigit`, but not decimal digits: `int` refuses them.
SUPERSCRIPTS = "¹⁵⁵⁵⁰¹¹⁰⁰⁰¹"

other_scripts = pytest.mark.parametrize("zero", ZEROS, ids=ascii)


def written(zero: str, text: str) -> str:
    """Return the text with its digits in the script with this zero."""
    return "".join(chr(ord(zero) + int(c)) if c in "0123456789" else c for c in text)


@other_scripts
@pytest.mark.parametrize("number", ["+15550110001", "15550110001", "+1 555 011-0001", "001 555 011 0001"])
@pytest.mark.parametrize("region", [None, "US"])
def test_a_phone_number_is_normalised_in_every_script(zero: str, number: str, region: str | None) -> None:
    if region is not None and number.startswith("00"):
        # 00 is not the international prefix there.
        return
    found = phone_numbers.normalise(written(zero, number), region)
    assert found == phone_numbers.normalise(number, region) == "15550110001"
    assert addresses.is_number(found)


def test_superscript_digits_are_not_phone_numbers() -> None:
    assert phone_numbers.normalise(SUPERSCRIPTS) is None
    assert phone_numbers.normalise("+" + SUPERSCRIPTS) is None


@other_scripts
async def test_a_recipient_in_other_digits_is_refused(api: Served, zero: str) -> None:
    for to in (written(zero, "15550110001"), written(zero, "1555011000") + "1", SUPERSCRIPTS):
        response = await api.http.post("/v1/messages", json=body("message_text") | {"to": to})
        assert response.status_code == 400, response.text
        assert response.json()["errors"][0]["details"].startswith("to:")


@other_scripts
@pytest.mark.parametrize("all_of_it", [False, True], ids=["one digit", "all"])
async def test_a_location_in_other_digits_is_refused(api: Served, zero: str, all_of_it: bool) -> None:
    latitude = written(zero, "48.2082") if all_of_it else "4" + written(zero, "8") + ".2082"
    location: dict[str, Any] = {"latitude": latitude, "longitude": "16.3738"}
    response = await api.http.post("/v1/messages", json={"to": "15550110001", "type": "location", "location": location})
    assert response.status_code == 400, response.text
    assert "latitude" in response.json()["errors"][0]["details"]


async def test_python_number_syntax_is_refused_in_a_location(api: Served) -> None:
    for latitude in ("4_8.2082", " 48.2082", "48.2082\n", "+48.2082", "1e1"):
        message = {"to": "15550110001", "type": "location", "location": {"latitude": latitude, "longitude": "16"}}
        response = await api.http.post("/v1/messages", json=message)
        expected = 201 if latitude in ("+48.2082", "1e1") else 400
        assert response.status_code == expected, (latitude, response.text)


@other_scripts
async def test_template_placeholders_must_have_ascii_digits(api: Served, zero: str) -> None:
    text = f"Hello {{{{{written(zero, '1')}}}}}"
    template = {"name": "digits", "language": "en", "components": [{"type": "BODY", "text": text}]}
    response = await api.http.post("/v1/configs/templates", json=template)
    assert response.status_code == 400, response.text


@other_scripts
@pytest.mark.parametrize(
    ("settings", "variable", "value"),
    [
        (WebappSettings, "TIDINGS_MAX_REQUESTS", "100"),
        (WebappSettings, "TIDINGS_MESSAGES_RATE", "80.5"),
        (WebappSettings, "TIDINGS_API_ADDRESS", "127.0.0.1:9090"),
        (WebappSettings, "TIDINGS_BUSINESS_NUMBER", "15550000000"),
        (CoreappSettings, "TIDINGS_SHARDS", "1"),
        (CoreappSettings, "TIDINGS_STATUS_DELAY_MS", "5"),
        (NetworkSettings, "TIDINGS_NETWORK_DELAY_MS", "80..150"),
        (NetworkSettings, "TIDINGS_NETWORK_DRAIN_S", "5"),
    ],
)
def test_a_setting_in_other_digits_is_refused(
    settings: Any, variable: str, value: str, zero: str, tmp_path: Any
) -> None:
    variables = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert not [line for line in settings.mistakes({**variables, variable: value}) if variable in line]
    with pytest.raises(SettingsError, match=variable):
        settings.read({**variables, variable: written(zero, value)})


@pytest.mark.parametrize("value", ["1_000", "1__0", "_1"])
def test_python_number_syntax_is_refused_in_a_setting(value: str, tmp_path: Any) -> None:
    for variable in ("TIDINGS_MAX_REQUESTS", "TIDINGS_MESSAGES_RATE"):
        with pytest.raises(SettingsError, match=variable):
            WebappSettings.read({"TIDINGS_DATA_DIR": str(tmp_path), variable: value})
