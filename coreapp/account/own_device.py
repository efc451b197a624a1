"""The business's own number as a device: its keys, in memory and sealed."""

from __future__ import annotations

import dataclasses

from tidings import e2ee
from tidings.client import keys
from tidings.client.keys import KeySet
from tidings.storage.business import accounts


@dataclasses.dataclass(eq=False, repr=False)
class OwnDevice:
    """A registered number with its private keys in memory. Keys of each kind are in the order of their creation.

    A one-time pre-key is deleted from memory and table when the session that it opened is committed.
    """

    number: str
    token: str
    registration_id: int
    _: dataclasses.KW_ONLY
    identity: e2ee.IdentityKeyPair
    sealer: e2ee.Sealer

    def __post_init__(self) -> None:
        self.signed_prekeys: dict[int, e2ee.SignedPreKey] = {}
        self.prekeys: dict[int, e2ee.PreKey] = {}
        self.kyber_prekeys: dict[int, e2ee.KyberPreKey] = {}
        # Without public halves, which only the upload needs.
        self.kyber_one_time: dict[int, e2ee.KyberPreKey] = {}
        self.next_key_id = 1

    @property
    def signed_prekey(self) -> e2ee.SignedPreKey:
        """Newest signed pre-key."""
        return self.signed_prekeys[next(reversed(self.signed_prekeys))]

    @property
    def kyber_prekey(self) -> e2ee.KyberPreKey:
        """Newest Kyber pre-key."""
        return self.kyber_prekeys[next(reversed(self.kyber_prekeys))]

    def find_kyber(self, key_id: int) -> e2ee.KyberPreKey | None:
        """Return the one-time or last-resort Kyber pre-key of this id; None if it is gone."""
        return self.kyber_one_time.get(key_id) or self.kyber_prekeys.get(key_id)

    def one_time_of(self, kind: str) -> dict[int, e2ee.PreKey] | dict[int, e2ee.KyberPreKey]:
        """Return the one-time pre-keys of a kind, by id."""
        return self.kyber_one_time if kind == accounts.KYBER_ONE_TIME else self.prekeys

    def make_keys(self, *, one_time: int = 0, kyber_one_time: int = 0, lasting: bool = False) -> KeySet:
        """Generate pre-keys. They are not in memory yet, but later calls use other ids."""
        made, self.next_key_id = keys.generate(
            self.identity,
            self.next_key_id,
            one_time=one_time,
            kyber_one_time=kyber_one_time,
            lasting=lasting,
            used=self._key_ids(),
        )
        return made

    def add_keys(self, made: KeySet) -> None:
        """Add new pre-keys to memory."""
        if made.signed is not None:
            self.signed_prekeys[made.signed.key_id] = made.signed
        if made.kyber_last is not None:
            self.kyber_prekeys[made.kyber_last.key_id] = made.kyber_last
        self.prekeys.update({key.key_id: key for key in made.one_time})
        for key in made.kyber_one_time:
            self.add_prekey(accounts.KYBER_ONE_TIME, key.key_id, keys.pack(key, uploadable=False))

    def find_next_key_id(self) -> None:
        """Continue after the highest id in use, for a device without a recorded next id."""
        self.next_key_id = max(self._key_ids(), default=0) + 1

    def _key_ids(self) -> set[int]:
        lasting = self.signed_prekeys.keys() | self.kyber_prekeys.keys()
        return lasting | self.prekeys.keys() | self.kyber_one_time.keys()

    def private_prekeys(self) -> list[tuple[str, int, bytes]]:
        """Return kind, id and stored form of every private pre-key, except for one-time Kyber pre-keys.

        A registration makes those void, and a device without any uploads new ones.
        """
        return [
            *((accounts.SIGNED, key.key_id, keys.pack(key, uploadable=True)) for key in self.signed_prekeys.values()),
            *((accounts.KYBER, key.key_id, keys.pack(key, uploadable=True)) for key in self.kyber_prekeys.values()),
            *((accounts.ONE_TIME, key.key_id, keys.pack(key, uploadable=True)) for key in self.prekeys.values()),
        ]

    def add_prekey(self, kind: str, key_id: int, blob: bytes) -> None:
        """Add a pre-key in the form that `private_prekeys` returns to memory."""
        if kind == accounts.KYBER:
            self.kyber_prekeys[key_id] = keys.unpack_kyber(key_id, blob)
        elif kind == accounts.KYBER_ONE_TIME:
            self.kyber_one_time[key_id] = keys.unpack_kyber(key_id, blob)
        elif kind == accounts.SIGNED:
            self.signed_prekeys[key_id] = keys.unpack_signed(key_id, blob)
        else:
            self.prekeys[key_id] = keys.unpack_one_time(key_id, blob)

    def sealed(self, kind: str, key_id: int, blob: bytes) -> accounts.OwnPreKey:
        """Return the row of a pre-key in the form that `private_prekeys` returns."""
        sealed = self.sealer.seal(blob, context=(self.number, "", kind, key_id))
        return accounts.OwnPreKey(self.number, kind, key_id, sealed)
