"""Envelopes that nobody can read, as a recipient with a session makes them to be dear."""

from __future__ import annotations

from tests.coreapp.phones import Phone
from tidings.e2ee import curve, messages, pq_ratchet

FAR = 24_000  # messages; a jump that is followed on a chain that is known


def forged(phone: Phone, ahead: int = FAR, *, strange: bool = False) -> bytes:
    """76 bytes or so in the session's form, as many messages ahead on both its chains; strange: on a new chain."""
    assert phone.record is not None, "no session"
    sending = phone.record._sending
    key = curve.KeyPair.generate().public if strange else sending.ratchet_key
    field_5 = pq_ratchet.encode(sending.pq_index + ahead) if sending.pq_chain_key is not None else b""
    head = messages.signal_message_head(sending.version, key)
    return messages.encode_signal_message(head, sending.counter + ahead, 0, bytes(16), field_5) + bytes(8)
