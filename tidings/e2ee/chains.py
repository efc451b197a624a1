"""The symmetric-key chains of the Double Ratchet, with stored keys for messages that arrive out of order.

Double Ratchet sections 2.2 and 2.6. A receiver calls `look_up` first, and `take` only once the message has
authenticated.

    stored, big-endian:  chain key 32, next index 8, stored keys 2, then of each: index 4, key 32
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from tidings.e2ee import errors, kdf, work

MAX_FORWARD_JUMP: Final = 25_000  # messages
MAX_STORED_KEYS: Final = 2_000  # per chain; the oldest are dropped

_HEAD: Final = struct.Struct(">32sQH")
_STORED: Final = struct.Struct(">I32s")
STORED_LENGTH: Final = _STORED.size  # bytes per stored key

# (chain key, index) -> (next chain key, key at that index)
Step = Callable[[bytes, int], tuple[bytes, bytes]]


def step(chain_key: bytes, _index: int) -> tuple[bytes, bytes]:
    """KDF_CK of Double Ratchet section 5.2: (next chain key, message seed), each 32 bytes."""
    return kdf.hmac_pair(chain_key, b"\x02", b"\x01")


class ChainLookup(NamedTuple):
    """Effect of taking a key on a chain."""

    key: bytes  # 32 bytes
    at: int  # index of the key
    chain_key: bytes | None  # after the key; None when the key was stored and the chain does not advance
    skipped: list[tuple[int, bytes]]  # keys that are skipped, the newest `MAX_STORED_KEYS` of them


class ReceivingChain:
    """Keys of one direction from `next_index` on, and skipped keys by index, oldest first."""

    __slots__ = ("chain_key", "next_index", "stored")

    def __init__(self, chain_key: bytes, next_index: int, stored: dict[int, bytes]) -> None:
        self.chain_key = chain_key
        self.next_index = next_index
        self.stored = stored

    def look_up(
        self, index: int, advance: Step, limit: int = MAX_FORWARD_JUMP, spend: work.Spend = work.unlimited
    ) -> ChainLookup:
        """Return the key at `index`, at most `limit` messages ahead, without a change. Takes at most `limit` + 1 steps.

        Raises DuplicateMessage when the key was taken or dropped before, TooFarAhead beyond the limit, OverBudget when
        `spend` refuses the steps.
        """
        chain_key, next_index = self.chain_key, self.next_index
        if index < next_index:
            stored = self.stored.get(index)
            if stored is None:
                raise errors.DuplicateMessage(f"the key of message {index} was deleted")
            return ChainLookup(stored, index, None, [])
        if index - next_index > limit:
            raise errors.TooFarAhead(f"message {index}, when {next_index} is next")
        if index - next_index > work.FREE_STEPS and not spend(index - next_index):
            raise errors.OverBudget(f"message {index}, when {next_index} is next")
        skipped: list[tuple[int, bytes]] = []
        for passed in range(next_index, index):
            chain_key, key = advance(chain_key, passed)
            if index - passed <= MAX_STORED_KEYS:
                skipped.append((passed, key))
        chain_key, key = advance(chain_key, index)
        return ChainLookup(key, index, chain_key, skipped)

    def take(self, lookup: ChainLookup) -> None:
        """Apply the effect of `look_up`. Its key cannot be obtained again."""
        stored = self.stored
        if lookup.chain_key is None:
            del stored[lookup.at]
            return
        self.chain_key = lookup.chain_key
        self.next_index = lookup.at + 1
        if lookup.skipped:
            stored.update(lookup.skipped)
            if len(stored) > MAX_STORED_KEYS:
                self.drop_oldest(len(stored) - MAX_STORED_KEYS)

    def drop_oldest(self, count: int) -> int:
        """Drop up to `count` stored keys, the oldest first; return how many were dropped."""
        dropped = list(itertools.islice(self.stored, count))
        for index in dropped:
            del self.stored[index]
        return len(dropped)

    @property
    def size(self) -> int:
        """Return the length of `encode()`, in bytes."""
        return _HEAD.size + STORED_LENGTH * len(self.stored)

    def encode(self) -> bytes:
        head = _HEAD.pack(self.chain_key, self.next_index, len(self.stored))
        return b"".join([head, *(_STORED.pack(index, key) for index, key in self.stored.items())])

    @classmethod
    def decode(cls, blob: bytes, position: int) -> tuple[ReceivingChain, int]:
        """Return the chain at `position`, and the position after it. Raises CorruptState."""
        keys = position + _HEAD.size
        if keys > len(blob):
            raise errors.CorruptState("a chain is truncated")
        chain_key, next_index, count = _HEAD.unpack_from(blob, position)
        after = keys + count * _STORED.size
        if after > len(blob):
            raise errors.CorruptState("a chain is truncated")
        stored = dict(_STORED.iter_unpack(blob[keys:after])) if count else {}
        return cls(chain_key, next_index, stored), after
