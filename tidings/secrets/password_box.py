"""Bytes encrypted under a password, as text: scrypt derives the key, AES-256-GCM encrypts.

    text:  base64 of  "TBX" version 1 (0x01), log2 of scrypt's N 1, salt 16, nonce 12, ciphertext, tag 16

The first five bytes and the purpose are authenticated as well. Sealing or opening a box takes some 100 ms and 32 MiB:
do it on a thread.
"""

from __future__ import annotations

import base64
import binascii
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

_MAGIC = b"TBX\x01"
_LOG_N, _MAX_LOG_N = 15, 18
_SALT, _NONCE = 16, 12
_HEAD = len(_MAGIC) + 1


class NotABox(ValueError):
    """The text is not a box, or one of a later version."""


class CannotOpen(ValueError):
    """The password is wrong or the box was changed; the two cannot be distinguished."""


def seal(password: str, content: bytes, *, purpose: str) -> str:
    """Return a box. purpose: must be the same for `open_box`."""
    head = _MAGIC + bytes([_LOG_N])
    salt, nonce = os.urandom(_SALT), os.urandom(_NONCE)
    sealed = AESGCM(_key(password, salt, _LOG_N)).encrypt(nonce, content, head + purpose.encode())
    return base64.b64encode(head + salt + nonce + sealed).decode()


def open_box(password: str, text: str, *, purpose: str) -> bytes:
    """Return the content of a box. Raises `NotABox` and `CannotOpen`."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise NotABox("it is not base64") from None
    if len(raw) < _HEAD + _SALT + _NONCE or not raw.startswith(_MAGIC) or not 1 <= raw[_HEAD - 1] <= _MAX_LOG_N:
        raise NotABox("it was created elsewhere or by a later version")
    head, salt, nonce = raw[:_HEAD], raw[_HEAD : _HEAD + _SALT], raw[_HEAD + _SALT : _HEAD + _SALT + _NONCE]
    try:
        key = _key(password, salt, head[-1])
        return AESGCM(key).decrypt(nonce, raw[_HEAD + _SALT + _NONCE :], head + purpose.encode())
    except InvalidTag:
        raise CannotOpen("the password is wrong, or the data has been changed") from None


def _key(password: str, salt: bytes, log_n: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=1 << log_n, r=8, p=1).derive(password.encode())
