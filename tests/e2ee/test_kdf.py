"""HMAC and HKDF against their RFC and the standard library."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.e2ee import kdf

# RFC 5869 appendix A.1 to A.3
RFC_5869 = [
    (
        "0b" * 22,
        "000102030405060708090a0b0c",
        "f0f1f2f3f4f5f6f7f8f9",
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    (
        bytes(range(0x00, 0x50)).hex(),
        bytes(range(0x60, 0xB0)).hex(),
        bytes(range(0xB0, 0x100)).hex(),
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c"
        "59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71"
        "cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    (
        "0b" * 22,
        "",
        "",
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
]


@pytest.mark.parametrize(("key", "salt", "info", "output"), RFC_5869)
def test_hkdf_matches_the_vectors_of_rfc_5869(key: str, salt: str, info: str, output: str) -> None:
    expected = bytes.fromhex(output)
    assert kdf.hkdf(bytes.fromhex(salt), bytes.fromhex(key), bytes.fromhex(info), len(expected)) == expected


@given(key=st.binary(min_size=32, max_size=32), first=st.binary(max_size=200), second=st.binary(max_size=200))
def test_hmac_matches_the_standard_library(key: bytes, first: bytes, second: bytes) -> None:
    expected = tuple(hmac.digest(key, message, hashlib.sha256) for message in (first, second))
    assert (kdf.hmac_sha256(key, first), kdf.hmac_sha256(key, second)) == expected
    assert kdf.hmac_pair(key, first, second) == expected


def test_a_salt_of_zeros_equals_no_salt() -> None:
    assert kdf.hkdf(kdf.ZERO_SALT, b"key", b"info", 80) == kdf.hkdf(b"", b"key", b"info", 80)
    assert kdf.extract(b"", b"key") == hmac.digest(bytes(32), b"key", hashlib.sha256)
