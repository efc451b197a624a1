"""Recipients with real keys and sessions, as the Coreapp sees them."""

from __future__ import annotations

import json

from tidings import e2ee
from tidings.wire import device as frames

KINDS = {e2ee.PREKEY: frames.PREKEY, e2ee.MESSAGE: frames.MESSAGE}
WIRE_KINDS = {name: kind for kind, name in KINDS.items()}


class Phone:
    """Device of one recipient, which talks to one business."""

    def __init__(self, number: str, *, one_time: int = 3, kyber: bool = True) -> None:
        self.number = number
        self.registration_id = 42
        self.identity = e2ee.IdentityKeyPair.generate()
        self.signed = e2ee.SignedPreKey.generate(self.identity, 1)
        self.kyber = e2ee.KyberPreKey.generate(self.identity, 1) if kyber else None
        self.prekeys = {n + 1: e2ee.PreKey.generate(n + 1) for n in range(one_time)}
        self._unused = list(self.prekeys)
        self.record: e2ee.SessionRecord | None = None

    def bundle(self) -> frames.Bundle:
        """Return a bundle as the directory does: each one-time pre-key once."""
        prekey = self.prekeys[self._unused.pop(0)] if self._unused else None
        return frames.Bundle(
            self.number,
            self.registration_id,
            self.identity.public,
            self.signed.key_id,
            self.signed.public,
            self.signed.signature,
            prekey.key_id if prekey else None,
            prekey.public if prekey else None,
            self.kyber.key_id if self.kyber else None,
            self.kyber.public if self.kyber else None,
            self.kyber.signature if self.kyber else None,
        )

    def read(self, kind: str, body: bytes) -> dict[str, object]:
        """Return the decrypted content. Raises the errors of `tidings.e2ee`."""
        if kind == frames.PREKEY:
            first = e2ee.PreKeySignalMessage.parse(body)
            if self.record is None or self.record.needs_setup(first):
                prekey = self.prekeys.get(first.prekey_id) if first.prekey_id is not None else None
                self.record = e2ee.SessionRecord.respond(
                    self.record, self.identity, first, self.signed, prekey, self.kyber
                )
        assert self.record is not None, "a message before any session"
        content: dict[str, object] = json.loads(self.record.decrypt(WIRE_KINDS[kind], body))
        return content

    def write(self, content: bytes, business: e2ee.PreKeyBundle | None = None) -> tuple[str, bytes]:
        """Return (kind, body) of a message to the business.

        business: bundle of the business for a first message; None when a session exists.
        """
        if self.record is None:
            assert business is not None, "no session, and no bundle to open one"
            self.record = e2ee.SessionRecord.initiate(self.identity, self.registration_id, business)
        kind, body = self.record.encrypt(content)
        return KINDS[kind], body
