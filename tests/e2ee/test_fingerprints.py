"""Safety numbers."""

from __future__ import annotations

from tidings.e2ee import fingerprints

ALICE = bytes.fromhex("0506863bc66d02b40d27b8d49ca7c09e9239236f9d7d25d6fcca5ce13c7064d868")
BOB = bytes.fromhex("05f781b6fb32fed9ba1cf2de978d4d5da28dc34046ae814402b5c0dbd96fda907b")


def test_a_safety_number_is_that_of_the_published_test_vector() -> None:
    found = fingerprints.safety_number(ALICE, "+14152222222", BOB, "+14153333333")
    assert found == "300354477692869396892869876765458257569162576843440918079131"


def test_both_sides_see_the_same_digits_and_another_key_gives_others() -> None:
    one = fingerprints.safety_number(ALICE, "+1", BOB, "+2")
    assert one == fingerprints.safety_number(BOB, "+2", ALICE, "+1")
    assert one != fingerprints.safety_number(ALICE, "+1", ALICE, "+2")
    assert (len(one), one.isdigit()) == (60, True)
