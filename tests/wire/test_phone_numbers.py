"""Phone numbers in every notation."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.wire import phone_numbers


@pytest.mark.parametrize(
    ("text", "wa_id"),
    [
        ("+1 555 011 0001", "15550110001"),
        ("15550110001", "15550110001"),
        (" +49 (30) 901820 ", "4930901820"),
        ("+1.555.011-0001", "15550110001"),
        ("+4930901820", "4930901820"),
        ("+44 (0)20 7946 0123", "442079460123"),
        ("0044 20 7946 0123", "442079460123"),
        (" 0049(0)30-901820", "4930901820"),
        ("000123456789", None),
        ("+", None),
        ("", None),
        ("hello", None),
        ("0123", None),
        ("9" * 16, None),
        ("+1" * 100, None),
    ],
)
def test_phone_numbers_are_normalised(text: str, wa_id: str | None) -> None:
    assert phone_numbers.normalise(text) == wa_id


@given(st.one_of(st.text(max_size=70), st.text("+0123456789 ()-./x;=ext٣٤", max_size=40)))
def test_normalising_any_text_yields_a_wa_id_or_none(text: str) -> None:
    found = phone_numbers.normalise(text)
    assert found is None or re.fullmatch("[1-9][0-9]{3,19}", found)
    if found is not None:
        assert phone_numbers.normalise("+" + found) is not None
