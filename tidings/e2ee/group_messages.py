"""Sender key messages on the wire: the distribution message of a key, and messages encrypted under it.

    distribution:   33 + {1 distribution id 16, 2 chain id, 3 iteration, 4 chain key 32, 5 signing key 33}
    group message:  33 + {1 distribution id 16, 2 chain id, 3 iteration, 4 ciphertext} + signature 64

A distribution message is secret. It travels inside a pairwise session, which also authenticates its sender.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tidings.e2ee import cbc, errors, messages, protobuf, xeddsa

DISTRIBUTION_ID_LENGTH: Final = 16  # bytes; ours are UUIDs of version 4, one for all chains of a sender in a group
CHAIN_KEY_LENGTH: Final = 32  # bytes
_VERSION: Final = 3
_FIRST_BYTE: Final = b"\x33"


@dataclass(frozen=True, slots=True)
class DistributionMessage:
    """A sender's chain from `iteration` on, with the key that verifies its messages."""

    distribution_id: bytes  # 16 bytes
    chain_id: int  # 32 bits
    iteration: int
    chain_key: bytes = field(repr=False)  # 32 bytes
    signing_key: bytes  # 33 typed bytes

    @classmethod
    def parse(cls, body: bytes) -> DistributionMessage:
        """Parse a distribution message. Raises InvalidMessage on anything that is not well-formed."""
        _check_version(body)
        fields = protobuf.parse(body, 1, len(body))
        distribution_id, chain_id, iteration = _take_place(fields)
        chain_key = protobuf.take_bytes(fields, 4)
        signing_key = protobuf.take_bytes(fields, 5)
        if chain_key is None or signing_key is None:
            raise errors.InvalidMessage("a field is missing")
        if len(chain_key) != CHAIN_KEY_LENGTH:
            raise errors.InvalidMessage(f"a chain key of {len(chain_key)} bytes")
        try:
            xeddsa.check_public(signing_key)
        except errors.InvalidKey as error:
            raise errors.InvalidMessage(str(error)) from error
        return cls(distribution_id, chain_id, iteration, chain_key, signing_key)

    def encode(self) -> bytes:
        return (
            _encode_place(self.distribution_id, self.chain_id, self.iteration)
            + protobuf.bytes_field(4, self.chain_key)
            + protobuf.bytes_field(5, self.signing_key)
        )


@dataclass(frozen=True, slots=True)
class GroupMessage:
    """Message on a sender's chain."""

    distribution_id: bytes  # 16 bytes
    chain_id: int  # 32 bits
    iteration: int
    ciphertext: bytes
    signed: bytes  # the message without its signature, as received
    signature: bytes  # 64 bytes

    @classmethod
    def parse(cls, body: bytes) -> GroupMessage:
        """Parse a group message. Raises InvalidMessage on anything that is not well-formed."""
        _check_version(body)
        end = len(body) - xeddsa.SIGNATURE_LENGTH
        if end < 1:
            raise errors.InvalidMessage("the message is too short")
        fields = protobuf.parse(body, 1, end)
        distribution_id, chain_id, iteration = _take_place(fields)
        ciphertext = protobuf.take_bytes(fields, 4)
        if ciphertext is None:
            raise errors.InvalidMessage("a field is missing")
        if not ciphertext or len(ciphertext) % cbc.BLOCK:
            raise errors.InvalidMessage("the ciphertext is not a whole number of blocks")
        return cls(distribution_id, chain_id, iteration, ciphertext, body[:end], body[end:])

    def authenticate(self, signing_key: bytes) -> None:
        """Verify the signature with the chain's key of 33 typed bytes. Raises InvalidMessage."""
        try:
            xeddsa.verify(signing_key, self.signed, self.signature)
        except (errors.InvalidSignature, errors.InvalidKey) as error:
            raise errors.InvalidMessage(str(error)) from error


def encode_group_message(distribution_id: bytes, chain_id: int, iteration: int, ciphertext: bytes) -> bytes:
    """Return an encoded GroupMessage without its signature."""
    return _encode_place(distribution_id, chain_id, iteration) + protobuf.bytes_field(4, ciphertext)


def _check_version(body: bytes) -> None:
    """Check length and version. Only the high nibble counts, as in a SignalMessage. Raises InvalidMessage."""
    if not body or len(body) > messages.MAX_LENGTH:
        raise errors.InvalidMessage(f"a message of {len(body)} bytes")
    if body[0] >> 4 != _VERSION:
        raise errors.InvalidMessage(f"unknown version {body[0] >> 4}")


def _take_place(fields: dict[int, int | bytes]) -> tuple[bytes, int, int]:
    """Return (distribution id, chain id, iteration), with which both messages start. Raises InvalidMessage."""
    distribution_id = protobuf.take_bytes(fields, 1)
    chain_id = protobuf.take_uint32(fields, 2)
    iteration = protobuf.take_uint32(fields, 3)
    if distribution_id is None or chain_id is None or iteration is None:
        raise errors.InvalidMessage("a field is missing")
    if len(distribution_id) != DISTRIBUTION_ID_LENGTH:
        raise errors.InvalidMessage(f"a distribution id of {len(distribution_id)} bytes")
    return distribution_id, chain_id, iteration


def _encode_place(distribution_id: bytes, chain_id: int, iteration: int) -> bytes:
    uint_field = protobuf.uint_field
    return _FIRST_BYTE + protobuf.bytes_field(1, distribution_id) + uint_field(2, chain_id) + uint_field(3, iteration)
