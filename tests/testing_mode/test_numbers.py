"""Test numbers, and the translation of the Cloud API's codes into those of v1."""

from __future__ import annotations

import pytest

from tidings.testing import numbers
from tidings.testing.numbers import TestKind
from tidings.wire.cloud import v1_codes


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        ("15550301026", TestKind.FAILS),
        ("15550310000", TestKind.REFUSED),
        ("15550329999", TestKind.DELAYS),
        ("15550330000", TestKind.DUPLICATES),
        ("15550340000", TestKind.REORDERS),
        ("15550350010", TestKind.REPLIES),
        ("15550360000", TestKind.DROPS),
        ("15550370000", TestKind.NAMED),
        ("15550380000", None),
        ("15550290000", None),
        ("1555030102", None),
        ("155503010260", None),
        ("25550301026", None),
        ("1555030102x", None),
        ("1555030102٣", None),
        ("", None),
    ],
)
def test_the_digits_of_a_number_choose_its_kind(number: str, kind: TestKind | None) -> None:
    assert numbers.kind_of(number) is kind


def test_the_last_digits_are_a_code_a_delay_or_a_count() -> None:
    assert numbers.code_of("15550301026") == 131026
    assert numbers.delay_of("15550320150") == 1500
    assert numbers.delay_of("15550110150") == 0
    assert numbers.replies_of("15550350020") == 20
    assert numbers.replies_of("15550359999") == 500
    assert numbers.replies_of("15550140020") == 0


def test_the_number_of_a_user_name_is_visible_only_while_users_have_no_ids() -> None:
    assert numbers.visible("15550370007", with_ids=True) == ""
    assert numbers.visible("15550370007", with_ids=False) == "15550370007"
    assert numbers.visible("15550110001", with_ids=True) == "15550110001"
    assert [numbers.username_of(number) for number in ("15550370007", "15550110001")] == ["user0007", ""]


@pytest.mark.parametrize(
    ("cloud", "v1"),
    [
        (131047, 470),
        (131026, 1013),
        (130472, 472),
        (131048, 471),
        (130429, 429),
        (131000, 500),
        (137000, 480),
        (470, 470),
    ],
)
def test_the_reason_of_a_failed_message_is_translated(cloud: int, v1: int) -> None:
    assert v1_codes.of_failed_message(cloud) == v1


@pytest.mark.parametrize(
    ("cloud", "v1"), [(130429, 1015), (132000, 2000), (131008, 1008), (131016, 1016), (100, 1009), (131049, 1000)]
)
def test_the_error_of_a_request_is_translated(cloud: int, v1: int) -> None:
    assert v1_codes.of_request_error(cloud) == v1
