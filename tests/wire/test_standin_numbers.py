"""Numbers that stand for users without a visible number: the same everywhere, and valid for programs of v1."""

from __future__ import annotations

import pytest

from tidings.wire import phone_numbers, standin_numbers

USER = "US.13491208655302741918"


def test_the_numbers_of_a_user_never_change() -> None:
    expected = ["999844650983059", "999342688186451", "999603919244654", "999583556270854"]
    assert standin_numbers.candidates("999", USER) == expected


@pytest.mark.parametrize("prefix", ["999", "888888"])
def test_every_number_is_one_of_v1_in_the_reserved_range(prefix: str) -> None:
    found = [number for n in range(500) for number in standin_numbers.candidates(prefix, f"US.{n}")]
    assert len(set(found)) == 2_000
    for number in found:
        assert len(number) == 15
        assert number.startswith(prefix)
        assert phone_numbers.normalise(f"+{number}") == phone_numbers.normalise(number) == number
        assert standin_numbers.is_reserved(prefix, number)
        # Also after the prefix was changed.
        assert standin_numbers.may_be("777", number)


def test_telephone_numbers_are_not_reserved() -> None:
    for number in ("15550110001", "4915112345678", "9985550110001"):
        assert not standin_numbers.is_reserved("999", number)
        assert not standin_numbers.may_be("999", number)
    assert standin_numbers.is_reserved("999", "9991")
