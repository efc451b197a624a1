"""Keys, signatures and the KEM."""

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric import mlkem
from hypothesis import given, settings
from hypothesis import strategies as st

from tidings import e2ee
from tidings.e2ee import curve, kem, xeddsa

P = 2**255 - 19

# u-coordinates of the points of small order, RFC 7748 section 6.1 and X25519's twist
SMALL_ORDER = [
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    P - 1,
]


def public_of(u: int) -> bytes:
    return b"\x05" + u.to_bytes(32, "little")


def stored(pair: curve.KeyPair) -> curve.KeyPair:
    return curve.KeyPair.from_stored(pair.public, pair.private)


def test_new_and_stored_keys_agree_on_the_same_secret() -> None:
    one, two = curve.KeyPair.generate(), curve.KeyPair.generate()
    secrets = {one.agree(two.public), stored(one).agree(two.public)}
    assert secrets == {two.agree(one.public), stored(two).agree(one.public)}
    assert len(secrets) == 1


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_stored_key_of_wrong_length_is_refused(length: int) -> None:
    with pytest.raises(e2ee.InvalidKey):
        curve.KeyPair.from_stored(curve.KeyPair.generate().public, bytes(length))


def test_x25519_matches_the_vector_of_rfc_7748() -> None:
    # RFC 7748 section 6.1
    alice = curve.KeyPair.from_private(
        bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    )
    assert alice.public.hex() == "058520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    bob_public = b"\x05" + bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    assert alice.agree(bob_public).hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


@pytest.mark.parametrize("u", SMALL_ORDER)
def test_an_all_zero_shared_secret_is_refused(u: int) -> None:
    pair = curve.KeyPair.generate()
    for one in (pair, stored(pair)):
        with pytest.raises(e2ee.InvalidKey):
            one.agree(public_of(u))


@pytest.mark.parametrize("u", [P, P + 1, 2**255 - 1])
def test_an_unreduced_public_key_is_refused(u: int) -> None:
    with pytest.raises(e2ee.InvalidKey):
        curve.check_public(public_of(u))
    with pytest.raises(e2ee.InvalidKey):
        curve.check_public(public_of(u - P + (1 << 255)))


@pytest.mark.parametrize(
    "key", [b"", b"\x05", bytes(33), b"\x05" + bytes(31), b"\x05" + bytes(33), b"\x06" + bytes(32)]
)
def test_a_public_key_of_wrong_length_or_type_is_refused(key: bytes) -> None:
    with pytest.raises(e2ee.InvalidKey):
        curve.check_public(key)


def test_an_identity_is_restored_from_its_private_key() -> None:
    identity = e2ee.IdentityKeyPair.generate()
    assert (len(identity.public), identity.public[0], len(identity.private)) == (33, 5, 32)
    assert e2ee.IdentityKeyPair.from_private(identity.private).public == identity.public
    with pytest.raises(e2ee.InvalidKey):
        e2ee.IdentityKeyPair.from_private(bytes(31))


def test_repr_shows_no_private_key() -> None:
    identity = e2ee.IdentityKeyPair.generate()
    signed, one, kyber = (
        e2ee.SignedPreKey.generate(identity, 1),
        e2ee.PreKey.generate(1),
        e2ee.KyberPreKey.generate(identity, 1),
    )
    for key in (identity, signed, one, kyber):
        assert key.private.hex() not in repr(key)
        assert repr(key.private) not in repr(key)


@settings(max_examples=60)
@given(seed=st.binary(min_size=32, max_size=32), message=st.binary(max_size=300))
def test_the_public_key_verifies_the_signature_of_any_private_key(seed: bytes, message: bytes) -> None:
    identity = e2ee.IdentityKeyPair.from_private(seed)
    xeddsa.verify(identity.public, message, identity.sign(message))


def test_the_sign_of_the_edwards_key_is_in_the_top_bit_of_the_signature() -> None:
    signs = set()
    for _ in range(40):
        identity = e2ee.IdentityKeyPair.generate()
        first, second = identity.sign(b"a"), identity.sign(b"b")
        assert first[63] & 0x80 == second[63] & 0x80
        signs.add(first[63] & 0x80)
    assert signs == {0, 0x80}


def test_two_signatures_of_one_message_differ() -> None:
    identity = e2ee.IdentityKeyPair.generate()
    assert identity.sign(b"message") != identity.sign(b"message")


def test_a_signature_tampered_with_at_any_byte_is_refused() -> None:
    identity = e2ee.IdentityKeyPair.generate()
    signature = identity.sign(b"message")
    for position in range(64):
        for bit in (0x01, 0x80):
            tampered = bytearray(signature)
            tampered[position] ^= bit
            with pytest.raises(e2ee.InvalidSignature):
                xeddsa.verify(identity.public, b"message", bytes(tampered))


def test_a_signature_of_another_message_key_or_length_is_refused() -> None:
    identity = e2ee.IdentityKeyPair.generate()
    signature = identity.sign(b"message")
    with pytest.raises(e2ee.InvalidSignature):
        xeddsa.verify(identity.public, b"massage", signature)
    with pytest.raises(e2ee.InvalidSignature):
        xeddsa.verify(e2ee.IdentityKeyPair.generate().public, b"message", signature)
    with pytest.raises(e2ee.InvalidSignature):
        xeddsa.verify(identity.public, b"message", signature + b"\x00")


def test_u_minus_one_is_refused_as_a_signing_key() -> None:
    with pytest.raises(e2ee.InvalidKey):
        xeddsa.verify(public_of(P - 1), b"message", bytes(64))


def test_the_kem_agrees_on_the_secret_of_kyber_round_3() -> None:
    public, seed = kem.generate()
    ciphertext, secret = kem.encapsulate(public)
    assert (len(public), public[0], len(seed), len(ciphertext), ciphertext[0]) == (1569, 8, 64, 1569, 8)
    assert kem.decapsulate(seed, ciphertext) == secret
    plain = mlkem.MLKEM1024PrivateKey.from_seed_bytes(seed).decapsulate(ciphertext[1:])
    assert secret == hashlib.shake_256(plain + hashlib.sha3_256(ciphertext[1:]).digest()).digest(32) != plain


def test_a_tampered_kem_ciphertext_yields_a_different_secret() -> None:
    public, seed = kem.generate()
    ciphertext, secret = kem.encapsulate(public)
    assert kem.decapsulate(seed, ciphertext[:-1] + bytes([ciphertext[-1] ^ 1])) != secret


def test_malformed_kem_input_is_refused() -> None:
    public, seed = kem.generate()
    for bad in (b"", public[1:], b"\x05" + public[1:], public + b"\x00", b"\x08" + b"\xff" * 1568):
        with pytest.raises(e2ee.InvalidKey):
            kem.encapsulate(bad)
    for bad in (b"", bytes(1569), b"\x08" + bytes(1567)):
        with pytest.raises(e2ee.InvalidKey):
            kem.decapsulate(seed, bad)
    with pytest.raises(e2ee.InvalidKey):
        kem.decapsulate(b"short", b"\x08" + bytes(1568))
