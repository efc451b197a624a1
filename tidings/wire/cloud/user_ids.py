"""Ids of users in the Cloud API (BSUID): a country, a dot, and digits that do not reveal the number."""

from __future__ import annotations

import hmac
import re

import phonenumbers

DIGITS = 20  # digits of the ids made here
_USER_ID = re.compile(r"[A-Z]{2}\.(?:ENT\.)?[0-9A-Za-z]{1,128}", re.ASCII)
_UNKNOWN_COUNTRY = "ZZ"


def is_user_id(text: str) -> bool:
    """Return whether a text has the form of a user's id, which numbers have not."""
    return _USER_ID.fullmatch(text) is not None


def derive(key: bytes, business_id: str, number: str) -> str:
    """Return the id of a user for one portfolio.

    key: secret, without which the number of an id cannot be found by trying all numbers
    """
    digest = hmac.digest(key, f"tidings cloud user\n{business_id}\n{number}".encode(), "sha256")
    return f"{country_of(number)}.{int.from_bytes(digest[:16]) % 10**DIGITS:0{DIGITS}}"


def country_of(number: str) -> str:
    """Return the country of a number, two letters: the main one of a shared code, `ZZ` for an unknown one."""
    try:
        parsed = phonenumbers.parse(f"+{number}")
    except phonenumbers.NumberParseException:
        return _UNKNOWN_COUNTRY
    found = phonenumbers.region_code_for_number(parsed)
    found = found or phonenumbers.region_code_for_country_code(parsed.country_code or 0)
    return found if found.isalpha() else _UNKNOWN_COUNTRY
