"""Attachments: any chunk sizes, constant memory, and no plaintext of a wrong blob."""

from __future__ import annotations

import hashlib
import hmac
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import ciphers, padding
from cryptography.hazmat.primitives.ciphers import algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from tidings import e2ee
from tidings.e2ee import attachments

KEY = bytes(range(64))
MEBIBYTE = 1 << 20

chunk_sizes = st.lists(st.integers(0, 70), max_size=12)


def split(data: bytes, sizes: list[int]) -> list[bytes]:
    """Return chunks of these sizes, as far as the data reaches, then the rest."""
    chunks = []
    for size in sizes:
        chunks.append(data[:size])
        data = data[size:]
    return [*chunks, data]


def encrypt(key: bytes, chunks: list[bytes]) -> tuple[bytes, attachments.Encryptor]:
    encryptor = attachments.Encryptor(key)
    blob = b"".join([encryptor.update(chunk) for chunk in chunks])
    return blob + encryptor.finalize(), encryptor


def verify(key: bytes, digest: bytes, chunks: list[bytes]) -> attachments.Decryptor:
    verifier = attachments.Verifier(key, digest)
    for chunk in chunks:
        verifier.update(chunk)
    return verifier.finalize()


def by_the_book(iv: bytes, plaintext: bytes, key: bytes = KEY) -> bytes:
    """Return the blob in the documented format, made at once by other means."""
    padder = padding.PKCS7(128).padder()
    encryptor = ciphers.Cipher(algorithms.AES(key[:32]), modes.CBC(iv)).encryptor()
    blob = iv + encryptor.update(padder.update(plaintext) + padder.finalize()) + encryptor.finalize()
    return blob + hmac.digest(key[32:], blob, hashlib.sha256)


@given(plaintext=st.binary(max_size=300), sizes=chunk_sizes)
def test_a_blob_does_not_depend_on_the_chunk_sizes_of_encryption(plaintext: bytes, sizes: list[int]) -> None:
    blob, encryptor = encrypt(KEY, split(plaintext, sizes))
    assert blob == by_the_book(blob[:16], plaintext)
    assert encryptor.digest == hashlib.sha256(blob).digest()
    assert encryptor.size == len(blob) == attachments.blob_size(len(plaintext))


@given(plaintext=st.binary(max_size=300), first=chunk_sizes, second=chunk_sizes)
def test_the_plaintext_does_not_depend_on_the_chunk_sizes_of_decryption(
    plaintext: bytes, first: list[int], second: list[int]
) -> None:
    blob, digest = attachments.encrypt(KEY, plaintext)
    decryptor = verify(KEY, digest, split(blob, first))
    output = b"".join([decryptor.update(chunk) for chunk in split(blob, second)]) + decryptor.finalize()
    assert output == plaintext


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 31, 32, 33, 4096])
def test_one_call_encrypts_or_decrypts_a_small_blob(length: int) -> None:
    plaintext = bytes(length)
    blob, digest = attachments.encrypt(KEY, plaintext)
    assert len(blob) == 16 + (length // 16 + 1) * 16 + 32
    assert attachments.decrypt(KEY, digest, blob) == plaintext


def test_equal_plaintexts_under_one_key_encrypt_differently() -> None:
    assert len({attachments.encrypt(KEY, b"the same")[0][16:] for _ in range(20)}) == 20
    assert len({attachments.generate_key() for _ in range(20)}) == 20
    assert len(attachments.generate_key()) == 64


def test_tampering_with_any_byte_of_a_blob_yields_no_plaintext() -> None:
    blob, digest = attachments.encrypt(KEY, bytes(100))
    for position in range(len(blob)):
        for flip in (0x01, 0x80):
            tampered = bytearray(blob)
            tampered[position] ^= flip
            # With the digest of the tampered blob, the MAC alone must detect it.
            for expected in (digest, hashlib.sha256(tampered).digest()):
                with pytest.raises(e2ee.InvalidMessage):
                    verify(KEY, expected, [bytes(tampered)])


def test_a_truncated_or_extended_blob_yields_no_plaintext() -> None:
    blob, digest = attachments.encrypt(KEY, bytes(40))
    for changed in [blob[:length] for length in range(len(blob))] + [blob + b"\x00", blob + bytes(16), blob + blob]:
        for expected in (digest, hashlib.sha256(changed).digest()):
            with pytest.raises(e2ee.InvalidMessage):
                verify(KEY, expected, [changed])
            with pytest.raises(e2ee.InvalidMessage):
                verify(KEY, expected, [changed[number : number + 1] for number in range(len(changed))])


def test_a_blob_of_the_same_key_does_not_match_another_blobs_digest() -> None:
    _, digest = attachments.encrypt(KEY, b"the picture that was sent")
    other, _ = attachments.encrypt(KEY, b"the picture that was not!")
    with pytest.raises(e2ee.InvalidMessage):
        verify(KEY, digest, [other])


def test_a_wrong_key_or_digest_yields_no_plaintext() -> None:
    blob, digest = attachments.encrypt(KEY, b"text")
    with pytest.raises(e2ee.InvalidMessage):
        verify(attachments.generate_key(), digest, [blob])
    for wrong in (bytes(32), b"", digest[:-1], digest + b"\x00"):
        with pytest.raises(e2ee.InvalidMessage):
            verify(KEY, wrong, [blob])


def test_a_blob_that_changes_between_the_two_passes_is_refused() -> None:
    blob, digest = attachments.encrypt(KEY, bytes(100))
    for changed in (
        bytes([blob[0] ^ 1]) + blob[1:],
        blob[:60] + bytes([blob[60] ^ 1]) + blob[61:],
        blob[:-1] + bytes([blob[-1] ^ 1]),
        blob[:-1],
        blob + b"\x00",
        blob[:10],
        b"",
        attachments.encrypt(KEY, bytes(100))[0],
    ):
        decryptor = verify(KEY, digest, [blob])
        decryptor.update(changed)
        with pytest.raises(e2ee.InvalidMessage):
            decryptor.finalize()


@pytest.mark.parametrize("last", [b"\x00", b"\x11", b"\x02", b"\xff"])
def test_invalid_padding_under_a_valid_mac_is_refused(last: bytes) -> None:
    encryptor = ciphers.Cipher(algorithms.AES(KEY[:32]), modes.CBC(bytes(16))).encryptor()
    blob = bytes(16) + encryptor.update(bytes(31) + last) + encryptor.finalize()
    blob += hmac.digest(KEY[32:], blob, hashlib.sha256)
    with pytest.raises(e2ee.InvalidMessage):
        attachments.decrypt(KEY, hashlib.sha256(blob).digest(), blob)


@pytest.mark.parametrize("length", [0, 5, 15, 17])
def test_a_partial_ciphertext_block_under_a_valid_mac_is_refused(length: int) -> None:
    blob = bytes(16 + length)
    blob += hmac.digest(KEY[32:], blob, hashlib.sha256)
    with pytest.raises(e2ee.InvalidMessage):
        verify(KEY, hashlib.sha256(blob).digest(), [blob])


@pytest.mark.parametrize("key", [b"", bytes(32), bytes(63), bytes(65)])
def test_a_key_of_wrong_length_is_refused(key: bytes) -> None:
    for use in (
        lambda: attachments.Encryptor(key),
        lambda: attachments.Verifier(key, bytes(32)),
        lambda: attachments.encrypt(key, b"text"),
        lambda: attachments.decrypt(key, bytes(32), bytes(64)),
    ):
        with pytest.raises(e2ee.InvalidKey):
            use()


def test_digest_and_size_are_unavailable_before_finalize() -> None:
    encryptor = attachments.Encryptor(KEY)
    encryptor.update(b"text")
    for name in ("digest", "size"):
        with pytest.raises(AttributeError):
            getattr(encryptor, name)


def test_100_megabytes_are_encrypted_and_decrypted_in_constant_memory(tmp_path: Path) -> None:
    path, total = tmp_path / "blob", 100 * MEBIBYTE
    chunk = bytes(range(256)) * 1024  # 256 KiB
    plain = hashlib.sha256()
    read = hashlib.sha256()

    def chunks() -> Iterator[bytes]:
        with path.open("rb") as file:
            while data := file.read(len(chunk)):
                yield data

    tracemalloc.start()
    encryptor = attachments.Encryptor(KEY)
    with path.open("wb") as file:
        for _ in range(total // len(chunk)):
            plain.update(chunk)
            file.write(encryptor.update(chunk))
        file.write(encryptor.finalize())
    verifier = attachments.Verifier(KEY, encryptor.digest)
    for data in chunks():
        verifier.update(data)
    decryptor = verifier.finalize()
    for data in chunks():
        read.update(decryptor.update(data))
    read.update(decryptor.finalize())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert read.digest() == plain.digest()
    assert path.stat().st_size == encryptor.size == attachments.blob_size(total)
    assert peak < 8 * len(chunk)
