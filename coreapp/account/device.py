"""The business's own number as a device: its keys, in memory and sealed."""

from __future__ import annotations

from tidings import e2ee
from tidings.storage.business import accounts

# A private pre-key is kept as its public half, its private half and, if signed, its signature, end to end.
_CURVE = 33  # bytes of a typed Curve25519 public key
_KYBER = 1569  # bytes of a typed Kyber-1024 public key
_SIGNATURE = 64


class OwnDevice:
    """A registered number with its private keys in memory, of each kind in the order in which they were made.

    One-time pre-keys leave memory and table when the session that they opened is committed.
    """

    def __init__(
        self,
        number: str,
        token: str,
        registration_id: int,
        identity: e2ee.IdentityKeyPair,
        sealer: e2ee.Sealer,
    ) -> None:
        self.number = number
        self.token = token
        self.registration_id = registration_id
        self.identity = identity
        self.sealer = sealer
        self.signed_prekeys: dict[int, e2ee.SignedPreKey] = {}
        self.prekeys: dict[int, e2ee.PreKey] = {}
        self.kyber_prekeys: dict[int, e2ee.KyberPreKey] = {}
        self.next_key_id = 1

    @property
    def signed_prekey(self) -> e2ee.SignedPreKey:
        """The newest."""
        return self.signed_prekeys[next(reversed(self.signed_prekeys))]

    @property
    def kyber_prekey(self) -> e2ee.KyberPreKey:
        """The newest."""
        return self.kyber_prekeys[next(reversed(self.kyber_prekeys))]

    def take_key_ids(self, count: int) -> list[int]:
        """Ids for new pre-keys, of whatever kinds; the next ones are others."""
        used = self.signed_prekeys.keys() | self.kyber_prekeys.keys() | self.prekeys.keys()
        ids = e2ee.free_key_ids(self.next_key_id, count, used)
        self.next_key_id = ids[-1] + 1
        return ids

    def find_next_key_id(self) -> None:
        """Go on after the highest id, for a device that does not know where it was."""
        used = self.signed_prekeys.keys() | self.kyber_prekeys.keys() | self.prekeys.keys()
        self.next_key_id = max(used, default=0) + 1


def private_prekeys(device: OwnDevice) -> list[tuple[str, int, bytes]]:
    """Kind, id and the bytes to keep of every private pre-key."""
    return [
        *((accounts.SIGNED, k.key_id, k.public + k.private + k.signature) for k in device.signed_prekeys.values()),
        *((accounts.KYBER, k.key_id, k.public + k.private + k.signature) for k in device.kyber_prekeys.values()),
        *((accounts.ONE_TIME, k.key_id, k.public + k.private) for k in device.prekeys.values()),
    ]


def add_prekey(device: OwnDevice, kind: str, key_id: int, blob: bytes) -> None:
    """Take in one of what `private_prekeys` gave."""
    if kind == accounts.KYBER:
        parts = blob[:_KYBER], blob[_KYBER:-_SIGNATURE], blob[-_SIGNATURE:]
        device.kyber_prekeys[key_id] = e2ee.KyberPreKey(key_id, *parts)
    elif kind == accounts.SIGNED:
        parts = blob[:_CURVE], blob[_CURVE:-_SIGNATURE], blob[-_SIGNATURE:]
        device.signed_prekeys[key_id] = e2ee.SignedPreKey(key_id, *parts)
    else:
        device.prekeys[key_id] = e2ee.PreKey(key_id, blob[:_CURVE], blob[_CURVE:])


def sealed(device: OwnDevice, kind: str, key_id: int, blob: bytes) -> accounts.OwnPreKey:
    """One of what `private_prekeys` gave, as it is stored."""
    return accounts.OwnPreKey(
        device.number, kind, key_id, device.sealer.seal(blob, context=(device.number, "", kind, key_id))
    )
