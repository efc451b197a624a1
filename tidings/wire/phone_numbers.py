"""Conversion of written telephone numbers to a wa_id: the digits of the international number, without `+`."""

from __future__ import annotations

import re
import unicodedata

import phonenumbers

# The usual case takes one match: an optional plus, then 7 to 15 digits of which the first is not 0 (E.164).
_PLAIN = re.compile(r"\+?([1-9][0-9]{6,14})")
# Letterhead notation: a 0 in parentheses that is dialled within the country only.
_TRUNK_PREFIX = re.compile(r"(?<=[0-9])(\s*)\(0\)")
# International prefix of most countries.
_INTERNATIONAL_PREFIX = re.compile(r"\s*00[1-9]")
_PUNCTUATION = str.maketrans("", "", " -.()/\u00a0\u2011\u200e")


def normalise(text: str, region: str | None = None) -> str | None:
    """Return the wa_id of a written number, or None when the text is no number.

    region: two-letter country of numbers without a country code; None to assume that each number starts with one
    """
    if len(text) > 64:
        return None
    if not text.isascii():
        text = _with_ascii_digits(text)
    text = _TRUNK_PREFIX.sub("", text)
    if _INTERNATIONAL_PREFIX.match(text):
        text = "+" + text.lstrip()[2:]
    plain = _PLAIN.fullmatch(text.translate(_PUNCTUATION))
    if plain and (text.lstrip().startswith("+") or region is None):
        return plain[1]
    try:
        number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return plain[1] if plain else None
    if not phonenumbers.is_possible_number(number):
        return plain[1] if plain else None
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164).lstrip("+")


def _with_ascii_digits(text: str) -> str:
    """Replace decimal digits of other scripts, such as Arabic-Indic ones, by 0 to 9."""
    return "".join(c if c.isascii() or not c.isdecimal() else str(unicodedata.decimal(c)) for c in text)
