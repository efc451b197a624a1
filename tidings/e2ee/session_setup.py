"""First keys of a session, agreed by X3DH (version 3) or PQXDH (version 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidings.e2ee import curve, errors, kdf, kem, messages, prekeys, xeddsa

_INFO_3: Final = b"WhisperText"
_INFO_4: Final = b"WhisperText_X25519_SHA-256_CRYSTALS-KYBER-1024"
_F: Final = b"\xff" * 32  # X3DH section 2.2: KDF prepends 32 bytes of 0xFF for X25519


@dataclass(frozen=True, slots=True, repr=False)
class FirstKeys:
    """Keys that both sides derive."""

    root_key: bytes  # 32 bytes
    chain_key: bytes  # 32 bytes, of the chain of the responder's signed pre-key
    pq_key: bytes | None  # 32 bytes, for the post-quantum ratchet; None in version 3


@dataclass(frozen=True, slots=True, repr=False)
class Initiation:
    """Initiator's result of the set-up. Base key and ciphertext go into every PreKeySignalMessage."""

    keys: FirstKeys
    base_key: bytes  # 33 typed bytes (X3DH section 3.3: EK)
    kyber_ciphertext: bytes | None  # 1,569 typed bytes; None in version 3


def initiate(own: xeddsa.IdentityKeyPair, bundle: prekeys.PreKeyBundle) -> Initiation:
    """X3DH section 3.3, PQXDH section 3.3: Alice's side, from a bundle that has been verified.

    Raises InvalidKey on an all-zero shared secret or an invalid Kyber key.
    """
    base = curve.KeyPair.generate()
    secret = [
        _F,
        own.agree(bundle.signed_prekey),  # DH1
        base.agree(bundle.identity_key),  # DH2
        base.agree(bundle.signed_prekey),  # DH3
    ]
    if bundle.prekey is not None:
        secret.append(base.agree(bundle.prekey))  # DH4
    ciphertext = None
    if bundle.kyber_prekey is not None:
        ciphertext, kem_secret = kem.encapsulate(bundle.kyber_prekey)
        secret.append(kem_secret)
    return Initiation(_derive(b"".join(secret), bundle.version), base.public, ciphertext)


def respond(
    own: xeddsa.IdentityKeyPair,
    message: messages.PreKeySignalMessage,
    signed_prekey: curve.KeyPair,
    prekey: curve.KeyPair | None,
    kyber_seed: bytes | None,
) -> FirstKeys:
    """X3DH section 3.4, PQXDH section 3.4: Bob's side. Raises InvalidMessage on keys that give no secret."""
    try:
        secret = [
            _F,
            signed_prekey.agree(message.identity_key),  # DH1
            own.agree(message.base_key),  # DH2
            signed_prekey.agree(message.base_key),  # DH3
        ]
        if prekey is not None:
            secret.append(prekey.agree(message.base_key))  # DH4
        if message.kyber_ciphertext is not None and kyber_seed is not None:
            secret.append(kem.decapsulate(kyber_seed, message.kyber_ciphertext))
    except errors.InvalidKey as error:
        raise errors.InvalidMessage(str(error)) from error
    return _derive(b"".join(secret), message.version)


def _derive(secret: bytes, version: int) -> FirstKeys:
    if version == messages.VERSION_3:
        output = kdf.hkdf(kdf.ZERO_SALT, secret, _INFO_3, 64)
        return FirstKeys(output[:32], output[32:], None)
    output = kdf.hkdf(kdf.ZERO_SALT, secret, _INFO_4, 96)
    return FirstKeys(output[:32], output[32:64], output[64:])
