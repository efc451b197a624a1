"""SignalMessage and PreKeySignalMessage on the wire."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

from tidings.e2ee import curve, errors, kdf, kem, protobuf

MESSAGE: Final = 2  # kind of a SignalMessage
PREKEY: Final = 3  # kind of a PreKeySignalMessage

VERSION_3: Final = 3  # X3DH
VERSION_4: Final = 4  # PQXDH
_CURRENT: Final = 4  # low nibble of the first byte: newest version that the sender supports

MAC_LENGTH: Final = 8  # bytes
MAX_LENGTH: Final = 1 << 20  # bytes; longer bodies are rejected without being parsed


def first_byte(version: int) -> bytes:
    """Return the first byte: version in the high nibble, newest known version in the low one (0x34 and 0x44)."""
    return bytes([version << 4 | _CURRENT])


@dataclass(frozen=True, slots=True)
class SignalMessage:
    """Message of a session."""

    version: int
    ratchet_key: bytes  # 33 typed bytes
    counter: int
    previous_counter: int
    ciphertext: bytes
    pq_ratchet: bytes  # empty when absent
    authenticated: bytes  # the message without its MAC, as received
    mac: bytes  # 8 bytes

    @classmethod
    def parse(cls, body: bytes) -> SignalMessage:
        """Parse a SignalMessage. Raises InvalidMessage on anything that is not well-formed and of version 3 or 4."""
        version = _version(body)
        end = len(body) - MAC_LENGTH
        if end < 1:
            raise errors.InvalidMessage("the message is too short")
        fields = protobuf.parse(body, 1, end)
        ratchet_key = protobuf.take_bytes(fields, 1)
        counter = protobuf.take_uint32(fields, 2)
        ciphertext = protobuf.take_bytes(fields, 4)
        if ratchet_key is None or counter is None or ciphertext is None:
            raise errors.InvalidMessage("a field is missing")
        _check_key(ratchet_key)
        if not ciphertext or len(ciphertext) % 16:
            raise errors.InvalidMessage("the ciphertext is not a whole number of blocks")
        return cls(
            version,
            ratchet_key,
            counter,
            protobuf.take_uint32(fields, 3) or 0,
            ciphertext,
            protobuf.take_bytes(fields, 5) or b"",
            body[:end],
            body[end:],
        )

    def authenticate(self, mac_key: bytes, sender: bytes, receiver: bytes) -> None:
        """Verify the MAC. Raises InvalidMessage.

        sender, receiver: identity keys of 33 typed bytes
        """
        if not hmac.compare_digest(self.mac, mac(mac_key, sender, receiver, self.authenticated)):
            raise errors.InvalidMessage("the message does not authenticate")


def mac(mac_key: bytes, sender: bytes, receiver: bytes, authenticated: bytes) -> bytes:
    """Return the first 8 bytes of HMAC(MAC key, sender identity ‖ receiver identity ‖ message without MAC)."""
    return kdf.hmac_sha256(mac_key, sender + receiver + authenticated)[:MAC_LENGTH]


def signal_message_head(version: int, ratchet_key: bytes) -> bytes:
    """Return the part that is constant throughout a sending chain: the first byte and field 1."""
    return first_byte(version) + b"\x0a\x21" + ratchet_key


def encode_signal_message(
    head: bytes, counter: int, previous_counter: int, ciphertext: bytes, pq_ratchet: bytes
) -> bytes:
    """Return an encoded SignalMessage without its MAC.

    head: from `signal_message_head`
    """
    varint = protobuf.varint
    body = b"%b\x10%b\x18%b\x22%b%b" % (
        head,
        varint(counter),
        varint(previous_counter),
        varint(len(ciphertext)),
        ciphertext,
    )
    return body + protobuf.bytes_field(5, pq_ratchet) if pq_ratchet else body


@dataclass(frozen=True, slots=True)
class PreKeySignalMessage:
    """First message: a SignalMessage with the data from which its receiver sets up the session.

    It has no MAC. Its keys are authenticated implicitly (another key derives another secret), but its registration id
    and the low nibble of its first byte are not.
    """

    version: int
    registration_id: int
    prekey_id: int | None
    signed_prekey_id: int
    kyber_prekey_id: int | None  # None in version 3
    kyber_ciphertext: bytes | None  # 1,569 typed bytes; None in version 3
    base_key: bytes  # 33 typed bytes
    identity_key: bytes  # 33 typed bytes
    message: SignalMessage

    @classmethod
    def parse(cls, body: bytes) -> PreKeySignalMessage:
        """Parse a PreKeySignalMessage.

        Raises InvalidMessage on anything that is not well-formed, or that mixes versions.
        """
        version = _version(body)
        fields = protobuf.parse(body, 1, len(body))
        base_key = protobuf.take_bytes(fields, 2)
        identity_key = protobuf.take_bytes(fields, 3)
        inner = protobuf.take_bytes(fields, 4)
        signed_prekey_id = protobuf.take_uint32(fields, 6)
        if base_key is None or identity_key is None or inner is None or signed_prekey_id is None:
            raise errors.InvalidMessage("a field is missing")
        _check_key(base_key)
        _check_key(identity_key)
        message = SignalMessage.parse(inner)
        if message.version != version:
            raise errors.InvalidMessage("the inner message has another version")
        kyber_prekey_id = kyber_ciphertext = None
        if version == VERSION_4:
            kyber_prekey_id = protobuf.take_uint32(fields, 7)
            kyber_ciphertext = protobuf.take_bytes(fields, 8)
            if kyber_prekey_id is None or kyber_ciphertext is None:
                raise errors.InvalidMessage("version 4 without a Kyber ciphertext")
            if len(kyber_ciphertext) != kem.CIPHERTEXT_LENGTH or kyber_ciphertext[0] != kem.KEY_TYPE:
                raise errors.InvalidMessage("not a Kyber-1024 ciphertext")
        return cls(
            version,
            protobuf.take_uint32(fields, 5) or 0,
            protobuf.take_uint32(fields, 1),
            signed_prekey_id,
            kyber_prekey_id,
            kyber_ciphertext,
            base_key,
            identity_key,
            message,
        )


def claimed_identity(body: bytes) -> bytes | None:
    """Return the sender's identity key that a PreKeySignalMessage claims; None for bytes that cannot be parsed."""
    try:
        _version(body)
        return protobuf.take_bytes(protobuf.parse(body, 1, len(body)), 3)
    except errors.InvalidMessage:
        return None


def encode_prekey_signal_message(
    *,
    version: int,
    registration_id: int,
    prekey_id: int | None,
    signed_prekey_id: int,
    kyber_prekey_id: int | None,
    kyber_ciphertext: bytes | None,
    base_key: bytes,
    identity_key: bytes,
    message: bytes,
) -> bytes:
    """Return a PreKeySignalMessage around the encoded SignalMessage `message`."""
    uint_field, bytes_field = protobuf.uint_field, protobuf.bytes_field
    parts = [first_byte(version), uint_field(5, registration_id)]
    if prekey_id is not None:
        parts.append(uint_field(1, prekey_id))
    parts.append(uint_field(6, signed_prekey_id))
    if kyber_prekey_id is not None and kyber_ciphertext is not None:
        parts += (uint_field(7, kyber_prekey_id), bytes_field(8, kyber_ciphertext))
    parts += (bytes_field(2, base_key), bytes_field(3, identity_key), bytes_field(4, message))
    return b"".join(parts)


def _version(body: bytes) -> int:
    """Check length and version; return the version. Raises InvalidMessage.

    Only the high nibble counts: older libraries write 0x33 where newer ones write 0x34.
    """
    if not body or len(body) > MAX_LENGTH:
        raise errors.InvalidMessage(f"a message of {len(body)} bytes")
    version = body[0] >> 4
    if version not in (VERSION_3, VERSION_4):
        raise errors.InvalidMessage(f"unknown version {version}")
    return version


def _check_key(key: bytes) -> None:
    try:
        curve.check_public(key)
    except errors.InvalidKey as error:
        raise errors.InvalidMessage(str(error)) from error
