"""Sealed blobs can be opened only in their own place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings import e2ee
from tidings.e2ee import sealing

MASTER = bytes(range(32))
CONTEXT = ("4915112345", "491701234567", 1, "sending")


def sealer() -> e2ee.Sealer:
    return e2ee.Sealer(e2ee.Keyring.from_master(MASTER, 1))


def test_a_sealed_blob_opens_in_its_context_with_a_new_sealer() -> None:
    blob = sealer().seal(b"state", context=CONTEXT)
    assert len(blob) == len(b"state") + sealing.OVERHEAD
    assert blob[:5] == b"\x01\x00\x00\x00\x01"
    assert b"state" not in blob
    assert sealer().open(blob, CONTEXT) == b"state"


@pytest.mark.parametrize(
    "context",
    [
        ("4915112346", "491701234567", 1, "sending"),
        ("4915112345", "491701234568", 1, "sending"),
        ("4915112345", "491701234567", 2, "sending"),
        ("4915112345", "491701234567", 1, "receiving"),
        ("4915112345", "491701234567", "1", "sending"),
        ("4915112345", "491701234567", 1),
        ("4915112345", "491701234567", 1, "sending", ""),
        ("491511234", "5491701234567", 1, "sending"),
    ],
)
def test_a_blob_does_not_open_in_another_context(context: sealing.Context) -> None:
    blob = sealer().seal(b"state", context=CONTEXT)
    with pytest.raises(e2ee.CorruptState):
        sealer().open(blob, context)


def test_a_corrupt_or_truncated_blob_does_not_open() -> None:
    opener = sealer()
    blob = opener.seal(b"state", context=CONTEXT)
    for position in range(len(blob)):
        for bit in range(8):
            tampered = bytearray(blob)
            tampered[position] ^= 1 << bit
            with pytest.raises(e2ee.CorruptState):
                opener.open(bytes(tampered), CONTEXT)
        with pytest.raises(e2ee.CorruptState):
            opener.open(blob[:position], CONTEXT)


def test_equal_plaintexts_are_sealed_differently() -> None:
    one = sealer()
    assert len({one.seal(b"state", context=CONTEXT) for _ in range(100)}) == 100


def test_after_rotation_the_newest_key_seals_and_older_keys_open() -> None:
    old = e2ee.Keyring.from_master(MASTER, 1)
    new = e2ee.Keyring({**old.data_keys, 2: e2ee.generate_data_key()})
    blob = e2ee.Sealer(old).seal(b"old", context=CONTEXT)
    rotated = e2ee.Sealer(new)
    assert rotated.open(blob, CONTEXT) == b"old"
    newer = rotated.seal(b"new", context=CONTEXT)
    assert newer[1:5] == b"\x00\x00\x00\x02"
    with pytest.raises(e2ee.UnknownSealingKey) as caught:
        e2ee.Sealer(old).open(newer, CONTEXT)
    assert caught.value.key_id == 2


def test_wrapped_data_keys_unwrap_only_under_their_master_key_and_id() -> None:
    data_key = e2ee.generate_data_key()
    wrapped = e2ee.wrap_data_key(MASTER, 3, data_key)
    assert len(wrapped) == 45
    assert data_key not in wrapped
    assert e2ee.Keyring.unwrap(MASTER, {3: wrapped}).data_keys == {3: data_key}
    for master, key_id, blob in (
        (bytes(32), 3, wrapped),
        (MASTER, 4, wrapped),
        (MASTER, 4, wrapped[:4] + b"\x04" + wrapped[5:]),
        (MASTER, 3, wrapped[:-1] + bytes([wrapped[-1] ^ 1])),
        (MASTER, 3, wrapped[:-1]),
        (MASTER, 3, b""),
    ):
        with pytest.raises(e2ee.CorruptState):
            e2ee.Keyring.unwrap(master, {key_id: blob})


def test_keys_of_wrong_length_and_an_empty_keyring_are_refused() -> None:
    for make in (
        lambda: e2ee.Keyring.from_master(bytes(16), 1),
        lambda: e2ee.Keyring.from_master(MASTER, -1),
        lambda: e2ee.Keyring({}),
        lambda: e2ee.Keyring({1: b"short"}),
        lambda: e2ee.wrap_data_key(MASTER, 1, b"short"),
    ):
        with pytest.raises(e2ee.InvalidKey):
            make()


def test_the_repr_of_a_keyring_shows_no_key() -> None:
    assert "data_keys" not in repr(e2ee.Keyring.from_master(MASTER, 1))


def test_the_cipher_cache_is_bounded() -> None:
    one = e2ee.Sealer(e2ee.Keyring.from_master(MASTER, 1), cache_size=8)
    blobs = [(f"peer {number}", one.seal(b"state", context=("account", f"peer {number}"))) for number in range(50)]
    assert all(one.open(blob, ("account", peer)) == b"state" for peer, blob in blobs)
    assert one._cipher.cache_info().currsize <= 8


ONE_SEALER = e2ee.Sealer(e2ee.Keyring.from_master(MASTER, 1))


@given(
    contexts=st.lists(
        st.tuples(st.text(max_size=3), st.text(max_size=3) | st.integers(-5, 300), st.text(max_size=3)),
        min_size=2,
        max_size=2,
        unique=True,
    )
)
def test_a_blob_sealed_in_any_context_opens_in_no_other(contexts: list[sealing.Context]) -> None:
    blob = ONE_SEALER.seal(b"state", context=contexts[0])
    with pytest.raises(e2ee.CorruptState):
        ONE_SEALER.open(blob, contexts[1])


def test_rows_sealed_together_open_only_under_their_own_number() -> None:
    context: sealing.Context = ("15550000000", 7, "callback")
    rows = [(1, b"one"), (2**62, b"two"), (3, b"")]
    blobs = sealer().seal_rows(rows, context=context)
    assert len({blob[5:17] for blob in blobs}) == 3
    for (number, plaintext), blob in zip(rows, blobs, strict=True):
        assert sealer().open(blob, (*context, number)) == plaintext
        assert len(blob) == len(plaintext) + sealing.OVERHEAD
        with pytest.raises(e2ee.CorruptState):
            sealer().open(blob, (*context, number + 1))
    assert sealer().seal_rows([], context=context) == []
