"""Ids of users in the Cloud API: stable, of the form of the reference, and different for each portfolio."""

from __future__ import annotations

import pytest

from tidings.wire.cloud import user_ids

KEY = b"k" * 32


@pytest.mark.parametrize(
    ("portfolio", "number", "expected"),
    [
        ("4529949791234566", "15550110001", "US.87797448132355736591"),
        ("4529949791234566", "15550370007", "US.94226387308222579376"),
        ("4529949791234566", "15550110002", "US.09907347462789680432"),
        ("4529949791234566", "4915112345678", "DE.14188720738800113590"),
        ("1", "15550110001", "US.25905447872102388282"),
    ],
)
def test_an_id_depends_on_portfolio_and_number(portfolio: str, number: str, expected: str) -> None:
    assert user_ids.derive(KEY, portfolio, number) == expected
    assert user_ids.is_user_id(expected)
    assert user_ids.derive(b"K" * 32, portfolio, number)[3:] != expected[3:]


@pytest.mark.parametrize(
    ("number", "country"),
    [
        ("15550110001", "US"),
        ("14165550123", "CA"),
        ("4915112345678", "DE"),
        ("441632960001", "GB"),
        ("80012345678", "ZZ"),
        ("99912345678", "ZZ"),
        ("0", "ZZ"),
    ],
)
def test_an_id_begins_with_the_country_of_the_number(number: str, country: str) -> None:
    assert user_ids.country_of(number) == country


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("US.13491208655302741918", True),
        ("US.ENT.11815799212886844830", True),
        ("DE.a", True),
        ("US." + "a" * 128, True),
        ("US." + "a" * 129, False),
        ("US.", False),
        ("us.1", False),
        ("USA.1", False),
        ("U5.1", False),
        ("US.1\n", False),
        ("US.é", False),
        ("15550110001", False),
        ("+1 555 011 0001", False),
        ("", False),
    ],
)
def test_only_a_country_code_and_an_alphanumeric_part_form_an_id(text: str, expected: bool) -> None:
    assert user_ids.is_user_id(text) is expected
