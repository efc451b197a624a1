"""A device's own keys: generation, upload to the network, and packing for storage."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Collection, Sequence

from tidings import e2ee
from tidings.wire.registration import DeviceRegistration, KeyUpload, OneTimeKey, SignedKey, SignedKyberKey

_CURVE = 33  # bytes; a typed Curve25519 public key
_CURVE_PRIVATE = 32  # bytes
_KYBER = 1569  # bytes; a typed Kyber-1024 public key
_SIGNATURE = 64  # bytes


@dataclasses.dataclass(frozen=True, slots=True)
class KeySet:
    """Keys of one device that the network does not have yet."""

    signed: e2ee.SignedPreKey | None = None  # None unless it is new or replaced
    kyber_last: e2ee.KyberPreKey | None = None  # the last-resort Kyber pre-key; None unless it is new or replaced
    one_time: Sequence[e2ee.PreKey] = ()
    kyber_one_time: Sequence[e2ee.KyberPreKey] = ()

    def upload(self, *, epoch: int = 0) -> KeyUpload:
        """Return the body that adds these keys at the network.

        epoch: login epoch, as of `DeviceConnection.log_in`
        """
        return KeyUpload(
            _signed(self.signed) if self.signed is not None else None,
            _kyber(self.kyber_last) if self.kyber_last is not None else None,
            [OneTimeKey(key.key_id, key.public) for key in self.one_time],
            [_kyber(key) for key in self.kyber_one_time],
            epoch,
        )

    def registration(
        self,
        number: str,
        registration_id: int,
        identity_key: bytes,
        *,
        code: str = "",
        token: str = "",
        epoch: int = 0,
        pin: str = "",
        person: bool = False,
    ) -> DeviceRegistration:
        """Return the body that registers a number with these keys. `signed` must be present.

        identity_key: public half
        code:         registration code; empty with a registration key
        token:        chosen by the device, which makes the registration repeatable; empty to let the network choose
        epoch:        login epoch, as of `DeviceConnection.log_in`
        pin:          PIN of the number's registration lock; empty for none
        person:       whether the device is a person's, which cannot take a business's number
        """
        keys = self.upload()
        assert keys.signed_prekey is not None
        return DeviceRegistration(
            number,
            registration_id,
            identity_key,
            keys.signed_prekey,
            keys.kyber_prekey,
            keys.prekeys,
            keys.kyber_prekeys,
            code,
            token,
            epoch,
            pin,
            person,
        )


def generate(
    identity: e2ee.IdentityKeyPair,
    first_id: int,
    *,
    one_time: int = 0,
    kyber_one_time: int = 0,
    lasting: bool = False,
    used: Collection[int] = (),
) -> tuple[KeySet, int]:
    """Generate keys with ids from `first_id`; return them and the first id for the next call.

    Store both before sending anything. Takes about 60 µs per one-time key, and 500 µs for the lasting ones.

    one_time:       number of one-time pre-keys
    kyber_one_time: number of one-time Kyber pre-keys
    lasting:        whether to generate the signed and the last-resort Kyber pre-key
    used:           ids of existing keys, which are skipped; ids wrap at 24 bits
    """
    ids = e2ee.free_key_ids(first_id, one_time + kyber_one_time + (2 if lasting else 0), used)
    left = iter(ids)
    keys = KeySet(
        e2ee.SignedPreKey.generate(identity, next(left)) if lasting else None,
        e2ee.KyberPreKey.generate(identity, next(left)) if lasting else None,
        [e2ee.PreKey.generate(next(left)) for _ in range(one_time)],
        [e2ee.KyberPreKey.generate(identity, next(left)) for _ in range(kyber_one_time)],
    )
    return keys, ids[-1] + 1 if ids else first_id


def generate_registration_id() -> int:
    """Return a random registration id, 1 to 16380 as in Signal's clients."""
    return secrets.randbelow(16380) + 1


def generate_token() -> str:
    """Return a token chosen by the device, with which a registration can be repeated when its response was lost."""
    return secrets.token_urlsafe(32)


def pack(key: e2ee.PreKey | e2ee.SignedPreKey | e2ee.KyberPreKey, *, uploadable: bool) -> bytes:
    """Return the bytes of a key for storage, to be sealed: public half, private half, signature.

    uploadable: False to keep only what decryption needs: no signature, and of a Kyber pre-key only the private half
    """
    if isinstance(key, e2ee.KyberPreKey) and not uploadable:
        return key.private
    signature = b"" if isinstance(key, e2ee.PreKey) or not uploadable else key.signature
    return key.public + key.private + signature


def unpack_one_time(key_id: int, data: bytes) -> e2ee.PreKey:
    return e2ee.PreKey(key_id, data[:_CURVE], data[_CURVE:])


def unpack_signed(key_id: int, data: bytes) -> e2ee.SignedPreKey:
    """Unpack a signed pre-key. Its signature is empty when it was packed without."""
    private = _CURVE + _CURVE_PRIVATE
    return e2ee.SignedPreKey(key_id, data[:_CURVE], data[_CURVE:private], data[private:])


def unpack_kyber(key_id: int, data: bytes) -> e2ee.KyberPreKey:
    """Unpack a Kyber pre-key. Its public half and signature are empty when it was packed without."""
    if len(data) < _KYBER:
        return e2ee.KyberPreKey(key_id, b"", data, b"")
    return e2ee.KyberPreKey(key_id, data[:_KYBER], data[_KYBER:-_SIGNATURE], data[-_SIGNATURE:])


def _signed(key: e2ee.SignedPreKey) -> SignedKey:
    return SignedKey(key.key_id, key.public, key.signature)


def _kyber(key: e2ee.KyberPreKey) -> SignedKyberKey:
    return SignedKyberKey(key.key_id, key.public, key.signature)
