"""Undecryptable envelopes that a recipient with a session forges to be as expensive as possible."""

from __future__ import annotations

from tests.coreapp.phones import Phone
from tidings.e2ee import curve, messages, pq_ratchet

FAR = 24_000  # messages that the jump skips on a known chain, which the receiver follows


def forged(phone: Phone, ahead: int = FAR, *, strange: bool = False) -> bytes:
    """Return a forged message of about 76 bytes in the form of the session's messages.

    ahead: number of messages that it skips on both chains. strange: True for a new chain.
    """
    assert phone.record is not None, "no session"
    sending = phone.record._sending
    key = curve.KeyPair.generate().public if strange else sending.ratchet_key
    field_5 = pq_ratchet.encode(sending.pq_index + ahead) if sending.pq_chain_key is not None else b""
    head = messages.signal_message_head(sending.version, key)
    return messages.encode_signal_message(head, sending.counter + ahead, 0, bytes(16), field_5) + bytes(8)
