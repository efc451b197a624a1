"""Pre-keys: generation, and verification of bundles."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from tidings.e2ee import curve, errors, kem, messages, xeddsa

MAX_KEY_ID: Final = 0xFFFFFF  # highest id of our own keys; official clients use 24 bits too


def free_key_ids(first: int, count: int, used: Collection[int]) -> list[int]:
    """Return the next `count` unused ids from `first`, continuing with 1 after `MAX_KEY_ID`. 0 is not used.

    Raises ValueError when fewer ids are free.

    used: ids of existing keys
    """
    if count > MAX_KEY_ID - len(used):
        raise ValueError("too many pre-keys are kept")
    found: list[int] = []
    key_id = first
    while len(found) < count:
        if not 0 < key_id <= MAX_KEY_ID:
            key_id = 1
        if key_id not in used:
            found.append(key_id)
        key_id += 1
    return found


@dataclass(frozen=True, slots=True)
class PreKey:
    """One-time pre-key (X3DH section 2.4: OPK)."""

    key_id: int  # 32 bits
    public: bytes  # 33 typed bytes
    private: bytes = field(repr=False)  # 32 bytes

    @classmethod
    def generate(cls, key_id: int) -> PreKey:
        pair = curve.KeyPair.generate()
        return cls(key_id, pair.public, pair.private)


@dataclass(frozen=True, slots=True)
class SignedPreKey:
    """Pre-key signed by the identity (X3DH section 2.4: SPK)."""

    key_id: int  # 32 bits
    public: bytes  # 33 typed bytes
    private: bytes = field(repr=False)  # 32 bytes
    signature: bytes  # 64 bytes, over the typed public key

    @classmethod
    def generate(cls, owner: xeddsa.IdentityKeyPair, key_id: int) -> SignedPreKey:
        pair = curve.KeyPair.generate()
        return cls(key_id, pair.public, pair.private, owner.sign(pair.public))


@dataclass(frozen=True, slots=True)
class KyberPreKey:
    """Kyber-1024 pre-key signed by the identity (PQXDH section 2.4: PQSPK or PQOPK)."""

    key_id: int  # 32 bits
    public: bytes  # 1,569 typed bytes
    private: bytes = field(repr=False)  # 64 bytes: the seed
    signature: bytes  # 64 bytes, over the typed public key

    @classmethod
    def generate(cls, owner: xeddsa.IdentityKeyPair, key_id: int) -> KyberPreKey:
        public, seed = kem.generate()
        return cls(key_id, public, seed, owner.sign(public))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreKeyBundle:
    """Keys of one device that a server hands out (X3DH section 3.3, PQXDH section 3.3)."""

    registration_id: int
    identity_key: bytes  # 33 typed bytes
    signed_prekey_id: int
    signed_prekey: bytes  # 33 typed bytes
    signed_prekey_signature: bytes  # 64 bytes
    prekey_id: int | None = None  # None without a one-time pre-key
    prekey: bytes | None = None  # 33 typed bytes
    kyber_prekey_id: int | None = None  # None without a Kyber pre-key
    kyber_prekey: bytes | None = None  # 1,569 typed bytes
    kyber_prekey_signature: bytes | None = None  # 64 bytes

    @property
    def has_kyber(self) -> bool:
        """Return whether any part of a Kyber pre-key is present; `verify` requires all parts."""
        kyber = (self.kyber_prekey_id, self.kyber_prekey, self.kyber_prekey_signature)
        return any(part is not None for part in kyber)

    @property
    def version(self) -> int:
        """Return the version of a session set up from this bundle: 4 with a Kyber pre-key, otherwise 3."""
        return messages.VERSION_4 if self.has_kyber else messages.VERSION_3

    def verify(self) -> None:
        """Verify every key and signature.

        Raises InvalidKey on a malformed key or an incomplete pre-key, InvalidSignature on a signature that is not the
        identity's.
        """
        ids = (self.registration_id, self.signed_prekey_id, self.prekey_id, self.kyber_prekey_id)
        if any(number is not None and not 0 <= number < 1 << 32 for number in ids):
            raise errors.InvalidKey("an id does not fit 32 bits")
        curve.check_public(self.identity_key)
        curve.check_public(self.signed_prekey)
        if (self.prekey_id is None) != (self.prekey is None):
            raise errors.InvalidKey("a one-time pre-key requires its id")
        if self.prekey is not None:
            curve.check_public(self.prekey)
        xeddsa.verify(self.identity_key, self.signed_prekey, self.signed_prekey_signature)
        if not self.has_kyber:
            return
        if self.kyber_prekey is None or self.kyber_prekey_id is None or self.kyber_prekey_signature is None:
            raise errors.InvalidKey("a Kyber pre-key requires its id and signature")
        kem.check_public(self.kyber_prekey)
        xeddsa.verify(self.identity_key, self.kyber_prekey, self.kyber_prekey_signature)


def check_downgrade(previous_version_had_kyber: bool, bundle: PreKeyBundle) -> None:
    """Raise PostQuantumRequired when an identity that once had Kyber now offers a bundle without."""
    if previous_version_had_kyber and not bundle.has_kyber:
        raise errors.PostQuantumRequired("this identity once had a Kyber pre-key, its bundle now has none")
