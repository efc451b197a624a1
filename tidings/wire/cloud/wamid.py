"""Message ids of the Cloud API, `wamid.` and base64, which contain our own message id and the other party's number.

The bytes are `1C 18 <length> <digits> 15 02 00`, `11` for a message of the business or `12` for one of a recipient,
and `18 <length> <key> 00`. The key is upper-case hexadecimal: 36 characters for our own ids of 27 characters, and `FF`
with the hexadecimal UTF-8 for any other id. The conversion is reversible, so no pair of ids is stored.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re

PREFIX = "wamid."
MAX_ID = 64  # characters of our own ids
_OWN = re.compile("gBE([GI][0-9A-Za-z]{23})", re.ASCII)
_KEY = re.compile("[GI][0-9A-Za-z]{23}", re.ASCII)
_ANY_KEY = re.compile(f"[0-9A-F]{{1,{MAX_ID}}}", re.ASCII)
_OTHER = b"\xff"
_BY_BUSINESS, _BY_RECIPIENT = b"\x15\x02\x00\x11\x18", b"\x15\x02\x00\x12\x18"


def encode(message_id: str, peer: str, *, by_recipient: bool = False) -> str:
    """Return the Cloud API's id of a message.

    peer: the recipient, or the sender of a message to the business
    """
    own = _OWN.fullmatch(message_id)
    # The letters and digits of our ids are those of base64, so 24 of them are 18 bytes.
    packed = binascii.a2b_base64(own[1]) if own is not None else _OTHER + message_id.encode()
    key = packed.hex().upper()
    direction = _BY_RECIPIENT if by_recipient else _BY_BUSINESS
    raw = b"\x1c\x18%c%b%b%c%b\x00" % (len(peer), peer.encode(), direction, len(key), key.encode())
    return PREFIX + binascii.b2a_base64(raw, newline=False).decode()


@dataclasses.dataclass(frozen=True, slots=True)
class DecodedId:
    """Parts of a message id."""

    message_id: str  # our own id
    by_recipient: bool  # whether the recipient sent the message


def decode(text: str) -> DecodedId | None:
    """Return the parts of a message id; `None` for a text that `encode` does not make."""
    parts = _parts(text)
    found = _message_id(parts[0]) if parts is not None else None
    return DecodedId(found, parts[1]) if parts is not None and found is not None else None


def key_of(text: str) -> str | None:
    """Return the key of a message id, of whatever server, up to 64 characters; `None` for any other text."""
    parts = _parts(text)
    return parts[0] if parts is not None and _ANY_KEY.fullmatch(parts[0]) else None


def _parts(text: str) -> tuple[str, bool] | None:
    """Return the key, and whether the recipient sent the message; `None` for a text that is no message id."""
    if not text.startswith(PREFIX) or len(text) > 512:
        return None
    try:
        raw = base64.b64decode(text[len(PREFIX) :], validate=True)
        key_at = 3 + raw[2] + len(_BY_BUSINESS)
        direction = raw[3 + raw[2] : key_at]
        key = raw[key_at + 1 : -1].decode("ascii")
        is_whole = raw[:2] == b"\x1c\x18" and raw[key_at] == len(key) and raw[-1] == 0
    except (binascii.Error, ValueError, IndexError):
        return None
    if not is_whole or direction not in (_BY_BUSINESS, _BY_RECIPIENT):
        return None
    return key, direction == _BY_RECIPIENT


def _message_id(key: str) -> str | None:
    try:
        raw = bytes.fromhex(key)
        if raw.startswith(_OTHER):
            found = raw[1:].decode()
            return found if 0 < len(found) <= MAX_ID and found.isprintable() else None
    except ValueError:
        return None
    text = base64.b64encode(raw).decode()
    return f"gBE{text}" if _KEY.fullmatch(text) and key == raw.hex().upper() else None
