"""Ids of files in the Cloud API, and how long they are known.

An id has 19 digits that contain 60 of a file's random bits.

The digits are 2^60 plus the first 15 random hexadecimal digits of the file's UUID, so they fit a signed 64-bit integer
and no id is stored. The row of a file is found by the prefix of its UUID. A prefix that two files share (at 10 million
files the probability is about 1 in 20,000) names neither of them.
"""

from __future__ import annotations

LENGTH = 19
UPLOADED_MS = 30 * 24 * 3600 * 1000  # milliseconds for which the Cloud API knows a file that was uploaded over it
RECEIVED_MS = 7 * 24 * 3600 * 1000  # milliseconds for which it knows a file of a received message
_BASE = 1 << 60


def encode(media_id: str) -> str:
    """Return the Cloud API's id of a file.

    media_id: UUID of version 4, as `str(uuid.uuid4())` writes it
    """
    return str(_BASE + int(media_id[0:8] + media_id[9:13] + media_id[15:18], 16))


def is_media_id(text: str) -> bool:
    return len(text) == LENGTH and text.isascii() and text.isdigit() and _BASE <= int(text) < 2 * _BASE


def prefix(text: str) -> str:
    """Return the first 18 characters of the UUID of a file, by the file's id in the Cloud API."""
    digits = f"{int(text) - _BASE:015x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[12:]}"
